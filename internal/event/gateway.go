package event

// SampleRate is how many breaches of a limit make one rate_limit.exceeded
// (specification, Limits).
const SampleRate = 100

// Breach is the data of rate_limit.exceeded. Path is the route's; the key is the
// caller's of this breach. Breaches is its number in the count of its gateway,
// route and limit scope.
type Breach struct {
	GatewayID  string  `json:"gateway_id"`
	RouteID    string  `json:"route_id"`
	KeyID      *string `json:"key_id"`
	KeyPrefix  *string `json:"key_prefix"`
	LimitScope string  `json:"limit_scope"`
	Limit      int64   `json:"limit"`
	Method     string  `json:"method"`
	Path       string  `json:"path"`
	SampleRate int     `json:"sample_rate"`
	Breaches   int64   `json:"breaches"`
}

// Reasons of an UpstreamError.
const (
	UpstreamStatus = "upstream_status" // the upstream answered with Status
	Unreachable    = "unreachable"     // 502 of ours
	Timeout        = "timeout"         // 504 of ours
)

// UpstreamError is the data of gateway.upstream_error. Path is the route's.
// Occurrences is how many requests to the route ended with Status since the event
// before; Reason, Method and RequestID are of the last of them.
type UpstreamError struct {
	GatewayID   string `json:"gateway_id"`
	RouteID     string `json:"route_id"`
	Status      int    `json:"status"`
	Reason      string `json:"reason"`
	Method      string `json:"method"`
	Path        string `json:"path"`
	RequestID   string `json:"request_id"`
	Occurrences int64  `json:"occurrences"`
}
