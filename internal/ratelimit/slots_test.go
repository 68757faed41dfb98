package ratelimit

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: plans.md, section 6: at most as many requests as the limit says are in flight, whatever other limits refuse and
// however requests end, and each gives its slot back once.
func TestSlotsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLimiter(func() int64 { return 0 })
		wide, narrow := compile(Rate{Count: 1000, Per: time.Hour}, 1000), compile(Rate{Count: 6, Per: time.Hour}, 6)
		var key, route Slots
		bucket, meter := new(Bucket), new(Bucket)
		most := [2]int64{rapid.Int64Range(1, 4).Draw(t, "most of the key"), rapid.Int64Range(1, 4).Draw(t, "most of the route")}
		var flying []*Charge
		tokens := CompileMeter(Config{Sustained: Rate{Count: 1_000_000, Per: time.Hour}})
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) { most[0] = rapid.Int64Range(1, 4).Draw(t, "most") },
			"begin": func(t *rapid.T) {
				c := new(Charge)
				c.Add(Limit{Scope: GlobalScope, Params: &wide, Bucket: bucket}, 1)
				c.Add(Limit{Scope: KeyConcurrencyScope, Slots: &key, Most: most[0]}, 1)
				c.Add(Limit{Scope: RouteConcurrencyScope, Slots: &route, Most: most[1]}, 1)
				if rapid.Bool().Draw(t, "metered") {
					c.AddUse(Limit{Scope: PlanScope, Label: NewLabel("a", "b", "tokens"), Params: &tokens, Bucket: meter}, UseCost, 1)
				}
				limited := rapid.Bool().Draw(t, "limited")
				if limited {
					c.Add(Limit{Scope: RouteScope, Params: &narrow, Bucket: &Bucket{}}, 1)
				}
				now, want := int64(len(flying)), Admitted
				if now >= most[0] || now >= most[1] {
					want = Refused
				}
				if got := l.Decide(at(0), c); got != want {
					t.Fatalf("with %d in flight under %v: %v, want %v", now, most, got, want)
				}
				if want == Admitted {
					flying = append(flying, c)
					return
				}
				if s := c.Worst(); s.Scope.Reported() != ConcurrencyScope || s.Remaining != 0 || s.RetryAfter != 1 || s.ResetIn != 1 || s.LimitName() == "" {
					t.Fatalf("a refusal says %+v", *s)
				}
			},
			"end": func(t *rapid.T) {
				if len(flying) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(flying)-1).Draw(t, "which")
				c := flying[i]
				flying = append(flying[:i], flying[i+1:]...)
				switch rapid.IntRange(0, 2).Draw(t, "how") {
				case 0:
					l.Settle(c, &Used{UseCost: 7})
				case 1:
					l.Release(c)
				default:
					d := c.Detach()
					l.Settle(c, &Used{})
					if key.word.Load() != uint64(len(flying)+1) {
						t.Fatal("a tunnel that goes on is not in flight any more")
					}
					c = d
				}
				l.Settle(c, &Used{}) // a second end changes nothing
				l.Release(c)
			},
			"": func(t *rapid.T) {
				if k, r := key.word.Load(), route.word.Load(); k != uint64(len(flying)) || r != k {
					t.Fatalf("%d and %d slots are used by %d requests", k, r, len(flying))
				}
			},
		})
	})
}

// Guarantee: with 64 callers at once, under other limits that refuse now and then, and with sweeps and changes of the limit,
// never more requests are in flight than the limit says, each that is refused finds as many in flight as the limit at some
// moment, and all slots are free in the end.
func TestSlotsTogether(t *testing.T) {
	const most, callers = 3, 64
	clock := NewClock()
	l := NewLimiter(clock.Mono)
	set := NewSlotSet(nil, nil, Name{})
	narrow := compile(Rate{Count: 1_000_000, Per: time.Second}, 40)
	bucket := new(Bucket)
	var inFlight, admitted atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range *rounds / callers {
				c := new(Charge)
				for {
					c.Clear()
					c.Add(Limit{Scope: ConcurrencyScope, Slots: set.Slots([16]byte{1}), Most: most}, 1)
					c.Add(Limit{Scope: RouteScope, Params: &narrow, Bucket: bucket}, 1)
					if r := l.Decide(clock.Now(), c); r == Refused {
						break
					} else if r == Stale {
						continue
					}
					admitted.Add(1)
					if n := inFlight.Add(1); n > most {
						t.Errorf("%d requests are in flight under %d", n, most)
					}
					inFlight.Add(-1)
					l.Settle(c, &Used{})
					break
				}
			}
		})
	}
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		for range 1000 {
			set.Sweep()
		}
	}()
	all.Wait()
	<-swept
	if n := set.Slots([16]byte{1}).word.Load(); n != 0 || admitted.Load() == 0 {
		t.Errorf("%d slots are used in the end, and %d requests were admitted", n, admitted.Load())
	}
}

