package ratelimit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

func startLedger(t *testing.T, store DailyStore) *Reserver {
	t.Helper()
	l, err := NewReserver(ReserverConfig{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return l
}

// ask decides as the data plane does, with now as the clock.
func ask(ctx context.Context, l *Reserver, find func() *Daily) (Result, Status, error) {
	for {
		limits := []Limit{{Scope: DailyScope, Daily: find()}}
		var s [1]Status
		switch r, _ := Decide(Instant{Wall: time.Now().UnixNano()}, limits, s[:]); r {
		case NeedsReservation:
			if err := l.Wait(ctx, limits[0].Daily); err != nil {
				return r, s[0], err
			}
		case Stale:
		default:
			return r, s[0], nil
		}
	}
}

// TestDailyCapUnderConcurrency holds the guarantee that exactly the cap passes when many
// ask at once, for all callers together and for each key, and that the store is never behind.
func TestDailyCapUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no midnight comes
		store := newMemoryStore()
		l := startLedger(t, store)
		const limit, keys = 500, 3
		l.Daily("rt_1", perDay(limit))
		var passed [keys + 1]atomic.Int64
		var wg sync.WaitGroup
		for w := range 12 {
			key := w % (keys + 1)
			find := func() *Daily { return l.Daily("rt_1", perDay(limit)) }
			if key > 0 {
				find = func() *Daily { return l.Dailies("rt_1", perDay(limit)).Daily(testKey(key)) }
			}
			wg.Go(func() {
				for {
					r, _, err := ask(t.Context(), l, find)
					if err != nil {
						t.Errorf("wait: %v", err)
						return
					}
					if r == Refused {
						return
					}
					passed[key].Add(1)
				}
			})
		}
		wg.Wait()
		for key := range passed {
			if got := passed[key].Load(); got != limit {
				t.Errorf("%d passed a cap of %d", got, limit)
			}
		}
		if got := store.used("rt_1", dayOf(time.Now().UnixNano())); got != limit {
			t.Errorf("the store counts %d", got)
		}
	})
}

// TestLateRefusalGivesBackDailyCount holds the guarantee that a request that another limit
// refuses at the last moment does not count for the day.
func TestLateRefusalGivesBackDailyCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no midnight comes
		l := startLedger(t, newMemoryStore())
		d := l.Daily("rt_1", perDay(MaxCount))
		if err := l.Wait(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		const narrow = 2000
		p := compile(perDay(1), narrow)
		global := new(Bucket)
		now := Instant{Wall: time.Now().UnixNano()}
		var passed atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				limits := []Limit{{Scope: DailyScope, Daily: d}, {Scope: GlobalScope, Params: &p, Bucket: global}}
				var s [2]Status
				for range narrow {
					if r, _ := Decide(now, limits, s[:]); r == Admitted {
						passed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if used := d.load().used(); passed.Load() != narrow || used != narrow {
			t.Fatalf("%d passed and %d count, want %d", passed.Load(), used, narrow)
		}
	})
}

// TestDailyCapOverTime holds the guarantees of a running ledger: the cap counts for a UTC day, the
// next one begins at midnight with a full count, and idle counts of keys go without
// being forgotten.
func TestDailyCapOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryStore()
		l := startLedger(t, store)
		shared := func() *Daily { return l.Daily("rt_1", perDay(3)) }
		keyed := func() *Daily { return l.Dailies("rt_2", perDay(1000)).Daily(testKey(1)) }
		day := dayOf(time.Now().UnixNano())
		for i := range 4 {
			r, s, err := ask(t.Context(), l, shared)
			if err != nil || (r == Refused) != (i == 3) {
				t.Fatalf("request %d: %v, %v", i, r, err)
			}
			if midnight := (day + 1) * 86400; s.ResetAt != midnight || s.Window != 86400 || s.ResetIn != midnight-time.Now().Unix() {
				t.Fatalf("figures %+v", s)
			}
		}
		if _, _, err := ask(t.Context(), l, keyed); err != nil {
			t.Fatal(err)
		}
		first := keyed()

		<-time.After(5 * sweepEvery) // the fake clock of the bubble
		synctest.Wait()
		if second := keyed(); second == first {
			t.Error("an idle count was not dropped")
		} else if used := second.load().used(); used != 1 {
			t.Errorf("it came back with %d used", used)
		}
		if r, _, _ := ask(t.Context(), l, shared); r != Refused {
			t.Errorf("the cap opened before midnight: %v", r)
		}

		<-time.After(time.Duration(dayLength - time.Now().UnixNano()%dayLength))
		synctest.Wait()
		var s [1]Status
		if r, _ := Decide(Instant{Wall: time.Now().UnixNano()}, []Limit{{Daily: shared()}}, s[:]); r != Admitted {
			t.Errorf("the first request of the day is %v: it was not reserved ahead", r)
		}
		if r, s, err := ask(t.Context(), l, keyed); r != Admitted || s.Remaining != 999 || err != nil {
			t.Errorf("the day began with %v, %+v, %v", r, s, err)
		}
	})
}

