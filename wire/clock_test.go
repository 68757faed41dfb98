package wire

import (
	"sync"
	"testing"
	"time"
)

// stillness is a clock of an engine on which next to nothing passes by itself: a
// millisecond at each tick, so that no time is told twice. However long the
// machine takes, nothing is late; what shall be, pass makes so.
type stillness struct {
	mu     sync.Mutex
	now    time.Time
	ticks  int
	ticked chan struct{} // closed at the next tick
}

func newStillness() *stillness {
	return &stillness{now: time.Now(), ticked: make(chan struct{})}
}

// Now is read once in each tick.
func (s *stillness) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(time.Millisecond)
	s.ticks++
	close(s.ticked)
	s.ticked = make(chan struct{})
	return s.now
}

// pass lets d pass, and returns when the engine has looked at everything, before
// and behind.
func (s *stillness) pass(t testing.TB, d time.Duration) {
	t.Helper()
	s.wait(t, 2)
	s.mu.Lock()
	s.now = s.now.Add(d)
	s.mu.Unlock()
	s.wait(t, 3)
}

// wait waits for n ticks; all but the last of them are over then.
func (s *stillness) wait(t testing.TB, n int) {
	t.Helper()
	for range n {
		s.mu.Lock()
		ticked := s.ticked
		s.mu.Unlock()
		select {
		case <-ticked:
		case <-time.After(patience):
			t.Fatal("the engine's clock stands still")
		}
	}
}
