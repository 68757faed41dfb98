package client

// GatewayPatch is the body of UpdateGateway. Fields that are not set stay.
type GatewayPatch struct {
	Name            Change[string]            `json:"name,omitzero"`         // cannot be cleared
	UpstreamURL     Change[string]            `json:"upstream_url,omitzero"` // cannot be cleared; another origin drops UpstreamHeaders and the client certificate
	Hostname        Change[string]            `json:"hostname,omitzero"`     // cleared: the one made from the identifier
	GlobalRateLimit Change[GlobalLimitInput]  `json:"global_rate_limit,omitzero"`
	Timeout         Change[string]            `json:"timeout,omitzero"`
	UpstreamHeaders Change[map[string]string] `json:"upstream_headers,omitzero"` // replaces all
	UpstreamCA      Change[string]            `json:"upstream_ca,omitzero"`
	CORS            Change[CorsInput]         `json:"cors,omitzero"` // replaces all
	MaxBodyBytes    Change[int64]             `json:"max_body_bytes,omitzero"`

	UpstreamClientCertificate Change[string] `json:"upstream_client_certificate,omitzero"` // cleared only together with the key
	UpstreamClientKey         Change[string] `json:"upstream_client_key,omitzero"`
	UpstreamConnectTimeout    Change[string] `json:"upstream_connect_timeout,omitzero"`
	UpstreamIdleTimeout       Change[string] `json:"upstream_idle_timeout,omitzero"`
	UpstreamMaxConnections    Change[int64]  `json:"upstream_max_connections,omitzero"`
}

// KeyPatch is the body of UpdateKey. Fields that are not set stay.
type KeyPatch struct {
	Name      Change[string]            `json:"name,omitzero"` // cannot be cleared
	Owner     Change[string]            `json:"owner,omitzero"`
	RateLimit Change[string]            `json:"rate_limit,omitzero"`
	Metadata  Change[map[string]string] `json:"metadata,omitzero"` // replaces all
	ExpiresAt Change[string]            `json:"expires_at,omitzero"`
}

// RateLimitPatch changes members of a route's limit. Fields that are not set
// stay.
type RateLimitPatch struct {
	Sustained Change[string] `json:"sustained,omitzero"`
	Burst     Change[string] `json:"burst,omitzero"`
	Daily     Change[string] `json:"daily,omitzero"`
	Per       Change[string] `json:"per,omitzero"`
}

// RoutePatch is the body of UpdateRouteLimit.
type RoutePatch struct {
	RateLimit Change[RateLimitPatch] `json:"rate_limit"` // cleared: no limit
}
