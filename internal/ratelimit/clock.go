package ratelimit

import (
	"sync/atomic"
	"time"
)

// Instant is one reading of the monotonic and the wall clock.
type Instant struct {
	Mono int64 // nanoseconds on the monotonic clock since the Clock's epoch
	Wall int64 // nanoseconds since 1970 on the wall clock; determines the UTC day, nothing else
}

// Clock reads the monotonic and the wall clock. It is safe for concurrent use.
type Clock struct {
	epoch time.Time
	ahead atomic.Int64 // nanoseconds by which the wall clock that is followed is ahead of this machine's
}

// NewClock returns a Clock whose epoch is now.
func NewClock() *Clock { return &Clock{epoch: time.Now()} }

// Now reads both clocks.
func (c *Clock) Now() Instant {
	now := time.Now()
	return Instant{Mono: int64(now.Sub(c.epoch)), Wall: now.UnixNano() + c.ahead.Load()}
}

// Steer makes the wall clock follow another one, such as that of a database that several nodes share,
// which has shown now at some time within the last took. However late the response with now is, the clock
// follows it by no more than is certain.
func (c *Clock) Steer(now time.Time, took time.Duration) {
	least := int64(time.Until(now)) // if now was shown just before the call
	most := least + int64(took)
	switch ahead := c.ahead.Load(); {
	case ahead < least-steerFrom:
		c.ahead.Store(least)
	case ahead > most+steerFrom:
		c.ahead.Store(most)
	}
}

// WallTime reads the wall clock.
func (c *Clock) WallTime() time.Time { return time.Unix(0, c.Now().Wall) }

// steerFrom is the difference below which Steer does nothing, in nanoseconds.
const steerFrom = int64(100 * time.Millisecond)

// Mono reads only the monotonic clock, at half the cost of Now: nanoseconds since the
// epoch.
func (c *Clock) Mono() int64 { return int64(time.Since(c.epoch)) }

const (
	second    = int64(time.Second)
	dayLength = 24 * int64(time.Hour)
)

// dayOf returns the UTC day of a reading of the wall clock, in days since 1970.
func dayOf(wall int64) int64 { return wall / dayLength }

// ceilSeconds returns ns, which must not be negative, in seconds, rounded up.
func ceilSeconds(ns int64) int64 { return int64((uint64(ns) + uint64(second) - 1) / uint64(second)) }
