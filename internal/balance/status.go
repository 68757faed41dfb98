package balance

import (
	"slices"
	"time"
)

// Status is the state of a target at one address, as it is shown (section 3).
type Status struct {
	Target   *Target // nil for the only target of an upstream
	URL      string  // as it is configured
	Address  string  // as in Key
	Weight   int
	Backup   bool
	State    State
	Degraded bool // as in TargetConfig; false if it is gone from the configuration
	Draining bool // also if it is gone from the configuration, with requests in flight
	HalfOpen bool // of an ejected one
	Waits    bool // for its first check, since others are healthy
	Since    time.Duration
	Until    time.Duration // of an ejection
	// EjectedAfter is how many failures in a row led to an ejection.
	EjectedAfter int
	// Reason is why it is unhealthy or ejected.
	Reason    string
	InFlight  int64 // of the address
	Own       int64 // of them, those of this upstream's target
	Requests  uint64
	Failures  uint64
	Run       int // failures in a row
	Ejections uint64
	LastCheck CheckResult
}

// Observe appends the status of every target to dst, those that are gone and have requests in flight last.
func (u *Upstream) Observe(now time.Duration, dst []Status) []Status {
	v := u.view(now)
	waits := false
	for i := range v.targets[:v.open] {
		l := v.targets[i].level(now, v.heeds())
		waits = waits || l == primary || l == backup // a healthy one is there
	}
	u.mu.Lock()
	leaving := append([]*Target(nil), u.leaving...)
	u.mu.Unlock()
	for i := range v.table.targets {
		dst = append(dst, v.table.targets[i].status(now, v.heeds(), waits))
	}
	for _, t := range leaving {
		if t.InFlight() > 0 {
			gone := entry{Target: t}
			dst = append(dst, gone.status(now, v.heeds(), false))
		}
	}
	return dst
}

func (t *entry) status(now time.Duration, heeds, waits bool) Status {
	a := t.address
	p := a.stateAt(now).state()
	s := Status{Target: t.Target, URL: t.url, Address: a.key.Address, Weight: int(t.weight / fullWeight), Backup: t.backup, Degraded: t.degraded, Draining: t.leaves.Load(), InFlight: a.inFlight.Load(), Own: t.InFlight(), Requests: t.begun.Load()}
	for i := range t.failures {
		s.Failures += t.failures[i].Load()
	}
	from := t.warmFrom()
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Ejections, s.Run, s.Since = a.ejections, a.run.hard+a.run.soft, a.since
	h := t.health
	if h != nil {
		s.LastCheck = h.last
	}
	switch {
	case h != nil && verdict(h.state.Load()) == bad:
		s.State, s.Since, s.Reason = Unhealthy, h.since, h.reason
	case a.refused.Load() > int64(now):
		s.State, s.Since, s.Reason = Unhealthy, time.Duration(a.refused.Load())-refusal, NotAllowed.String()
	case p != open:
		// An upstream that does not heed ejections shows them, too: the state belongs to the address.
		s.State, s.Since, s.Until, s.Reason, s.HalfOpen = Ejected, a.ejection.Since, a.ejection.Until, a.ejection.Reason.String(), p == halfOpen
		s.EjectedAfter = a.ejection.Failures
	case h != nil && waits && verdict(h.state.Load()) == unknown:
		s.State, s.Waits = Warming, true
	case grown(now, from) < fullWeight:
		s.State, s.Since = Warming, from
	default:
		s.Since = max(s.Since, h.healthySince(), time.Duration(t.joined.Load()))
	}
	return s
}

// healthySince returns since when the checks find the address healthy.
func (h *Health) healthySince() time.Duration {
	if h == nil {
		return never
	}
	return h.since
}

// Failures returns how many attempts ended with a result, for metrics.
func (t *Target) Failures(r Result) uint64 { return t.failures[r].Load() }

// AllUnhealthy reports whether every target that does not drain is unhealthy, ejected or half-open: requests then go to all of
// them (section 2). It is false if all drain.
func (u *Upstream) AllUnhealthy(now time.Duration) bool {
	v := u.view(now)
	return v.allUnhealthy && len(v.targets) > 0
}

// Serves reports whether a target takes part. A side of a split that falls back serves only then (section 7).
func (u *Upstream) Serves(now time.Duration) bool {
	v := u.view(now)
	return v.open > 0 && !v.allUnhealthy
}

// trialEvery is how often Tries is true.
const trialEvery = time.Second

// Tries reports whether a request may go to a target of an upstream that does not serve, because one is half-open: it would never
// take part again otherwise. This is so for one request in a second.
func (u *Upstream) Tries(now time.Duration) bool {
	v := u.view(now)
	if !v.allUnhealthy || !slices.ContainsFunc(v.targets, func(e entry) bool { return e.level(now, v.heeds()) == halfOpened }) {
		return false
	}
	last := u.trial.Load()
	return (last == 0 || now-time.Duration(last) >= trialEvery) && u.trial.CompareAndSwap(last, max(1, int64(now)))
}

// WithoutHealthy returns how many attempts were chosen while no target took part.
func (u *Upstream) WithoutHealthy() uint64 { return u.without.Load() }
