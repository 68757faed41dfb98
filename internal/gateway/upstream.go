package gateway

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// Upstream says how a gateway reaches a service behind it. The store keeps it as one
// JSON object, so its JSON names are part of the stored form: add new ones, but never
// change one. CONTRIBUTING.md lists the files that a new setting touches.
type Upstream struct {
	// Name is the upstream's in its gateway; "" for DefaultUpstream, to which upstream_url and the
	// upstream_ settings belong.
	Name string `json:"name,omitempty"`

	// URL is that of the first target, as given; http, https or h2c.
	URL string `json:"url"`

	// Targets are all targets in the given order; nil for one target, URL, that has the defaults.
	Targets []Target `json:"targets,omitempty"`

	// Host is the Host that the service gets: "" for that of URL, PreserveHost for the client's, or a name.
	Host string `json:"host,omitempty"`

	// Headers are set on every forwarded request. The values are sealed with the
	// installation's secret key.
	Headers map[string][]byte `json:"headers,omitempty"`

	// OfOrigin is set if the secrets were given for the origins of the targets alone: while there was one target, or none
	// that proves Host, Host or TLS.CA was changed, or targets were added. So a certificate for Host does not prove whom they
	// were meant for (targets.md, section 1).
	OfOrigin bool `json:"of_origin,omitempty"`

	TLS      UpstreamTLS      `json:"tls,omitzero"`
	Timeouts UpstreamTimeouts `json:"timeouts,omitzero"`

	// MaxConnections is the maximum number of open connections; 0 means unlimited.
	MaxConnections int64 `json:"max_connections,omitempty"`
	// MaxConnectionAge is the age after which a connection is not used for new requests: a
	// Go duration as given; "" means the server's default.
	MaxConnectionAge string `json:"max_connection_age,omitempty"`

	// Timeout is that of a named upstream, a Go duration as given; "" for that of the default one, which is
	// Gateway.Timeout.
	Timeout string `json:"timeout,omitempty"`

	Balance  Balance   `json:"balance,omitzero"`
	Ejection *Ejection `json:"ejection,omitempty"` // nil for DefaultEjection
	Retries  *Retries  `json:"retries,omitempty"`  // nil for DefaultRetries
	Health   *Health   `json:"health,omitempty"`   // nil for no checks

	// Refresh is how often names are looked up, a Go duration as given; "" for DefaultRefresh.
	Refresh string `json:"refresh,omitempty"`
}

// setURL sets a URL that is valid. Credentials for one server are not sent to another: a new origin removes
// the headers, and the client certificate with its key.
func (u *Upstream) setURL(s string) {
	if u.URL == s {
		return
	}
	before, err := ParseUpstreamURL(u.URL)
	if after, afterErr := ParseUpstreamURL(s); err != nil || afterErr != nil || before.Origin() != after.Origin() {
		u.DropSecrets()
	}
	if u.URL = s; u.Targets != nil {
		u.Targets = slices.Clone(u.Targets)
		u.Targets[0].URL = s
	}
}

// DropSecrets removes the headers, those of checks too, and the client certificate with its key.
func (u *Upstream) DropSecrets() {
	u.Headers, u.TLS.ClientCertificate, u.TLS.ClientKey = nil, "", nil
	u.Health = u.Health.WithoutHeaders()
}

// HasSecrets reports whether there are headers, of requests or of checks, or a client key.
func (u *Upstream) HasSecrets() bool {
	return len(u.Headers) > 0 || len(u.TLS.ClientKey) > 0 || len(u.Health.SealedHeaders()) > 0
}

// UpstreamTLS says how a gateway authenticates an https upstream, and itself to the
// upstream.
type UpstreamTLS struct {
	CA string `json:"ca,omitempty"` // PEM; replaces the system's roots

	// ClientCertificate is the PEM chain that the gateway presents, and ClientKey its
	// private key, in PEM and sealed as the headers are. Both or neither are set.
	ClientCertificate string `json:"client_certificate,omitempty"`
	ClientKey         []byte `json:"client_key,omitempty"`
}

// UpstreamTimeouts limits connecting to the upstream and keeping idle connections. The
// values are Go durations as given; "" means the server's default.
type UpstreamTimeouts struct {
	Connect string `json:"connect,omitempty"`
	Idle    string `json:"idle,omitempty"`
}

// TargetHost and PreserveHost are the values of upstream_host that are no names.
const (
	TargetHost   = "target"
	PreserveHost = "preserve"
)

// maxUpstreamHost is the length of the longest upstream_host.
const maxUpstreamHost = maxHostname + 6 // ":65535"

// CheckUpstreamHost checks the Host that the upstream gets (contract, 3.3): TargetHost, PreserveHost, or a
// hostname with an optional port. The error is a validation error of the field "upstream_host".
func CheckUpstreamHost(s string) error {
	name, port, hasPort := strings.Cut(s, ":")
	number, err := strconv.ParseUint(port, 10, 16)
	if !isDNSName(strings.ToLower(name)) || hasPort && (err != nil || number == 0) {
		return fault.Invalid("upstream_host", "must be target, preserve, or a hostname with an optional port, such as api.example.com")
	}
	return nil
}

// MaxUpstreamConnections is the largest value of Upstream.MaxConnections.
const MaxUpstreamConnections = 100_000

// CheckUpstreamConnectTimeout checks a connect timeout: a Go duration from 100ms to 1m.
// The error is a validation error of the field "upstream_connect_timeout".
func CheckUpstreamConnectTimeout(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 100*time.Millisecond || d > time.Minute {
		return fault.Invalid("upstream_connect_timeout", "must be a duration between 100ms and 1m, such as 500ms or 5s")
	}
	return nil
}

// CheckUpstreamIdleTimeout checks how long an idle connection is kept: a Go duration from
// 1s to 1h. The error is a validation error of the field "upstream_idle_timeout".
func CheckUpstreamIdleTimeout(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d > time.Hour {
		return fault.Invalid("upstream_idle_timeout", "must be a duration between 1s and 1h, such as 30s or 1m30s")
	}
	return nil
}

// CheckUpstreamMaxConnectionAge checks the age after which a connection is not used for new
// requests: a Go duration from 1s to 24h. The error is a validation error of the field
// "upstream_max_connection_age".
func CheckUpstreamMaxConnectionAge(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d > 24*time.Hour {
		return fault.Invalid("upstream_max_connection_age", "must be a duration between 1s and 24h, such as 30s or 1h")
	}
	return nil
}

// CheckUpstreamMaxConnections checks a maximum number of connections. The error is a
// validation error of the field "upstream_max_connections".
func CheckUpstreamMaxConnections(n int64) error {
	if n < 1 || n > MaxUpstreamConnections {
		return fault.Invalid("upstream_max_connections", "must be between 1 and %d: leave it out, or set it to null, for no limit", MaxUpstreamConnections)
	}
	return nil
}
