package event

// TargetState is the data of upstream.target_down and upstream.target_up. Target is the address of the target: host and port.
// Upstreams are up to 10 of those that have it. Node is the name of the node that sees it so, nil for a server without others; other nodes may see it otherwise.
// Count is how often the target has gone down or come up on that node since the event before, this time included.
type TargetState struct {
	Target    string        `json:"target"`
	Upstreams []UpstreamRef `json:"upstreams"`
	Node      *string       `json:"node"`
	Reason    string        `json:"reason"`
	Count     int64         `json:"count"`
}

// UpstreamRef names an upstream of a gateway.
type UpstreamRef struct {
	GatewayID string `json:"gateway_id"`
	Upstream  string `json:"upstream"`
}