// Guarantee: the slots of subjects count towards the memory of the account, which they give back when they are swept or
// dropped; when there is no room, a subject gets none. Subjects of which requests are in flight stay.
func TestSlotSetIsBounded(t *testing.T) {
	budget := NewBudget(64 << 10)
	account := budget.Of("acc")
	set := NewSlotSet(account, nil, Name{})
	l := NewLimiter(func() int64 { return 0 })
	held := new(Charge)
	held.Add(Limit{Scope: ConcurrencyScope, Slots: set.Slots([16]byte{0xff}), Most: 1}, 1)
	if r := l.Decide(at(0), held); r != Admitted {
		t.Fatal(r)
	}
	created := 0
	for i := range 100_000 {
		if set.Slots([16]byte{byte(i), byte(i >> 8), byte(i >> 16), 1}) == nil {
			break
		}
		created++
	}
	if created == 0 || created == 100_000 || account.used.Load() > 64<<10 {
		t.Errorf("%d subjects have slots, with %d bytes", created, account.used.Load())
	}
	set.Sweep()
	n := 0
	set.EachLevel(ConcurrencyScope, 5, func(subject [16]byte, s Status) {
		if n++; subject != [16]byte{0xff} || s.Limit != 5 || s.Remaining != 4 {
			t.Errorf("%x has %+v", subject, s)
		}
	})
	if used := account.used.Load(); n != 1 || used == 0 || used > 1024 {
		t.Errorf("after a sweep %d subjects are in flight, with %d bytes", n, used)
	}
	set.Drop()
	if used := account.used.Load(); used != 0 {
		t.Errorf("%d bytes after the set was dropped", used)
	}
	late := new(Charge)
	late.Add(Limit{Scope: ConcurrencyScope, Slots: set.Slots([16]byte{2}), Most: 1}, 1)
	if r := l.Decide(at(0), late); r != Stale {
		t.Errorf("a decision with a dropped set: %v, want Stale", r)
	}
	l.Settle(held, &Used{})
}

// Guarantee: over nodes, a decision never takes it for certain that its slot stands, however many are left: the keeper may
// take back any number of them.
func TestSharedSlotsAreScarce(t *testing.T) {
	k, err := NewSlotKeeper(SlotKeeperConfig{Store: noSlots{}})
	if err != nil {
		t.Fatal(err)
	}
	s := NewSlotSet(nil, k, Name{Account: "acc", Kind: id.Route, Owner: [16]byte{1}}).Slots([16]byte{2})
	s.word.Store(uint64(packSlots(1, 250_000, 1)))
	var v view
	if f := s.check(&moment{}, MaxConcurrency, &v); f != passes || !v.isScarce() {
		t.Errorf("finding %v, scarce: %v", f, v.isScarce())
	}
}

// Guarantee: slots of keys with limits of their own have the names that limits of keys have in the store.
func TestNamesOfOwnSlots(t *testing.T) {
	k, err := NewSlotKeeper(SlotKeeperConfig{Store: noSlots{}})
	if err != nil {
		t.Fatal(err)
	}
	key := [16]byte{7}
	s := NewSlotSet(nil, k, Name{Account: "acc", Kind: id.Key}).Slots(key)
	if want := (&Name{Account: "acc", Kind: id.Key, Owner: key}).String(); s.shared.name != want {
		t.Errorf("the name is %q, want %q", s.shared.name, want)
	}
}

// noSlots is a store that is not called.
type noSlots struct{ SlotStore }

// Guarantee: the waits of one request for slots last half a second in all, also if it is decided in between.
func TestWaitsForSlotsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := NewSlotKeeper(SlotKeeperConfig{Store: noSlots{}}) // it never answers, as it is not started
		if err != nil {
			t.Fatal(err)
		}
		set := NewSlotSet(nil, k, Name{Account: "acc", Kind: id.Route, Owner: [16]byte{1}})
		l, c, began := NewLimiter(func() int64 { return 0 }), new(Charge), time.Now()
		for i := range 3 {
			c.Clear()
			c.Add(Limit{Scope: ConcurrencyScope, Slots: set.Slots([16]byte{2}), Most: 5}, 1)
			if r := l.Decide(at(0), c); r != NeedsReservation {
				t.Fatal(r)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			err := c.Wait(ctx)
			if late := fault.CodeOf(err) == fault.Unavailable; late != (i == 2) {
				t.Errorf("wait %d: %v", i, err)
			}
			cancel()
		}
		if took := time.Since(began); took != slotWait {
			t.Errorf("it waited %v", took)
		}
	})
}
