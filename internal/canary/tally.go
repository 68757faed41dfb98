package canary

import (
	"maps"
	"time"
)

// Tally is what was counted for a canary. Callers are told apart on the side Next alone: nothing depends on those of Other. The zero
// value is empty. It is not safe for concurrent use.
type Tally struct {
	sides   [sides]Counts
	callers map[uint64]Counts // of Next
	slow    [sides]Sketch
}

// Counts is the requests of one caller or side, and how many were bad: an upstream's 5xx, 502 or 504.
type Counts struct{ Requests, Bad uint64 }

func (c *Counts) add(o Counts) {
	c.Requests += o.Requests
	c.Bad += o.Bad
}

func (c *Counts) remove(o Counts) {
	c.Requests -= o.Requests
	c.Bad -= o.Bad
}

// Add adds requests of a caller. It allocates only for callers that it does not have.
func (t *Tally) Add(side Side, caller uint64, c Counts) {
	t.sides[side].add(c)
	if side == Other {
		return
	}
	if t.callers == nil {
		t.callers = map[uint64]Counts{}
	}
	of := t.callers[caller]
	of.add(c)
	t.callers[caller] = of
}

// AddKnown adds requests of a caller of Next, if it has the caller.
func (t *Tally) AddKnown(caller uint64, c Counts) bool {
	of, is := t.callers[caller]
	if is {
		t.sides[Next].add(c)
		of.add(c)
		t.callers[caller] = of
	}
	return is
}

// AddRest adds requests whose callers are not told apart.
func (t *Tally) AddRest(side Side, c Counts) { t.sides[side].add(c) }

// AddLatency adds the latency of a request.
func (t *Tally) AddLatency(side Side, d time.Duration) { t.slow[side].Add(d) }

// Counts returns the counts of a side.
func (t *Tally) Counts(side Side) Counts { return t.sides[side] }

// Has reports whether a caller of Next is told apart.
func (t *Tally) Has(caller uint64) bool {
	_, is := t.callers[caller]
	return is
}

// Callers returns how many callers of Next are told apart.
func (t *Tally) Callers() int { return len(t.callers) }

// Empty reports whether nothing was counted.
func (t *Tally) Empty() bool { return t.sides == [sides]Counts{} }

// Reset removes everything, and keeps the memory.
func (t *Tally) Reset() {
	clear(t.callers)
	t.sides, t.slow = [sides]Counts{}, [sides]Sketch{}
}

// Equal reports whether both have counted the same.
func (t *Tally) Equal(o *Tally) bool {
	return t.sides == o.sides && maps.Equal(t.callers, o.callers) && t.slow == o.slow
}