// TestRestartKeepsDailyCount holds the guarantee that a restart keeps the count to
// the request, also of a limit that is registered after the start.
func TestRestartKeepsDailyCount(t *testing.T) {
	store := newMemoryStore()
	for start := range 3 {
		l, err := NewReserver(ReserverConfig{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		find := func() *Daily { return l.Daily("rt_1", perDay(100_000)) }
		if start == 1 {
			find()
		}
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if r, _, err := ask(t.Context(), l, find); r != Admitted || err != nil {
				t.Fatalf("%v, %v", r, err)
			}
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := store.used("rt_1", dayOf(time.Now().UnixNano())), int64(start+1)*10; got != want {
			t.Fatalf("the store counts %d, want %d", got, want)
		}
		if _, _, err := ask(t.Context(), l, find); fault.CodeOf(err) != fault.Unavailable {
			t.Fatalf("a stopped ledger answers %v", err)
		}
	}
}

// TestWaitTellsWhyNot holds the guarantee that a request neither hangs nor passes when the
// store does not answer, and passes once it does.
func TestWaitTellsWhyNot(t *testing.T) {
	store := newMemoryStore()
	l := startLedger(t, store)
	find := func() *Daily { return l.Daily("rt_1", perDay(10)) }
	setFail := func(fail bool) {
		store.mu.Lock()
		defer store.mu.Unlock()
		store.fail = fail
	}
	setFail(true)
	if _, _, err := ask(t.Context(), l, find); fault.CodeOf(err) != fault.Unavailable || !errors.Is(err, errStore) {
		t.Fatalf("a failing store gives %v", err)
	}
	setFail(false)
	if r, _, err := ask(t.Context(), l, find); r != Admitted || err != nil {
		t.Fatalf("%v, %v", r, err)
	}

	blocked, cancel := context.WithCancel(t.Context())
	cancel()
	other := l.Daily("rt_2", perDay(10))
	store.mu.Lock()
	err := l.Wait(blocked, other)
	store.mu.Unlock()
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("a request that has left gets %v", err)
	}
}

// TestOneSaveForAllThatWait holds the guarantee of group commit: what asks while the store is
// busy is saved together.
func TestOneSaveForAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryStore()
		l := startLedger(t, store)
		release := make(chan struct{})
		var sizes []int
		store.onSave = func(counts []DailyCount) {
			sizes = append(sizes, len(counts))
			<-release
		}
		for i := range 21 {
			d := l.Dailies("rt_1", perDay(1)).Daily(testKey(i))
			go func() {
				if err := l.Wait(t.Context(), d); err != nil {
					t.Errorf("wait: %v", err)
				}
			}()
			if i == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		if len(sizes) != 2 || sizes[0] != 1 || sizes[1] != 20 {
			t.Errorf("saved in calls of %v, want 1 and 20", sizes)
		}
	})
}

// TestStartNeedsTheStore holds the guarantee that a server does not start without its counts.
func TestStartNeedsTheStore(t *testing.T) {
	if _, err := NewReserver(ReserverConfig{}); err == nil {
		t.Error("a ledger without a store was made")
	}
	store := newMemoryStore()
	store.fail = true
	l, err := NewReserver(ReserverConfig{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	l.Daily("rt_1", perDay(1))
	if err := l.Start(t.Context()); !errors.Is(err, errStore) {
		t.Fatalf("start: %v", err)
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Fatalf("stop: %v", err)
	}
}
