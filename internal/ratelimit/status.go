package ratelimit

import "math"

// Scope says what a limit applies to.
type Scope uint8

// The scopes, in the order in which limits are charged.
const (
	KeyScope Scope = iota
	RouteScope
	DailyScope
	GlobalScope
	AccountScope // isOf the management API
)

// String returns the scope as limit_scope tells it: key, route, daily, global, account.
func (s Scope) String() string {
	switch s {
	case KeyScope:
		return "key"
	case RouteScope:
		return "route"
	case DailyScope:
		return "daily"
	case GlobalScope:
		return "global"
	case AccountScope:
		return "account"
	default:
		return "unknown"
	}
}

// Status is where a limit stands after a decision.
type Status struct {
	Scope      Scope
	Default    bool
	Refused    bool
	Limit      int64 // capacity
	Remaining  int64 // requests requests left
	Window     int64 // requests seconds, rounded up, that a refill from empty takes
	ResetAt    int64 // Unix second, rounded up, at which it is full again; of a refusal: at which the request would pass
	ResetIn    int64 // seconds, rounded up, from the decision to the moment that ResetAt tells
	RetryAfter int64 // isOf a refusing limit: ResetIn, at least 1

	policy string // what Limit and Window are in RateLimit-Policy, or ""
}

// fillStatuses fills standing of limits whose states are next, and returns the one with
// the fewest requests left (tie: the later reset), or -1.
func fillStatuses(now Instant, day int64, limits []Limit, views []view, standing []Status) (worst int) {
	worst = -1
	for i := range limits {
		l, s := &limits[i], &standing[i]
		s.Scope, s.Default, s.Refused, s.RetryAfter = l.Scope, l.Default, false, 0
		if l.Daily != nil {
			dailyWord(views[i].next).fillStatus(s, views[i].at, now, day)
		} else {
			l.Params.fillStatus(s, views[i].next, views[i].at, now.Wall)
		}
		if worst < 0 || s.Remaining < standing[worst].Remaining ||
			s.Remaining == standing[worst].Remaining && s.ResetAt > standing[worst].ResetAt {
			worst = i
		}
	}
	return worst
}

// fillRefused fills standing of limits whose states are word, of which at least
// one refuses, and returns the one that makes the caller wait longest.
func fillRefused(now Instant, day int64, limits []Limit, views []view, standing []Status) (worst int) {
	longest := int64(-1)
	for i := range limits {
		l, v, s := &limits[i], &views[i], &standing[i]
		s.Scope, s.Default, s.Refused, s.RetryAfter = l.Scope, l.Default, false, 0
		wait := int64(-1)
		if l.Daily != nil {
			dailyWord(v.word).fillStatus(s, v.at, now, day)
			if s.Remaining == 0 {
				wait = (day+1)*dayLength - now.Wall
			}
		} else {
			l.Params.fillStatus(s, v.word, v.at, now.Wall)
			wait = l.Params.fillRefused(s, v.word, v.at, now.Wall)
		}
		if wait < 0 {
			continue
		}
		s.Refused, s.Remaining, s.RetryAfter = true, 0, max(1, s.ResetIn)
		if wait > longest {
			longest, worst = wait, i
		}
	}
	return worst
}

// fillStatus fills the figures of a bucket in state word when at units are gained.
func (p *Params) fillStatus(s *Status, word, at uint64, wall int64) {
	used := max(word, at) - at
	s.Limit, s.Window, s.policy = p.capacity, p.window, p.policy
	s.Remaining = p.requests(p.span - min(used, p.span))
	ns, near := p.until(used)
	s.reset(wall, ns)
	if !near {
		s.resetFar(wall, p.untilFar(used))
	}
}

// fillRefused sets the reset of a bucket that refuses to the moment at which it will let
// the request pass, and returns the nanoseconds until then, or -1 if it does not refuse.
func (p *Params) fillRefused(s *Status, word, at uint64, wall int64) (wait int64) {
	used := max(word, at) - at
	if used <= p.span-p.cost {
		return -1
	}
	lack := used - (p.span - p.cost)
	ns, near := p.until(lack)
	if !near {
		s.resetFar(wall, p.untilFar(lack))
		return math.MaxInt64
	}
	s.reset(wall, ns)
	return int64(ns)
}

// reset sets the reset to ns nanoseconds from now.
func (s *Status) reset(wall int64, ns uint64) {
	s.ResetAt, s.ResetIn = ceilSeconds(wall+int64(ns)), ceilSeconds(int64(ns))
}

func (s *Status) resetFar(wall, seconds int64) {
	s.ResetAt, s.ResetIn = ceilSeconds(wall)+seconds, seconds
}

// fillStatus fills the figures of a count in state w with a cap.
func (w dailyWord) fillStatus(s *Status, capacity uint64, now Instant, day int64) {
	s.Limit, s.Window, s.policy = int64(capacity), dayLength/second, ""
	s.Remaining = max(0, s.Limit-w.used())
	s.ResetAt = (day + 1) * (dayLength / second)
	s.ResetIn = ceilSeconds((day+1)*dayLength - now.Wall)
}
