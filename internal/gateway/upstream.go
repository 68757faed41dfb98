package gateway

// Upstream is how a gateway reaches the service behind it. The store keeps it as
// one JSON object, so its JSON names are part of the stored form: add to them, but
// do not change them. CONTRIBUTING.md lists what a new setting touches.
type Upstream struct {
	URL string `json:"url"` // as given; http, https or h2c

	// Headers are set on every forwarded request. The values are sealed with the
	// installation's secret key.
	Headers map[string][]byte `json:"headers,omitempty"`

	TLS      UpstreamTLS      `json:"tls,omitzero"`
	Timeouts UpstreamTimeouts `json:"timeouts,omitzero"`

	// MaxConnections bounds the connections to the upstream at any time; 0 sets no
	// bound.
	MaxConnections int64 `json:"max_connections,omitempty"`
}

// UpstreamTLS is how a gateway authenticates an https upstream, and itself to it.
type UpstreamTLS struct {
	CA string `json:"ca,omitempty"` // PEM; replaces the system's roots

	// ClientCertificate is the PEM chain that the gateway presents, and ClientKey its
	// private key, in PEM and sealed as the headers are. Both or neither are set.
	ClientCertificate string `json:"client_certificate,omitempty"`
	ClientKey         []byte `json:"client_key,omitempty"`
}

// UpstreamTimeouts bounds what a connection to the upstream may take: Go durations
// as given, or "" for the server's default.
type UpstreamTimeouts struct {
	Connect string `json:"connect,omitempty"`
	Idle    string `json:"idle,omitempty"`
}
