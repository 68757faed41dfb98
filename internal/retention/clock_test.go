package retention

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// memory is a Store in memory.
type memory struct {
	saved State
	fail  bool
}

func (m *memory) LoadRetention(context.Context) (State, error) {
	return State{Readings: append([]Reading(nil), m.saved.Readings...)}, nil
}

func (m *memory) SaveRetention(_ context.Context, s State) error {
	if m.fail {
		return errors.New("the disk is full")
	}
	m.saved = s
	return nil
}

// world is a machine with a true time, a wall clock that may be wrong, and a server that runs on
// it from time to time.
type world struct {
	t      *rapid.T
	now    time.Duration // the true time since the epoch of the test
	wrong  time.Duration // of the wall clock
	ahead  time.Duration // since when the wall clock is ahead
	store  memory
	clock  *Clock
	booted time.Duration // true time of the start of the server
}

func epoch() time.Time { return time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC) }

func (w *world) boot() {
	w.booted = w.now
	var err error
	w.clock, err = New(Config{
		Store: &w.store, Now: func() time.Time { return epoch().Add(w.now + w.wrong) },
		Running: func() time.Duration { return w.now - w.booted },
	})
	if err == nil {
		err = w.clock.load(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// set sets how wrong the wall clock is. Two periods in which it is ahead count as one, unless a
// reading between them was stored.
func (w *world) set(wrong time.Duration) {
	if w.wrong <= 0 && w.clock.Tick(w.t.Context()) == nil {
		w.ahead = w.now
	}
	w.wrong = wrong
}

// pass lets time pass. A period in which the wall clock is ahead ends before it lasts an hour.
func (w *world) pass(d time.Duration) {
	if w.wrong > 0 && w.now+d-w.ahead >= Confirm {
		w.wrong = 0
	}
	w.now += d
}

func (w *world) check() {
	if got, truth := w.clock.Now(), epoch().Add(w.now); got.After(truth) {
		w.t.Fatalf("retention goes by %s, which is %s ahead of the true time", got, got.Sub(truth))
	}
}

// Guarantee: for any sequence of readings, steps of the wall clock, restarts, crashes and times in
// which the server does not run, retention never goes by a time after the true time, as long as the
// wall clock is ahead for less than an hour at a time. And it goes by the true time again after an
// hour with a correct clock.
func TestNeverAheadOfTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t}
		w.boot()
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { w.check() },
			"run": func(t *rapid.T) {
				for range rapid.IntRange(1, 130).Draw(t, "minutes") {
					w.pass(time.Minute)
					_ = w.clock.Tick(t.Context())
					w.check()
				}
			},
			"a moment": func(t *rapid.T) { w.pass(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond) },
			"ahead":    func(t *rapid.T) { w.set(time.Duration(rapid.IntRange(1, 800*24).Draw(t, "hours")) * time.Hour) },
			"behind":   func(t *rapid.T) { w.set(-time.Duration(rapid.IntRange(0, 800*24).Draw(t, "hours")) * time.Hour) },
			"tick":     func(t *rapid.T) { _ = w.clock.Tick(t.Context()) },
			"disk":     func(t *rapid.T) { w.store.fail = rapid.Bool().Draw(t, "full") },
			"restart": func(t *rapid.T) {
				_ = w.clock.Tick(t.Context())
				w.pass(time.Duration(rapid.IntRange(0, 90*24*60).Draw(t, "minutes away")) * time.Minute)
				w.boot()
			},
			"crash": func(t *rapid.T) {
				w.pass(time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes away")) * time.Minute)
				w.boot()
			},
		})
		w.store.fail = false
		w.set(0)
		for range 61 {
			w.pass(time.Minute)
			_ = w.clock.Tick(t.Context())
		}
		if got, truth := w.clock.Now(), epoch().Add(w.now); !got.Equal(truth) {
			t.Fatalf("after an hour with a clock that is right, retention goes by %s, want %s", got, truth)
		}
		if n := len(w.clock.state.Readings); n > 130 {
			t.Fatalf("%d readings are kept", n)
		}
	})
}

// Guarantee: restarts more often than once an hour do not keep retention from going on: the time
// in which the server ran is added up.
func TestShortRunsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t}
		w.boot()
		for range 14 {
			for range 5 {
				w.pass(time.Minute)
				_ = w.clock.Tick(t.Context())
			}
			w.pass(10 * time.Second) // and it crashes
			w.boot()
		}
		if got := w.clock.Now(); got.IsZero() {
			t.Fatal("retention knows no time after 70 minutes")
		}
	})
}

// Guarantee: a started clock takes readings and stores them by itself.
func TestClockRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		c, err := New(Config{Store: store})
		if err == nil {
			err = c.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(59*time.Minute + 30*time.Second)
		if got := c.Now(); !got.IsZero() {
			t.Errorf("before an hour has passed, retention goes by %s, want none", got)
		}
		<-time.After(time.Minute)
		if got := c.Now(); !got.Equal(time.Now()) {
			t.Errorf("after an hour, retention goes by %s, want the clock: %s", got, time.Now())
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(store.saved.Readings); n < 60 {
			t.Errorf("%d readings are stored", n)
		}
	})
}

// Guarantee: after a short stop, expiries count at once. After a start with a clock that is hours ahead of the
// last run, they count when the server has run for a minute.
func TestSettled(t *testing.T) {
	for _, tc := range []struct {
		away, running time.Duration
		want          bool
	}{
		{time.Minute, 0, true}, {59 * time.Minute, 0, true}, {48 * time.Hour, 0, false},
		{48 * time.Hour, 59 * time.Second, false}, {48 * time.Hour, time.Minute, true}, {-48 * time.Hour, 0, true},
	} {
		wall, running := epoch().Add(tc.away), time.Duration(0)
		store := &memory{saved: State{Readings: []Reading{{Run: time.Hour, Wall: epoch().UnixMicro()}}}}
		c, err := New(Config{Store: store, Now: func() time.Time { return wall }, Running: func() time.Duration { return running }})
		if err == nil {
			err = c.load(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if running = tc.running; c.Settled() != tc.want {
			t.Errorf("%v after the last run, and %v after the start: settled %v, want %v", tc.away, tc.running, !tc.want, tc.want)
		}
	}
}
