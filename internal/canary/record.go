package canary

import (
	"slices"
	"time"

	"github.com/keygate/keygate/internal/gateway"
)

// State is the state of a canary.
type State string

// The states. Promoted and Aborted are final, and only a Running one is judged.
const (
	Running  State = "running"
	Paused   State = "paused"
	Held     State = "held" // at 100 %, or at its last step: what follows is the operator's
	Promoted State = "promoted"
	Aborted  State = "aborted"
)

// Done reports whether the canary has ended.
func (s State) Done() bool { return s == Promoted || s == Aborted }

// The bounds of a canary.
const (
	MaxRoutes = 1_000 // of a canary
	MaxSteps  = 20
	MinHold   = time.Minute
	// MostIdle is how much of a time in which nobody judges is time of a step: what it takes until another process leads. If all nodes
	// were down for longer, nothing was counted that a step could be judged by.
	MostIdle = 2 * time.Minute
	MaxHold  = 24 * time.Hour
	// LeftOutFor is the time before a canary in which callers had bad requests for which they are left out.
	LeftOutFor = time.Hour
	// MaxLeftOut is how many callers a canary leaves out: those with most bad requests in the hour before.
	MaxLeftOut = 10_000

	MaxLines = 256 << 10 // bytes of Lines, which have at least one

	MaxMinRequests = 1_000_000_000
	MaxP95Ratio    = 1_000

	MaxOfAccount   = 100   // that have not ended
	MaxRunning     = 1_000 // of all accounts
	EndedOfGateway = 100   // that are kept
	EndedOfAccount = 1_000 // that are kept
)

// Canary is the stored record of a canary. The store keeps Plan, Progress and Lines as JSON.
type Canary struct {
	ID        string
	AccountID string
	GatewayID string
	Plan      Plan
	State     State
	Step      int // index of the present step in Plan.Steps
	Number    int // CanaryShare.Step of the present step
	// Ran is how long the step had run at Since, which is when it began, went on, or was noted last, as it is each minute. A paused step
	// only has Ran.
	Ran         time.Duration
	Since       time.Time
	Progress    []Progress // one for each step that has begun
	Explanation string     // of the last decision, in words
	Lines       []string   // what to commit, once it is held at 100 %, also while it is paused there
	CreatedAt   time.Time
	EndedAt     time.Time // zero until it is Done
	Version     int64
}

// Weight returns the share of the callers that is in force, while the canary is not Done.
func (c *Canary) Weight() gateway.Percent {
	if c.Whole() {
		return whole
	}
	return c.Plan.Steps[c.Step]
}

// Whole reports whether the canary has all callers, and waits for a push of its Lines.
func (c *Canary) Whole() bool { return len(c.Lines) > 0 }

// Pausable reports whether a change of the canary's routes or upstreams pauses it: it runs, or is held.
func (c *Canary) Pausable() bool { return c.State == Running || c.State == Held }

const whole gateway.Percent = 100_00

// Share returns the part of the gateway's traffic that the canary has; nil if it is Done.
func (c *Canary) Share() *gateway.CanaryShare {
	if c.State.Done() {
		return nil
	}
	return &gateway.CanaryShare{ID: c.ID, Upstream: c.Plan.Upstream, Routes: c.Plan.Routes, Weight: c.Weight(), Step: c.Number, Counts: c.State == Running}
}

// Last reports whether the present step is the last one.
func (c *Canary) Last() bool { return c.Step == len(c.Plan.Steps)-1 }

// Advance begins the next step.
func (c *Canary) Advance(now time.Time) {
	c.Step++
	c.Number++
	c.Ran, c.Since = 0, now
	c.Progress = append(slices.Clip(c.Progress), Progress{Step: c.Step + 1, Number: c.Number, Weight: c.Plan.Steps[c.Step], Since: now})
}

// Pause stops the time of the present step. The step of a held canary has ended: it begins its time anew.
func (c *Canary) Pause(now time.Time) {
	ran := c.Ran + min(max(0, now.Sub(c.Since)), MostIdle)
	if c.State == Held {
		ran = 0
	}
	c.State, c.Ran, c.Since = Paused, ran, now
}

// Resume goes on with the present step of a paused canary that is not Whole. A step that has run for as long as one may begins its
// time anew.
func (c *Canary) Resume(now time.Time) {
	if c.Ran >= longestStep {
		c.Ran = 0
	}
	c.State, c.Since = Running, now
	c.Number++
}

// Plan is what a canary was started with.
type Plan struct {
	Upstream    string            `json:"upstream"`
	Other       string            `json:"other"`  // the upstream of the routes
	Routes      []string          `json:"routes"` // identifiers, sorted
	Steps       []gateway.Percent `json:"steps"`
	Hold        string            `json:"hold"` // a Go duration as given
	MoreThan    *float64          `json:"more_than,omitempty"`
	P95Ratio    *float64          `json:"p95_ratio,omitempty"`
	MinRequests uint64            `json:"min_requests"`
	Promote     bool              `json:"promote"` // when_done
	// Before is the end of the hour whose bad requests decide which callers are left out: the start of the canary. If other canaries
	// of its gateway came before it, each within an hour of the next, it is the start of the first of them, since what a canary did
	// to callers says nothing about them.
	Before time.Time `json:"before"`
}

// Progress is what a step has counted.
type Progress struct {
	Step   int             `json:"step"`   // from 1
	Number int             `json:"number"` // Canary.Number when the step began: counts with this number or a later one belong to the step
	Weight gateway.Percent `json:"weight"`
	Since  time.Time       `json:"since"`
	Next   Figures         `json:"next"`
	Other  Figures         `json:"other"`
}

// Figures are those of a side in a step.
type Figures struct {
	Requests uint64   `json:"requests"`
	Bad      uint64   `json:"bad"`
	P95      *float64 `json:"p95_ms"` // nil without requests
}

// Ran is how long a step has run, and until when.
type Ran struct {
	For   time.Duration
	Until time.Time
}

// Lead is the right of a process to judge canaries.
type Lead struct {
	Claimant string
	Epoch    int64 // grows with each process that takes the lead
}

// Config returns how the steps of the canary are judged.
func (p *Plan) Config() Config {
	c := Config{Next: p.Upstream, Other: p.Other, MinRequests: p.MinRequests}
	c.Hold, _ = time.ParseDuration(p.Hold) // was checked
	if p.MoreThan != nil {
		c.Errors, c.MoreThan = true, *p.MoreThan
	}
	if p.P95Ratio != nil {
		c.P95Ratio = *p.P95Ratio
	}
	return c
}
