package ratelimit

import (
	"sync/atomic"
	"time"
)

// Instant is one reading of the monotonic and the wall clock.
type Instant struct {
	Mono int64 // nanoseconds on the monotonic clock since the Clock's epoch
	Wall int64 // nanoseconds since 1970 on the wall clock; determines the UTC day and which keys have expired
}

// Clock reads the monotonic and the wall clock. It is safe for concurrent use.
//
// A wall clock that is ahead for some seconds must not end keys or days. So after a step ahead the clock
// goes on by the monotonic clock until the step has lasted for confirmStep; it follows steps back at
// once. After Steer it follows the clock of a database in the same way, and no longer this machine's
// wall clock.
type Clock struct {
	epoch   time.Time
	offset  atomic.Int64 // of the wall clock in use from the monotonic clock, in nanoseconds
	ahead   atomic.Int64 // since when, on the monotonic clock, the machine's wall clock is ahead of the wall clock in use; 0 if it is not ahead
	steered atomic.Bool
}

// NewClock returns a Clock whose epoch is now.
func NewClock() *Clock { return newClockAt(time.Now()) }

func newClockAt(epoch time.Time) *Clock {
	c := &Clock{epoch: epoch}
	c.offset.Store(epoch.UnixNano())
	return c
}

// Now reads both clocks.
func (c *Clock) Now() Instant {
	now := time.Now()
	return c.read(int64(now.Sub(c.epoch)), now.UnixNano())
}

// read returns the reading for wall and mono, which were read from the machine's clocks at the same moment.
func (c *Clock) read(mono, wall int64) Instant {
	holds := mono + c.offset.Load()
	if c.steered.Load() {
		return Instant{Mono: mono, Wall: holds}
	}
	switch lead := wall - holds; {
	case lead > stepFrom:
		since := c.ahead.Load()
		if since == 0 {
			c.ahead.CompareAndSwap(0, max(mono, 1))
			return Instant{Mono: mono, Wall: holds}
		}
		if mono-since < confirmStep {
			return Instant{Mono: mono, Wall: holds}
		}
	case lead > -driftFrom && lead < driftFrom && c.ahead.Load() == 0:
		return Instant{Mono: mono, Wall: wall}
	}
	c.offset.Store(wall - mono)
	c.ahead.Store(0)
	return Instant{Mono: mono, Wall: wall}
}

// Steer makes the wall clock follow another clock, such as the clock of a database that several nodes
// share. That clock has shown now at some time within the last took. However late the response with now
// is, the wall clock moves no further than is certain.
func (c *Clock) Steer(now time.Time, took time.Duration) {
	at := c.Now()
	least := now.UnixNano() - at.Wall // if now was shown just before the call
	most := least + int64(took)
	switch {
	case least > steerFrom:
		c.offset.Store(at.Wall - at.Mono + least)
	case most < -steerFrom:
		c.offset.Store(at.Wall - at.Mono + most)
	case !c.steered.Load():
		c.offset.Store(at.Wall - at.Mono)
	}
	c.steered.Store(true)
}

// WallTime reads the wall clock.
func (c *Clock) WallTime() time.Time { return time.Unix(0, c.Now().Wall) }

const (
	// A step ahead of more than stepFrom counts only when it has lasted for confirmStep.
	stepFrom    = int64(10 * time.Second)
	confirmStep = int64(time.Minute)
	// driftFrom is how far the two clocks of the machine may drift apart before the offset is stored again.
	driftFrom = int64(time.Millisecond)
)

// steerFrom is the difference below which Steer does nothing, in nanoseconds.
const steerFrom = int64(100 * time.Millisecond)

// Mono reads only the monotonic clock, at half the cost of Now: nanoseconds since the
// epoch.
func (c *Clock) Mono() int64 { return int64(time.Since(c.epoch)) }

const (
	second    = int64(time.Second)
	dayLength = 24 * int64(time.Hour)
)

// isRecent reports whether less than within has passed from then to now, two readings of a wall clock. If the clock was
// set back in between, it reports false: nobody knows how much has passed.
func isRecent(then, now, within int64) bool {
	passed := now - then
	return passed >= 0 && passed < within
}

// dayOf returns the UTC day of a reading of the wall clock, in days since 1970.
func dayOf(wall int64) int64 { return wall / dayLength }

// ceilSeconds returns ns, which must not be negative, in seconds, rounded up.
func ceilSeconds(ns int64) int64 { return int64((uint64(ns) + uint64(second) - 1) / uint64(second)) }
