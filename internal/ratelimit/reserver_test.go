package ratelimit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

func startReserver(t *testing.T, store DailyStore) *Reserver {
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

// ask decides as the data plane does: it waits and retries where necessary.
func ask(ctx context.Context, l *Reserver, find func() *Daily) (Result, Status, error) {
	for {
		limits := []Limit{{Scope: DailyScope, Daily: find()}}
		var s [1]Status
		switch r, _ := decide(Instant{Wall: time.Now().UnixNano()}, limits, s[:]); r {
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

// Guarantee: exactly the cap passes when many callers decide at once, with one count for all
// callers and with one count for each key. The store's count is never too low.
func TestDailyCapUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a fixed clock, so that midnight does not pass
		store := newMemoryStore()
		l := startReserver(t, store)
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
				t.Errorf("%d requests passed, want the cap, %d", got, limit)
			}
		}
		if got := store.used("rt_1", dayOf(time.Now().UnixNano())); got != limit {
			t.Errorf("the store's count is %d, want %d", got, limit)
		}
	})
}

// Guarantee: a request that another limit refuses at the last moment does not count for the
// day.
func TestLateRefusalRefundsDailyCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a fixed clock, so that midnight does not pass
		l := startReserver(t, newMemoryStore())
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
					if r, _ := decide(now, limits, s[:]); r == Admitted {
						passed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if used := d.load().used(); passed.Load() != narrow || used != narrow {
			t.Fatalf("%d requests passed and the daily count is %d, want %d for both", passed.Load(), used, narrow)
		}
	})
}

// Guarantee: with a running Reserver, the cap holds for a UTC day, the next day begins at
// midnight with a full cap, and idle counts of keys are dropped without being lost.
func TestDailyCapOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryStore()
		l := startReserver(t, store)
		shared := func() *Daily { return l.Daily("rt_1", perDay(3)) }
		keyed := func() *Daily { return l.Dailies("rt_2", perDay(1000)).Daily(testKey(1)) }
		day := dayOf(time.Now().UnixNano())
		for i := range 4 {
			r, s, err := ask(t.Context(), l, shared)
			want := Admitted
			if i == 3 {
				want = Refused
			}
			if err != nil || r != want {
				t.Fatalf("request %d: got %v, %v, want %v", i, r, err, want)
			}
			if midnight := (day + 1) * 86400; s.ResetAt != midnight || s.Window != 86400 || s.ResetIn != midnight-time.Now().Unix() {
				t.Fatalf("got %+v, want a window of a day and a reset at midnight", s)
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
			t.Errorf("the dropped count returned with %d used, want 1", used)
		}
		if r, _, _ := ask(t.Context(), l, shared); r != Refused {
			t.Errorf("before midnight: got %v, want Refused", r)
		}

		<-time.After(time.Duration(dayLength - time.Now().UnixNano()%dayLength))
		synctest.Wait()
		if used := store.used("rt_1", day+1); used != 0 {
			t.Errorf("%d requests of the new day are reserved that nobody has sent", used)
		}
		if r, _, err := ask(t.Context(), l, shared); r != Admitted || err != nil {
			t.Errorf("first request of the day: got %v, %v, want Admitted", r, err)
		}
		if r, s, err := ask(t.Context(), l, keyed); r != Admitted || s.Remaining != 999 || err != nil {
			t.Errorf("first request of the key's day: got %v, %+v, %v, want Admitted with 999 left", r, s, err)
		}
	})
}

// Guarantee: a restart keeps the exact count, also of a limit that is registered after
// Start.
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
				t.Fatalf("got %v, %v, want Admitted", r, err)
			}
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := store.used("rt_1", dayOf(time.Now().UnixNano())), int64(start+1)*10; got != want {
			t.Fatalf("the store's count is %d, want %d", got, want)
		}
		if _, _, err := ask(t.Context(), l, find); fault.CodeOf(err) != fault.Unavailable {
			t.Fatalf("after Stop: got error %v, want code unavailable", err)
		}
	}
}

