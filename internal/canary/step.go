package canary

import (
	"fmt"
	"iter"
	"math"
	"strconv"
	"time"
)

// Config is what a canary's record says about its judgement (section 8).
type Config struct {
	Next, Other string        // names of the two upstreams, for explanations
	Hold        time.Duration // of a step
	MinRequests uint64        // of each side in a step
	// MoreThan is `errors.more_than` in percentage points. It is also the share of bad requests above which callers are left
	// out. Errors turns the rule on.
	Errors   bool
	MoreThan float64
	P95Ratio float64 // `latency.p95_ratio`; 0 turns the rule off
}

const (
	longestStep  = 24 * time.Hour
	shortestHold = 4 * time.Minute // hold that `latency` needs: two minutes are left out
	slowAllowed  = 5.0             // percent of requests that are slow by definition of p95
	fewCallers   = 5
)

// Warnings returns what to say of a canary with these steps, in percent. callers is how many the routes had in the last hour.
func (c *Config) Warnings(steps []float64, callers int) (warnings []string) {
	for _, s := range steps {
		if of := s / 100 * float64(callers); of < fewCallers {
			all := thousands(uint64(callers)) + " callers"
			if callers == 1 {
				all = "only caller"
			}
			warnings = append(warnings, fmt.Sprintf("the step of %s %% has about %.0f of the %s of the last hour: fewer than %d say little",
				strconv.FormatFloat(s, 'f', -1, 64), of, all, fewCallers))
			break
		}
	}
	if c.P95Ratio > 0 && c.Hold < shortestHold {
		warnings = append(warnings, "hold is below 4m: the canary is never aborted for latency")
	}
	return warnings
}

// LeavesOut reports whether a caller is left out for the hour before, in which bad of its requests were bad: it says more
// about itself than about the canary.
func (c *Config) LeavesOut(requests, bad uint64) bool {
	return c.Errors && requests > 0 && float64(bad)*100 > c.MoreThan*float64(requests)
}

// Side is one of the two upstreams.
type Side int

// The sides.
const (
	Next  Side = iota // the canary
	Other             // the routes' upstream

	sides
)

// The bounds of what a step tells apart. Further callers count together, and the latencies of further minutes count with those
// of an earlier minute.
const (
	maxCallers = 100_000
	maxMinutes = 24 * 60
)

// Step is what was counted since a step began. While the canary is paused, nothing is added and its time stands still. It is
// not safe for concurrent use.
type Step struct {
	Tally
	minutes map[int]sparse // of Next
	room    *Room          // nil bounds nothing
	account string
	taken   int // of room
}

// NewStep returns a step without requests.
func NewStep() *Step { return &Step{minutes: map[int]sparse{}} }

// NewStepIn returns a step of an account without requests, which shares memory with others.
func NewStepIn(r *Room, accountID string) *Step {
	s := NewStep()
	s.room, s.account = r, accountID
	return s
}

// Release gives back the memory of the step, which must not be used any more.
func (s *Step) Release() {
	if s.room != nil {
		s.room.Give(s.account, s.taken)
		s.taken = 0
	}
}

// Add adds what a node has counted for a caller.
func (s *Step) Add(side Side, caller uint64, c Counts) {
	if side == Next && !s.Has(caller) && (s.Callers() >= maxCallers || !s.take(callerBytes)) {
		s.AddRest(side, c)
		return
	}
	s.Tally.Add(side, caller, c)
}

// AddLatencies adds latencies of requests that ended in a minute of the step.
func (s *Step) AddLatencies(side Side, at time.Duration, l *Sketch) {
	s.slow[side].Merge(l)
	if side == Next && l.count > 0 {
		s.addMinute(int(max(0, at)/time.Minute), l.all())
	}
}

// AddTally adds what a node has counted until a time of the step.
func (s *Step) AddTally(at time.Duration, t *Tally) {
	for side, rest := range t.sides {
		s.sides[side].add(rest)
		s.AddLatencies(Side(side), at, &t.slow[side])
	}
	s.tellApart(t.callers)
}

// tellApart adds callers of Next whose requests its side has already.
func (s *Step) tellApart(callers map[uint64]Counts) {
	for caller, c := range callers {
		s.sides[Next].remove(c) // Add adds it again
		s.Add(Next, caller, c)
	}
}

// addMinute adds latencies of Next.
func (s *Step) addMinute(minute int, bins iter.Seq2[int, uint32]) {
	if _, is := s.minutes[minute]; !is && (len(s.minutes) >= maxMinutes || !s.take(minuteBytes)) {
		minute = s.minuteBefore(minute)
	}
	of := s.minutes[minute]
	for bin, n := range bins {
		of = of.add(uint16(bin), n)
	}
	s.minutes[minute] = of
}

// minuteBefore returns the last minute before one, or the first after it, or the minute itself if there are no others.
func (s *Step) minuteBefore(minute int) int {
	before, after := -1, math.MaxInt
	for m := range s.minutes {
		if m < minute {
			before = max(before, m)
		} else {
			after = min(after, m)
		}
	}
	switch {
	case before >= 0:
		return before
	case after < math.MaxInt:
		return after
	}
	return minute
}

// take takes bytes of the room, and reports whether there are any left for the account.
func (s *Step) take(n int) bool {
	if s.room == nil {
		return true
	}
	if !s.room.MayTake(s.account, n) {
		return false
	}
	s.room.Take(s.account, n)
	s.taken += n
	return true
}

// P95 returns the 95th percentile of a side's latencies, and false if there are none.
func (s *Step) P95(side Side) (time.Duration, bool) { return s.slow[side].P95() }

// Action is what is to be done with a canary.
type Action int

// The actions.
const (
	Wait Action = iota
	Advance
	Abort
	Pause
)

