package proxy

import (
	"sync/atomic"
	"time"
)

// Tick is how often an engine's sweeper reads the clock and looks for connections and exchanges that have
// exceeded their time.
const Tick = 200 * time.Millisecond

// timeFormat is the format of the Date field (RFC 9110, 5.6.7).
const timeFormat = "Mon, 02 Jan 2006 15:04:05 GMT"

// Clock is the time since an engine was made, in milliseconds, read once in each tick so that
// requests do not read it. Start and Tick belong to one goroutine at a time.
type Clock struct {
	started time.Time
	ms      atomic.Int64
	date    atomic.Pointer[[]byte]
	second  int64 // the second of date
}

// Start starts the clock at now.
func (c *Clock) Start(now time.Time) {
	c.started = now
	c.Tick(now)
}

// Tick sets the clock to now.
func (c *Clock) Tick(now time.Time) {
	c.ms.Store(max(1, now.Sub(c.started).Milliseconds()))
	if second := now.Unix(); second != c.second || c.date.Load() == nil {
		c.second = second
		date := now.UTC().AppendFormat(nil, timeFormat)
		c.date.Store(&date)
	}
}

// Now returns the time of the last tick, at least 1.
func (c *Clock) Now() int64 { return c.ms.Load() }

// Set sets the time, for tests.
func (c *Clock) Set(ms int64) { c.ms.Store(ms) }

// In returns the time d from now. It may be up to a tick late, but is never early.
func (c *Clock) In(d time.Duration) int64 { return c.Now() + (d + Tick).Milliseconds() }

// At returns t as a time of the clock, at least 1.
func (c *Clock) At(t time.Time) int64 { return max(1, t.Sub(c.started).Milliseconds()) }

// Mono returns the exact time since Start, in nanoseconds.
func (c *Clock) Mono() int64 { return int64(time.Since(c.started)) }

// Date returns the value of the field Date. It must not be changed.
func (c *Clock) Date() []byte { return *c.date.Load() }
