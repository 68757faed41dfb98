package gateway

// CanaryShare is the part of a gateway's traffic that a canary sends to its upstream (targets.md, section 8). It is state, not
// configuration: no export and no revision has it, and the ETag of the gateway does not depend on it. It must not be changed.
type CanaryShare struct {
	ID       string   `json:"id"` // of the canary
	Upstream string   `json:"upstream"`
	Routes   []string `json:"routes"` // their identifiers, sorted; none of them has a split
	Weight   Percent  `json:"weight"` // of the callers, who stay on their side
	// Step is the number of the step, from 1, and grows also with each resume: what was counted in another one is not of this one.
	Step int `json:"step"`
	// Counts is set while the canary runs. Paused and held ones keep their weight, and nothing is counted.
	Counts bool `json:"counts"`
}
