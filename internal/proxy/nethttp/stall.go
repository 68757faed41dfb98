package nethttp

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

const stallTime = proxy.StallTimeout

// stall cuts off an exchange's reads from and writes to the client that make no progress
// for stallTime. It costs one timer for each exchange with a body, not one for each read or
// write.
type stall struct {
	reading side
	writing side

	mu      sync.Mutex
	timer   *time.Timer // nil before start
	stopped bool
}

// side is the reads or the writes of an exchange.
type side struct {
	since atomic.Int64 // when the operation in progress began; 0 if there is none
	cut   atomic.Bool  // an operation was cut off, or is about to be
	end   func()       // makes the operation fail
}

// start starts the timer. It may be called more than once.
func (s *stall) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil && !s.stopped {
		s.timer = time.AfterFunc(stallTime, s.due)
	}
}

func (s *stall) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// due cuts off a side that has waited for stallTime, and resets the timer for the side that
// has waited longest.
func (s *stall) due() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	now := time.Now().UnixNano()
	s.timer.Reset(min(s.reading.left(now), s.writing.left(now)))
}

// left returns how long the side may still wait.
func (d *side) left(now int64) time.Duration {
	since := d.since.Load()
	if since == 0 || d.cut.Load() {
		return stallTime
	}
	if left := stallTime - time.Duration(now-since); left > 0 {
		return left
	}
	d.cut.Store(true)
	d.end()
	return stallTime
}

// begin records that an operation begins, and done that it has ended.
func (d *side) begin() { d.since.Store(time.Now().UnixNano()) }

func (d *side) done() { d.since.Store(0) }