// Guarantee: while the store fails, a request neither hangs nor passes; it passes once the
// store works again.
func TestWaitReturnsStoreError(t *testing.T) { synctest.Test(t, testWaitReturnsStoreError) }

func testWaitReturnsStoreError(t *testing.T) {
	store := newMemoryStore()
	l := startReserver(t, store)
	find := func() *Daily { return l.Daily("rt_1", perDay(10)) }
	setFail := func(fail bool) {
		store.mu.Lock()
		defer store.mu.Unlock()
		store.fail = fail
	}
	setFail(true)
	if _, _, err := ask(t.Context(), l, find); fault.CodeOf(err) != fault.Unavailable || !errors.Is(err, errStore) {
		t.Fatalf("failing store: got error %v, want code unavailable and the store's error", err)
	}
	setFail(false)
	<-time.After(retryAfter + time.Millisecond)
	if r, _, err := ask(t.Context(), l, find); r != Admitted || err != nil {
		t.Fatalf("got %v, %v, want Admitted", r, err)
	}

	blocked, cancel := context.WithCancel(t.Context())
	cancel()
	other := l.Daily("rt_2", perDay(10))
	store.mu.Lock()
	err := l.Wait(blocked, other)
	store.mu.Unlock()
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("canceled request: got error %v, want context.Canceled", err)
	}
}

// Guarantee: while the store fails, it is tried once a second and a line is logged, however many
// requests ask, and no request waits for that.
func TestFailingStoreIsTriedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := newMemoryStore()
		l, err := NewReserver(ReserverConfig{Store: store, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		d := l.Daily("rt_1", perDay(1000))
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.mu.Lock()
		store.fail, store.saves = true, 0
		store.mu.Unlock()
		began, waited := time.Now(), time.Duration(0)
		for time.Since(began) < 10*time.Second {
			asked := time.Now()
			if err := l.Wait(t.Context(), d); fault.CodeOf(err) != fault.Unavailable {
				t.Fatalf("got the error %v, want unavailable", err)
			}
			waited = max(waited, time.Since(asked))
			<-time.After(time.Millisecond)
		}
		store.mu.Lock()
		tries := store.saves
		store.fail = false
		store.mu.Unlock()
		<-time.After(retryAfter)
		synctest.Wait()
		if err := l.Wait(t.Context(), d); err != nil {
			t.Errorf("a second after the store works again got the error %v, want none", err)
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(log.String(), "level=ERROR"); tries < 9 || tries > 11 || lines != tries || waited != 0 {
			t.Errorf("in 10 s the store was tried %d times, %d lines were logged, and a request waited %v; want about 10, as many, and none", tries, lines, waited)
		}
	})
}

// Guarantee: a request waits a second at most for a store that does not answer.
func TestWaitForAHangingStoreIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryStore()
		l := startReserver(t, store)
		release := make(chan struct{})
		store.onSave = func([]DailyClaim) { <-release }
		began := time.Now()
		if err := l.Wait(t.Context(), l.Daily("rt_1", perDay(5))); fault.CodeOf(err) != fault.Unavailable || time.Since(began) != time.Second {
			t.Errorf("after %v: got %v, want unavailable after 1 s", time.Since(began), err)
		}
		close(release)
		synctest.Wait()
		if _, s, err := ask(t.Context(), l, func() *Daily { return l.Daily("rt_1", perDay(5)) }); err != nil || s.Remaining != 4 {
			t.Errorf("once the store answers: %d left, error %v, want 4 and none", s.Remaining, err)
		}
	})
}

