package event

// SampleRate is the number of breaches of a limit for each rate_limit.exceeded event
// (specification, Limits).
const SampleRate = 100

// Breach is the data of rate_limit.exceeded. Path is the path of the route; the key is the
// request's key. Breaches is the number of breaches of the gateway, route and limit scope so far.
type Breach struct {
	GatewayID  string  `json:"gateway_id"`
	RouteID    string  `json:"route_id"`
	KeyID      *string `json:"key_id"`
	KeyPrefix  *string `json:"key_prefix"`
	LimitScope string  `json:"limit_scope"`
	LimitName  *string `json:"limit_name,omitempty"` // <plan>.<limit>, for limits of plans; route or key for others of the scope concurrency
	Limit      int64   `json:"limit"`
	Method     string  `json:"method"`
	Path       string  `json:"path"`
	SampleRate int     `json:"sample_rate"`
	Breaches   int64   `json:"breaches"`
}

// Reasons of an UpstreamError.
const (
	UpstreamStatus = "upstream_status" // the upstream responded with Status
	Unreachable    = "unreachable"     // a 502 by Keygate
	Timeout        = "timeout"         // a 504 by Keygate
)

// UpstreamError is the data of gateway.upstream_error. Path is the path of the route.
// Occurrences is the number of requests to the route that ended with Status since the
// previous event. Reason, Method and RequestID describe the last of these requests.
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
