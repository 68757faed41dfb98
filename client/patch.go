package client

// GatewayPatch is the body of UpdateGateway (contract, section 3.3). Fields without
// a Change are unchanged; a cleared field gets its default.
type GatewayPatch struct {
	Name            Change[string]            `json:"name,omitzero"`              // 1 to 255 characters; cannot be cleared
	UpstreamURL     Change[string]            `json:"upstream_url,omitzero"`      // cannot be cleared; another origin removes UpstreamHeaders and the client certificate
	Hostname        Change[string]            `json:"hostname,omitzero"`          // default: generated from the identifier
	GlobalRateLimit Change[GlobalLimitInput]  `json:"global_rate_limit,omitzero"` // replaced as a whole; default: the installation's
	Timeout         Change[string]            `json:"timeout,omitzero"`           // Go duration, 1s to 1h; default: 60s
	UpstreamHeaders Change[map[string]string] `json:"upstream_headers,omitzero"`  // replaced as a whole, at most 16; default: none
	UpstreamCA      Change[string]            `json:"upstream_ca,omitzero"`       // PEM; default: the system's root certificates
	CORS            Change[CorsInput]         `json:"cors,omitzero"`              // replaced as a whole; default: none
	MaxBodyBytes    Change[int64]             `json:"max_body_bytes,omitzero"`    // at least 1; default: unlimited
	Default         Change[bool]              `json:"default,omitzero"`           // true makes it the default gateway, for unknown hosts; cannot be cleared

	KeyHeaders          Change[[]string] `json:"key_headers,omitzero"`           // 1 to 4; default: Authorization
	AllowEncodedSlashes Change[bool]     `json:"allow_encoded_slashes,omitzero"` // default: false
	CutStreams          Change[bool]     `json:"cut_streams,omitzero"`           // default: true

	UpstreamClientCertificate Change[string] `json:"upstream_client_certificate,omitzero"` // PEM; cleared only together with the key
	UpstreamClientKey         Change[string] `json:"upstream_client_key,omitzero"`         // PEM, without a passphrase
	UpstreamConnectTimeout    Change[string] `json:"upstream_connect_timeout,omitzero"`    // Go duration, 100ms to 1m; default: 10s
	UpstreamIdleTimeout       Change[string] `json:"upstream_idle_timeout,omitzero"`       // Go duration, 1s to 1h; default: 90s
	UpstreamMaxConnectionAge  Change[string] `json:"upstream_max_connection_age,omitzero"` // Go duration, 1s to 24h; default: 5m
	UpstreamMaxConnections    Change[int64]  `json:"upstream_max_connections,omitzero"`    // 1 to 100000; default: unlimited
}

// KeyPatch is the body of UpdateKey (contract, section 3.1). Fields without a
// Change are unchanged.
type KeyPatch struct {
	Name      Change[string]            `json:"name,omitzero"`       // 1 to 255 characters; cannot be cleared
	Owner     Change[string]            `json:"owner,omitzero"`      // at most 255 printable ASCII characters
	RateLimit Change[KeyRateLimit]      `json:"rate_limit,omitzero"` // replaced as a whole; cleared: no limit
	Metadata  Change[map[string]string] `json:"metadata,omitzero"`   // replaced as a whole, at most 16 entries
	ExpiresAt Change[string]            `json:"expires_at,omitzero"` // RFC 3339 time, or a date, which means its end; cleared: never
}

// RateLimitPatch changes fields of a route's rate limit (contract, section 4.3).
// Fields without a Change are unchanged.
type RateLimitPatch struct {
	Sustained Change[string] `json:"sustained,omitzero"` // refill rate, <count>/<unit>
	Burst     Change[string] `json:"burst,omitzero"`     // capacity, <count>/<unit>
	Daily     Change[string] `json:"daily,omitzero"`     // maximum per UTC day, <count>/day
	Per       Change[string] `json:"per,omitzero"`       // key, or cleared: all callers share the limit
}

// RoutePatch is the body of UpdateRoute and UpdateRouteLimit. Fields without a Change are
// unchanged.
type RoutePatch struct {
	Path      Change[string]         `json:"path,omitzero"`       // cannot be cleared
	Methods   Change[[]string]       `json:"methods,omitzero"`    // replaced as a whole; cannot be cleared
	Auth      Change[string]         `json:"auth,omitzero"`       // key or none; cleared: key
	RateLimit Change[RateLimitPatch] `json:"rate_limit,omitzero"` // cleared: the route has no limit
}

// AccountPatch is the body of UpdateAccount (contract, section 3.3). Fields without a Change
// are unchanged.
type AccountPatch struct {
	Name  Change[string]   `json:"name,omitzero"`  // 1 to 255 characters; cannot be cleared
	Plan  Change[string]   `json:"plan,omitzero"`  // starter, platform or scale; cannot be cleared
	Hosts Change[[]string] `json:"hosts,omitzero"` // replaced as a whole, at most 100; cleared: none
	State Change[string]   `json:"state,omitzero"` // active or suspended; cannot be cleared
}