// Guarantee: group commit: caps that ask for a range while the store is busy are saved
// together.
func TestOneSaveForAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryStore()
		l := startReserver(t, store)
		release := make(chan struct{})
		var sizes []int
		store.onSave = func(claims []DailyClaim) {
			sizes = append(sizes, len(claims))
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

// Guarantee: however many keys have used a cap, no call of the store has more than 500 counts: while the cap is used,
// lowered and dropped, while counts that lie idle are given back, at midnight and at the end.
func TestCallsOfTheStoreAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 1700
		store := newMemoryStore()
		var mu sync.Mutex
		what, most, claims := "", 0, 0
		store.onSave = func(list []DailyClaim) {
			mu.Lock()
			defer mu.Unlock()
			most, claims = max(most, len(list)), claims+len(list)
		}
		check := func(want int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if most > 500 || claims < want {
				t.Errorf("%s: %d counts were saved, up to %d in a call; want %d or more, up to 500", what, claims, most, want)
			}
			most, claims = 0, 0
		}
		l := startReserver(t, store)
		use := func(limitID string, capacity int64) {
			var wg sync.WaitGroup
			for i := range keys {
				wg.Go(func() {
					r, _, err := ask(t.Context(), l, func() *Daily { return l.Dailies(limitID, perDay(capacity)).Daily(testKey(i)) })
					if r != Admitted || err != nil {
						t.Errorf("%s: %v, error %v", what, r, err)
					}
				})
			}
			wg.Wait()
		}
		what = "the first requests of all keys at once"
		use("rt_1", 100_000)
		check(keys)
		what = "a lower cap"
		l.Dailies("rt_1", perDay(1000))
		synctest.Wait()
		check(keys)
		what = "a dropped cap"
		l.Drop("rt_1")
		synctest.Wait()
		check(keys)
		what = "idle counts"
		use("rt_2", 100_000)
		check(keys)
		<-time.After(3 * sweepEvery)
		synctest.Wait()
		check(keys)
		what = "midnight"
		<-time.After(time.Duration(dayLength-time.Now().UnixNano()%dayLength) - time.Second)
		use("rt_3", 100_000)
		check(keys)
		<-time.After(2 * time.Second)
		synctest.Wait()
		check(keys)
		what = "the end"
		use("rt_4", 100_000)
		check(keys)
		if err := l.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		check(keys)
	})
}

// Guarantee: while the counts of many keys are saved, because their cap was lowered, dropped, or lies idle, a request
// that waits for another cap is served after one call of the store. So is a request with one of these keys, with an
// exact count.
func TestManyCountsDelayNoRequest(t *testing.T) {
	for name, test := range map[string]struct {
		change func(l *Reserver)
		left   int64 // requests left of the cap of a key that was used once; -1: the cap is removed
	}{
		"lowered": {func(l *Reserver) { l.Dailies("rt_1", perDay(1000)) }, 998},
		"dropped": {func(l *Reserver) { l.Drop("rt_1") }, -1},
		"idle":    {func(*Reserver) { <-time.After(2*sweepEvery + time.Second) }, 99_998},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newMemoryStore()
				next := make(chan struct{}) // from the first large call of the store on, each waits for one value
				var watched, held atomic.Bool
				store.onSave = func(claims []DailyClaim) {
					if held.Load() || watched.Load() && len(claims) == claimsAtOnce {
						held.Store(true)
						<-next
					}
				}
				l := startReserver(t, store)
				const keys = 3000
				daily := func(capacity int64, i int) *Daily { return l.Dailies("rt_1", perDay(capacity)).Daily(testKey(i)) }
				for i := range keys {
					if r, _, err := ask(t.Context(), l, func() *Daily { return daily(100_000, i) }); r != Admitted || err != nil {
						t.Fatal(r, err)
					}
				}
				other := func() *Daily { return l.Daily("rt_other", perDay(5)) }
				if _, _, err := ask(t.Context(), l, other); err != nil {
					t.Fatal(err)
				}
				watched.Store(true)
				test.change(l)
				synctest.Wait()
				if !held.Load() {
					t.Fatal("nothing is being saved")
				}
				answers := make(chan int64, 2)
				go func() {
					_, s, err := ask(t.Context(), l, other)
					if err != nil {
						t.Error(err)
					}
					answers <- s.Remaining
				}()
				synctest.Wait()
				next <- struct{}{} // the piece that is being saved
				synctest.Wait()
				next <- struct{}{} // the request
				synctest.Wait()
				select {
				case left := <-answers:
					if left != 3 {
						t.Errorf("%d left, want 3", left)
					}
				default:
					t.Error("the request was not served after two calls of the store")
				}
				if test.left >= 0 {
					for i := 0; i < keys; i += 100 {
						go func() { // some of the counts are saved already, others are not
							capacity := l.limits[limitKey{"rt_1", true}].capacity.Load()
							r, s, err := ask(t.Context(), l, func() *Daily { return daily(capacity, i) })
							if r != Admitted || err != nil || s.Remaining != test.left {
								t.Errorf("key %d: %v, %d left, error %v; want %d left", i, r, s.Remaining, err, test.left)
							}
						}()
					}
				}
				close(next)
				synctest.Wait()
				if err := l.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				for c, used := range store.counts {
					if c.LimitID == "rt_1" && used != 1 && used != 2 {
						t.Fatalf("the count of a key is %d", used)
					}
				}
			})
		})
	}
}

