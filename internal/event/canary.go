package event

// Canary is the data of the events of canaries. Step is the number of the step, from 1. Weight is the share of the callers, in
// percent, that Upstream has after the change; if the canary has ended, what it had before.
type Canary struct {
	CanaryID    string  `json:"canary_id"`
	GatewayID   string  `json:"gateway_id"`
	Upstream    string  `json:"upstream"`
	Step        int     `json:"step"`
	Weight      float64 `json:"weight"`
	Explanation string  `json:"explanation"`
}
