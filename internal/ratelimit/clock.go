package ratelimit

import "time"

// Instant is one reading of both clocks.
type Instant struct {
	Mono int64 // nanoseconds on the monotonic clock since the process's epoch
	Wall int64 // nanoseconds since 1970 on the wall clock; decides the day alone
}

// Clock returns a source of instants whose epoch is the call.
func Clock() func() Instant { return NewWatch().Now }

// Watch reads the clocks of one epoch.
type Watch struct{ epoch time.Time }

// NewWatch returns a Watch whose epoch is the call.
func NewWatch() *Watch { return &Watch{epoch: time.Now()} }

// Now reads both clocks.
func (w *Watch) Now() Instant {
	now := time.Now()
	return Instant{Mono: int64(now.Sub(w.epoch)), Wall: now.UnixNano()}
}

// Mono reads the monotonic clock alone, which costs half as much: nanoseconds
// since the epoch.
func (w *Watch) Mono() int64 { return int64(time.Since(w.epoch)) }

const (
	second    = int64(time.Second)
	dayLength = 24 * int64(time.Hour)
)

// dayOf returns the UTC day of a wall clock reading, in days since 1970.
func dayOf(wall int64) int64 { return wall / dayLength }

// ceilSeconds returns ns, which is not negative, in whole seconds, rounded up.
func ceilSeconds(ns int64) int64 { return int64((uint64(ns) + uint64(second) - 1) / uint64(second)) }
