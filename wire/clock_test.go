package wire

import (
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// manualClock is a clock for an engine that advances only by a millisecond at each reading,
// so that no two readings are equal, and by what advance adds. However slow the machine
// is, no timeout expires unless a test advances the clock.
type manualClock struct {
	mu     sync.Mutex
	now    time.Time
	ticks  int
	ticked chan struct{} // closed at the next tick
}

func newManualClock() *manualClock {
	return &manualClock{now: time.Now(), ticked: make(chan struct{})}
}

// Now returns the time. The engine calls it once in each tick.
func (s *manualClock) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(time.Millisecond)
	s.ticks++
	close(s.ticked)
	s.ticked = make(chan struct{})
	return s.now
}

// advance advances the clock by d. It returns when the engine has swept all connections
// before and after.
func (s *manualClock) advance(t testing.TB, d time.Duration) {
	t.Helper()
	s.wait(t, 2)
	s.mu.Lock()
	s.now = s.now.Add(d)
	s.mu.Unlock()
	s.wait(t, 3)
}

// wait waits for the beginning of n ticks, so that n-1 ticks have completed.
func (s *manualClock) wait(t testing.TB, n int) {
	t.Helper()
	for range n {
		s.mu.Lock()
		ticked := s.ticked
		s.mu.Unlock()
		select {
		case <-ticked:
		case <-time.After(awaittest.Timeout):
			t.Fatal("timed out waiting for the engine to read its clock")
		}
	}
}
