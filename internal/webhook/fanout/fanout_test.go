package fanout_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/webhook/fanout"
)

// store has a number of rows to write for each account, in the order of their names.
type store struct {
	mu    sync.Mutex
	left  map[string]int
	turns string // the accounts of the transactions
	err   error
	calls int
}

func (s *store) FanOut(_ context.Context, after string, _ time.Time, limit int) (string, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.err != nil {
		return "", 0, s.err
	}
	for _, name := range []string{"a", "b", "c"} {
		if n := min(s.left[name], limit); name > after && n > 0 {
			s.left[name] -= n
			s.turns += name
			return name, n, nil
		}
	}
	return "", 0, nil
}

func (s *store) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func start(t *testing.T, s *store, wake func()) *fanout.Service {
	t.Helper()
	f, err := fanout.New(fanout.Config{Store: s, Wake: wake})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// Guarantee: accounts take turns, so that an account with many events does not delay another.
func TestAccountsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{left: map[string]int{"a": 700, "b": 1, "c": 300}}
		woken := 0
		f := start(t, s, func() { woken++ })
		synctest.Wait()
		if err := f.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := "abcacaa"; s.turns != want {
			t.Errorf("got the turns %s, want %s", s.turns, want)
		}
		if woken != len(s.turns) {
			t.Errorf("the sender was woken %d times, want once for each transaction", woken)
		}
	})
}

// Guarantee: an event is fanned out at once when Wake is called, and within Poll if another process raised it.
// Without events the store is queried once in each Poll.
func TestWakeAndPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{left: map[string]int{}}
		f := start(t, s, nil)
		synctest.Wait()
		s.set(func() { s.left["a"] = 1 })
		f.Wake()
		synctest.Wait()
		s.set(func() {
			if s.left["a"] != 0 {
				t.Error("an event waits after Wake")
			}
			s.left["b"] = 1
			s.calls = 0
		})
		<-time.After(fanout.DefaultPoll) // on the bubble's clock
		synctest.Wait()
		s.set(func() {
			if s.left["b"] != 0 {
				t.Error("an event of another process waits after the poll")
			}
			s.calls = 0
		})
		<-time.After(10 * fanout.DefaultPoll) // on the bubble's clock
		synctest.Wait()
		s.set(func() {
			if s.calls > 11 {
				t.Errorf("an idle service asked the store %d times in 10 polls", s.calls)
			}
		})
		if err := f.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Guarantee: a store that fails is tried again a second later.
func TestStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{left: map[string]int{"a": 500}, err: errors.New("away")}
		f := start(t, s, nil)
		<-time.After(10 * time.Second) // on the bubble's clock
		s.set(func() {
			if s.calls > 11 {
				t.Errorf("a store that fails was called %d times in 10 s", s.calls)
			}
			s.err = nil
		})
		<-time.After(time.Second) // on the bubble's clock
		synctest.Wait()
		if err := f.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.left["a"] != 0 {
			t.Errorf("%d rows are left", s.left["a"])
		}
	})
}