// Decision is what follows from a step.
type Decision struct {
	Action Action
	// Reason is errors or latency of Abort, and too_few_requests of Pause.
	Reason string
	// Explanation says it in words, with the figures.
	Explanation string
}

// Decide judges a step at a time since it began.
func (s *Step) Decide(c *Config, age time.Duration) Decision {
	if why := s.errors(c); why != "" {
		return Decision{Abort, "errors", why}
	}
	if why := s.latency(c); why != "" {
		return Decision{Abort, "latency", why}
	}
	next, other := s.sides[Next], s.sides[Other]
	few := next.Requests < c.MinRequests || other.Requests < c.MinRequests
	figures := c.figures(next, other)
	switch {
	case age >= c.Hold && !few:
		return Decision{Advance, "", figures}
	case age >= longestStep:
		return Decision{Pause, "too_few_requests", fmt.Sprintf("%s on %s and %s on %s in 24 h; min_requests is %s", requests(next.Requests), c.Next, thousands(other.Requests), c.Other, thousands(c.MinRequests))}
	case age >= c.Hold:
		return Decision{Wait, "", fmt.Sprintf("%s on %s and %s on %s; waits until both have %s", requests(next.Requests), c.Next, thousands(other.Requests), c.Other, thousands(c.MinRequests))}
	default:
		return Decision{Wait, "", figures}
	}
}

// errors returns why the step is aborted for errors, or "".
func (s *Step) errors(c *Config) string {
	if !c.Errors {
		return ""
	}
	next, other := s.sides[Next], s.sides[Other]
	if more(next, other) <= c.MoreThan { // the bounds are further apart
		return ""
	}
	upper := upperBound(other.Bad, other.Requests, otherError)
	least := 100 * (lowerBound(next.Bad, next.Requests, nextError) - upper)
	if least <= c.MoreThan {
		return ""
	}
	if worst, others := s.worstCaller(); others {
		rest := Counts{next.Requests - worst.Requests, next.Bad - worst.Bad}
		if rest.Requests == 0 || 100*(lowerBound(rest.Bad, rest.Requests, nextError)-upper) <= c.MoreThan {
			return ""
		}
	}
	return fmt.Sprintf("%s: at least %s points more; allowed %.1f", c.figures(next, other), atLeast(least), c.MoreThan)
}

// more returns by how many percentage points more of next than of other were bad.
func more(next, other Counts) float64 { return 100 * (next.rate() - other.rate()) }

func (c Counts) rate() float64 {
	if c.Requests == 0 {
		return 0
	}
	return float64(c.Bad) / float64(c.Requests)
}

// worstCaller returns the caller of Next with most bad requests, and whether there are others.
func (s *Step) worstCaller() (worst Counts, others bool) {
	counted := uint64(0)
	for _, c := range s.callers {
		counted += c.Requests
		if c.Bad > worst.Bad || c.Bad == worst.Bad && c.Requests < worst.Requests {
			worst = c
		}
	}
	return worst, len(s.callers) > 1 || counted < s.sides[Next].Requests
}

// latency returns why the step is aborted for latency, or "". A request is slow if it takes longer than P95Ratio times the
// upper bound of the other side's p95, which more than 5 % must not.
func (s *Step) latency(c *Config) string {
	if c.P95Ratio <= 0 || c.Hold < shortestHold {
		return ""
	}
	p95, is := s.slow[Other].upperP95()
	if !is {
		return ""
	}
	limit := time.Duration(c.P95Ratio * float64(p95))
	all := Counts{s.slow[Next].count, s.slow[Next].slower(limit)}
	if 100*all.rate() <= slowAllowed {
		return ""
	}
	least := 100 * lowerBound(all.Bad, all.Requests, nextError)
	if least <= slowAllowed {
		return ""
	}
	rest := all
	for _, worst := range s.worstMinutes(limit) {
		rest.Requests -= worst.Requests
		rest.Bad -= worst.Bad
	}
	if rest.Requests == 0 || 100*lowerBound(rest.Bad, rest.Requests, nextError) <= slowAllowed {
		return ""
	}
	return fmt.Sprintf("%s of %s on %s took more than %s (%.1f %%), %s times the p95 of %s: at least %s %%; allowed %.1f",
		thousands(all.Bad), thousands(all.Requests), c.Next, limit.Round(time.Millisecond), 100*all.rate(), strconv.FormatFloat(c.P95Ratio, 'f', -1, 64), c.Other, atLeast(least), slowAllowed)
}

// worstMinutes returns the two minutes of Next with most slow requests beyond those that are allowed.
func (s *Step) worstMinutes(limit time.Duration) (worst [2]Counts) {
	excess := func(c Counts) float64 { return float64(c.Bad) - slowAllowed/100*float64(c.Requests) }
	for _, l := range s.minutes {
		switch c := (Counts{l.count(), l.slower(limit)}); {
		case excess(c) > excess(worst[0]):
			worst[0], worst[1] = c, worst[0]
		case excess(c) > excess(worst[1]):
			worst[1] = c
		}
	}
	return worst
}

// figures returns the figures of both sides in words.
func (c *Config) figures(next, other Counts) string {
	return fmt.Sprintf("%s of %s failed on %s (%.1f %%), %s of %s on %s (%.1f %%)",
		thousands(next.Bad), thousands(next.Requests), c.Next, 100*next.rate(), thousands(other.Bad), thousands(other.Requests), c.Other, 100*other.rate())
}

// atLeast formats percent rounded down, since it says at least.
func atLeast(percent float64) string {
	return strconv.FormatFloat(math.Floor(percent*10)/10, 'f', 1, 64)
}

func requests(n uint64) string {
	if n == 1 {
		return "1 request"
	}
	return thousands(n) + " requests"
}

// thousands formats n with commas between groups of three digits.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
