package balance

import (
	"slices"
	"time"
)

// Name names an upstream.
type Name struct{ Account, Gateway, Upstream string }

// Key names an address of an origin within an account. All upstreams of the account that name it share its state.
type Key struct {
	Account string
	Origin  string // scheme, host and port of the target's URL
	Address string // IP address and port; the host and port of the URL if names are not resolved
}

// Policy is how an upstream chooses between its targets (section 2).
type Policy uint8

// The policies. Hash without a value works as LeastRequests does.
const (
	LeastRequests Policy = iota
	RoundRobin
	Hash
)

// Config is what an upstream's configuration says about its targets. It is not changed once it is in use.
type Config struct {
	Targets  []TargetConfig
	Policy   Policy
	Ejection Ejection
	Retries  Retries
	Check    Check
	// DrainTimeout is how long requests at a target go on that drains or is gone. 0 means until they end.
	DrainTimeout time.Duration
}

// TargetConfig is one address of a target. A target whose name is resolved has several.
type TargetConfig struct {
	URL     string // the target's, for reports
	Origin  string // for Key
	Address string // for Key
	Weight  int    // at least 1
	Backup  bool
	Drain   bool
	// Degraded is set if the address may be an old one: the last look-up of the target's name has failed (section 5).
	Degraded bool
	// ByName is set if connections look up the target's name, so it may be at any of its addresses. If the same target goes on
	// at addresses of its name, what is in flight there goes on, too.
	ByName bool
	// Unchecked is set if nothing is known yet that could be checked.
	Unchecked bool
	Use       any // what the caller needs to use the target: see Target.Use
}

// hasTarget reports whether a target takes part at some address.
func (c *Config) hasTarget(url string) bool {
	return slices.ContainsFunc(c.Targets, func(t TargetConfig) bool { return t.URL == url && !t.Drain })
}

// Ejection is the field `ejection` (section 3). The zero value turns it off: the upstream ejects no address, and uses those
// that others have ejected.
type Ejection struct {
	Failures   int // in a row
	On         Results
	Base, Max  time.Duration
	MaxPercent int
}

// Retries is the field `retries` (section 4).
type Retries struct {
	Attempts      int // in addition to the first
	BudgetPercent int
	On            Results
}

// Check identifies the checks of an upstream (section 3). The zero value is none.
type Check struct {
	ID                 string // equal for equal settings
	Unhealthy, Healthy int    // results in a row that change the state
	Use                any    // what checking an address needs
}

// DefaultEjection returns the ejection of an upstream that says nothing about it.
func DefaultEjection() Ejection {
	return Ejection{Failures: 5, On: On(Connect, Reset), Base: 10 * time.Second, Max: 300 * time.Second, MaxPercent: 50}
}

// DefaultRetries returns the retries of an upstream that says nothing about them.
func DefaultRetries() Retries {
	return Retries{Attempts: 1, BudgetPercent: 20, On: On(Connect, Reset)}
}

// off reports whether the upstream neither ejects addresses nor heeds ejections.
func (e *Ejection) off() bool { return e.Failures == 0 }

// maxEjected returns how many of n targets may be ejected for timeouts and statuses.
func (e *Ejection) maxEjected(n int) int { return max(1, n*e.MaxPercent/100) }

// duration returns how long the given number of ejections eject an address.
func (e *Ejection) duration(number int) time.Duration {
	if e.Base > 0 && time.Duration(number) > e.Max/e.Base {
		return e.Max
	}
	return min(e.Max, e.Base*time.Duration(number))
}