// Guarantee: a new cap reads its own counts of the day, and not the counts of all other caps.
func TestNewCapReadsItsOwnCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryStore()
		day := dayOf(time.Now().UnixNano())
		for i := range 100 {
			store.counts[DailyCount{LimitID: "rt_others", KeyID: id.Format(id.Key, testKey(i)), Day: day}] = 5
		}
		store.counts[DailyCount{LimitID: "rt_1", Day: day}] = 2
		l := startReserver(t, store)
		if _, s, err := ask(t.Context(), l, func() *Daily { return l.Daily("rt_1", perDay(5)) }); err != nil || s.Remaining != 2 {
			t.Errorf("%d left, error %v; want 2", s.Remaining, err)
		}
		synctest.Wait()
		if store.loaded != 1 {
			t.Errorf("%d counts were read for a cap that has one", store.loaded)
		}
	})
}

// Guarantee: if a call of the store fails, ranges that earlier calls have saved are not reserved again.
func TestFailureInTheMiddleOfARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryStore()
		const keys, limit = 1100, 3
		calls := 0
		store.onSave = func(list []DailyClaim) {
			if len(list) > 1 {
				calls++
			}
			store.mu.Lock()
			store.fail = calls == 2
			store.mu.Unlock()
		}
		l := startReserver(t, store)
		daily := func(i int) *Daily { return l.Dailies("rt_1", perDay(limit)).Daily(testKey(i)) }
		passed := make([]int, keys)
		for range limit + 2 {
			var wg sync.WaitGroup
			for i := range keys {
				wg.Go(func() {
					if r, _, err := ask(t.Context(), l, func() *Daily { return daily(i) }); r == Admitted && err == nil {
						passed[i]++
					}
				})
			}
			wg.Wait()
			<-time.After(2 * retryAfter)
		}
		for i, n := range passed {
			if n != limit {
				t.Fatalf("key %d: %d requests passed a cap of %d", i, n, limit)
			}
		}
		for c, used := range store.counts {
			if c.LimitID == "rt_1" && used > limit {
				t.Fatalf("the count of %s is %d, beyond the cap of %d", c.KeyID, used, limit)
			}
		}
	})
}

// Guarantee: a server does not start without its daily counts.
func TestStartNeedsTheStore(t *testing.T) {
	if _, err := NewReserver(ReserverConfig{}); err == nil {
		t.Error("NewReserver without a store succeeded, want an error")
	}
	store := newMemoryStore()
	store.fail = true
	l, err := NewReserver(ReserverConfig{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	l.Daily("rt_1", perDay(1))
	if err := l.Start(t.Context()); !errors.Is(err, errStore) {
		t.Fatalf("Start: got %v, want the store's error", err)
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Fatalf("Stop: %v", err)
	}
}
