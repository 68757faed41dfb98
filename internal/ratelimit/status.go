package ratelimit

import "math"

// Status is the status of a limit after a decision.
type Status struct {
	Scope      Scope
	Default    bool
	Label      *Label // of a limit of a plan; else nil
	Refused    bool
	Limit      int64 // capacity
	Remaining  int64 // whole requests left
	Window     int64 // seconds, rounded up, from empty to full
	ResetAt    int64 // Unix time in seconds, rounded up, at which the limit is full again or, if Refused, would admit the request; the greatest number of 32 bits for never
	ResetIn    int64 // seconds, rounded up, from the decision to that time
	RetryAfter int64 // if Refused: ResetIn, at least 1

	// If Refused: the units that are left, and those that the request needs.
	Left, Needed int64
}

// fillStatuses fills the statuses of limits in the state next. It returns the limit of requests with
// the fewest left (on a tie, the limit that resets later), or -1 without such limits.
func (d *decision) fillStatuses() (worst int) {
	worst = -1
	for i := range d.entries {
		e := &d.entries[i]
		e.fillStatus(&d.moment, e.next)
		worst = d.worse(worst, i)
	}
	return worst
}

// fillCharged is fillStatuses for limits that were charged.
func (d *decision) fillCharged() (worst int) {
	worst = -1
	for i := range d.entries {
		if e := &d.entries[i]; e.isLocal() {
			e.fillLocal(&d.moment, e.next)
		} else {
			e.charged(&d.moment)
			e.fillStatus(&d.moment, e.next)
		}
		worst = d.worse(worst, i)
	}
	return worst
}

// worse returns which of two limits has fewer requests left. worst may be -1; only limits of requests in a time count.
func (d *decision) worse(worst, i int) int {
	switch {
	case d.entries[i].Label.Meter() != "", d.entries[i].Slots != nil:
		return worst
	case worst < 0:
		return i
	}
	s, w := &d.entries[i].status, &d.entries[worst].status
	if s.Remaining < w.Remaining || s.Remaining == w.Remaining && s.ResetAt > w.ResetAt {
		return i
	}
	return worst
}

// fillRefused fills the statuses of limits in the state word, at least one of which
// refuses. It returns the limit for which the caller must wait longest.
func (d *decision) fillRefused() (worst int) {
	longest := int64(-1)
	for i := range d.entries {
		e := &d.entries[i]
		wait := e.fillRefused(&d.moment)
		if wait < 0 {
			continue
		}
		s := &e.status
		s.Refused, s.Left, s.Needed = true, s.Remaining, e.unitsOf(e.amount)
		if s.Needed > s.Limit {
			wait = s.never(d.Wall)
		}
		s.Remaining, s.RetryAfter = 0, max(1, s.ResetIn)
		if wait > longest {
			longest, worst = wait, i
		}
	}
	return worst
}

// fillStatus fills the status of a bucket in the state word when at units are gained.
func (p *Params) fillStatus(s *Status, word, at uint64, wall int64) {
	used := max(word, at) - at
	s.Limit, s.Window, s.Remaining = p.limit, p.window, p.left(used)
	ns, near := p.until(used)
	s.reset(wall, ns)
	if !near {
		s.resetFar(wall, p.untilFar(used))
	}
}

// left returns how many whole requests, or units of a meter, are left of the bucket when so many of its units are used.
func (p *Params) left(used uint64) int64 {
	return min(p.requests(p.span-min(used, p.span))*p.grain, p.limit)
}

// fillRefused does what fillStatus does, but the reset of a bucket that refuses a charge of units is the time
// at which it will admit the charge. It returns the nanoseconds until then, or -1 if the bucket does not
// refuse.
func (p *Params) fillRefused(s *Status, word, at, units uint64, wall int64) (wait int64) {
	used := max(word, at) - at
	if p.fits(used, units) {
		p.fillStatus(s, word, at, wall)
		return -1
	}
	s.Limit, s.Window, s.Remaining = p.limit, p.window, p.left(used)
	lack := used - p.span + units
	ns, near := p.until(lack)
	if !near {
		s.resetFar(wall, p.untilFar(lack))
		return math.MaxInt64
	}
	s.reset(wall, ns)
	return int64(ns)
}

// reset sets the reset to ns nanoseconds after wall.
func (s *Status) reset(wall int64, ns uint64) {
	s.ResetAt, s.ResetIn = ceilSeconds(wall+int64(ns)), ceilSeconds(int64(ns))
}

// never sets the reset to the time that stands for never, and returns the nanoseconds until then.
func (s *Status) never(wall int64) (wait int64) {
	s.ResetAt, s.ResetIn = math.MaxInt32, max(0, math.MaxInt32-wall/second)
	return math.MaxInt64
}

func (s *Status) resetFar(wall, seconds int64) {
	s.ResetAt, s.ResetIn = ceilSeconds(wall)+seconds, seconds
}

// fillStatus fills the status of a daily count in the state w, with a cap of capacity.
func (w dailyWord) fillStatus(s *Status, capacity uint64, wall, day int64) {
	s.Limit, s.Window = int64(capacity), dayLength/second
	s.Remaining = max(0, s.Limit-w.used())
	s.ResetAt = (day + 1) * (dayLength / second)
	s.ResetIn = ceilSeconds(max(0, (day+1)*dayLength-wall)) // the decision may have ended after the day
}
