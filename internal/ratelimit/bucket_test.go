package ratelimit

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// Guarantee: a bucket has 24 bytes: its state, its refunds, and a pointer to a lease.
func TestBucketIsThreeWords(t *testing.T) {
	if size := unsafe.Sizeof(Bucket{}); size != 24 {
		t.Fatalf("a bucket has %d bytes, want 24", size)
	}
}

func perSecond(n int64) Rate { return Rate{Count: n, Per: time.Second} }
func perMinute(n int64) Rate { return Rate{Count: n, Per: time.Minute} }
func perDay(n int64) Rate    { return Rate{Count: n, Per: 24 * time.Hour} }

func at(mono time.Duration) Instant {
	return Instant{Mono: int64(mono), Wall: startWall + int64(mono)}
}

// Guarantee: the largest and least usual limits that a user can write admit exactly their
// capacity at once, and refill in the right time.
func TestFiguresOfExtremes(t *testing.T) {
	for _, c := range []struct {
		name     string
		config   Config
		capacity int64
		window   int64
		next     time.Duration // from empty to the next request, within a millionth
	}{
		{"the greatest rate", Config{Sustained: perSecond(MaxCount)}, MaxCount, 1, 1},
		{"slow with the greatest burst", Config{Sustained: perDay(1), Burst: perSecond(MaxCount)}, MaxCount, 86400 * MaxCount, 24 * time.Hour},
		{"one a day", Config{Sustained: perDay(1)}, 1, 86400, 24 * time.Hour},
		{"seven a second", Config{Sustained: perSecond(7)}, 7, 1, 142857143},
		{"eleven a second", Config{Sustained: perSecond(11)}, 11, 1, 90909091},
		{"a prime a day", Config{Sustained: perDay(999_999_937)}, 999_999_937, 86400, 86401},
		{"a prime a day, small burst", Config{Sustained: perDay(999_999_937), Burst: perSecond(3)}, 3, 1, 86401},
		{"burst alone", Config{Burst: perSecond(50)}, 50, 1, 20 * time.Millisecond},
		{"both", Config{Sustained: perMinute(600), Burst: perSecond(50)}, 50, 5, 100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Compile(c.config)
			if p.Capacity() != c.capacity || p.window != c.window {
				t.Fatalf("capacity %d and window %d, want %d and %d", p.capacity, p.window, c.capacity, c.window)
			}
			bucket := new(Bucket)
			limits := []Limit{{Params: &p, Bucket: bucket}}
			var s [1]Status
			now := at(400 * 24 * time.Hour)
			for n := range min(c.capacity, 100) {
				if r, _ := decide(now, limits, s[:]); r != Admitted || s[0].Remaining != c.capacity-n-1 {
					t.Fatalf("request %d: %v with %d left", n, r, s[0].Remaining)
				}
			}
			// Drain the bucket without 10⁹ calls.
			if rest := c.capacity - 100; rest > 0 {
				bucket.state.Add(uint64(rest) * p.cost)
			}
			r, _ := decide(now, limits, s[:])
			if r != Refused || s[0].RetryAfter < 1 || s[0].ResetAt-startWall/second-int64(400*24*3600) > int64(c.next/time.Second)+2 {
				t.Fatalf("request over capacity: got %v, %+v, want a refusal", r, s[0])
			}
			early, late := c.next-c.next/1_000_000-1, c.next+c.next/1_000_000+2
			if r, _ := decide(at(400*24*time.Hour+early), limits, s[:]); r != Refused && early > 0 {
				t.Fatalf("after %v: admitted, want a refusal", early)
			}
			if r, _ := decide(at(400*24*time.Hour+late), limits, s[:]); r != Admitted {
				t.Fatalf("after %v: refused, want it admitted", late)
			}
		})
	}
}

// Guarantee: decisions work before the epoch, and in a process that runs longer than the
// horizon.
func TestTimesBeyondTheHorizon(t *testing.T) {
	p := CompileRate(perSecond(999_999_937))
	limits := []Limit{{Params: &p, Bucket: new(Bucket)}}
	var s [1]Status
	for _, mono := range []int64{-1, -1 << 63, 0, horizon, horizon + 1, 1<<63 - 1} {
		if r, _ := decide(Instant{Mono: mono, Wall: startWall}, limits, s[:]); r != Admitted {
			t.Fatalf("at %d: got %v, want Admitted", mono, r)
		}
	}
}

// Guarantee: however many callers decide at once, in every window w at most capacity +
// w×rate requests pass.
func TestWindowBoundUnderConcurrency(t *testing.T) {
	const workers, each = 8, 4000
	for _, rate := range []Rate{perSecond(1_000_000), perSecond(999_983)} {
		capacity := int64(50)
		p := compile(rate, capacity)
		bucket := new(Bucket)
		clock := NewClock().Now
		passed := make([][]int64, workers)
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				limits := []Limit{{Params: &p, Bucket: bucket}}
				var s [1]Status
				for range each {
					now := clock()
					if r, _ := decide(now, limits, s[:]); r == Admitted {
						passed[w] = append(passed[w], now.Mono)
					}
				}
			})
		}
		wg.Wait()
		checkAllWindows(t, rate, capacity, merge(passed))
	}
}

// Guarantee: a request is charged to all its limits or to none. With the clock standing
// still, each limit is charged exactly for what passed through it, except for buckets that
// were charged again before a refund: these may lose credit but never gain any.
func TestAllOrNoneUnderConcurrency(t *testing.T) {
	const workers, each = 8, 2000
	narrow, wide := compile(perDay(1), 3000), compile(perDay(1), 1_000_000)
	global := new(Bucket)
	keys := make([]*Bucket, workers)
	passed := make([]atomic.Int64, workers)
	var wg sync.WaitGroup
	for w := range workers {
		keys[w] = new(Bucket)
		wg.Go(func() {
			limits := []Limit{{Scope: KeyScope, Params: &wide, Bucket: keys[w]}, {Scope: GlobalScope, Params: &narrow, Bucket: global}}
			var s [2]Status
			for range each {
				switch r, worst := decide(at(0), limits, s[:]); {
				case r == Admitted:
					passed[w].Add(1)
				case r != Refused || worst != 1 || s[0].Refused || !s[1].Refused:
					t.Errorf("got %v by limit %d with %+v, want Refused by limit 1 alone", r, worst, s)
				}
			}
		})
	}
	wg.Wait()
	total := int64(0)
	for w := range workers {
		total += passed[w].Load()
		if used := int64(wide.used(keys[w].state.Load(), 0) / wide.cost); used != passed[w].Load() {
			t.Errorf("key %d was charged %d, want %d", w, used, passed[w].Load()) // its bucket is not shared
		}
	}
	if total != 3000 {
		t.Errorf("%d requests passed, want the limit, 3000", total)
	}
}

// Guarantee: a refused request changes no limit, and Peek predicts the decision.
func TestRefusalChargesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := [3]Params{compile(perSecond(2), 3), compile(perSecond(1), 1), compile(perMinute(30), 5)}
		var buckets [3]Bucket
		limits := []Limit{
			{Scope: KeyScope, Params: &p[0], Bucket: &buckets[0]},
			{Scope: RouteScope, Params: &p[1], Bucket: &buckets[1]},
			{Scope: GlobalScope, Params: &p[2], Bucket: &buckets[2], Default: true},
		}
		var s, peeked [3]Status
		mono := time.Duration(0)
		for range 50 {
			mono += time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "step"))
			best := peek(at(mono), limits, peeked[:])
			for i := range peeked {
				if peeked[i].Remaining < peeked[best].Remaining {
					t.Fatalf("Peek returned limit %d, but limit %d has fewer requests left", best, i)
				}
			}
			before := [3]uint64{buckets[0].state.Load(), buckets[1].state.Load(), buckets[2].state.Load()}
			r, worst := decide(at(mono), limits, s[:])
			if r == Refused {
				for i := range buckets {
					if buckets[i].state.Load() != before[i] {
						t.Fatalf("a refused request was charged to limit %d", i)
					}
					switch empty := peeked[i].Remaining == 0; {
					case empty && !s[i].Refused:
						t.Fatalf("limit %d is empty, but did not refuse: %+v", i, s[i])
					case !empty && s[i].Refused:
						t.Fatalf("limit %d has %d left, but refused: %+v", i, peeked[i].Remaining, s[i])
					case s[i].Refused && s[i].Remaining != 0:
						t.Fatalf("limit %d refused with %d left, want 0", i, s[i].Remaining)
					}
					if s[i].Refused && s[i].ResetAt > s[worst].ResetAt {
						t.Fatalf("worst is limit %d, but limit %d waits longer", worst, i)
					}
				}
				if !s[worst].Refused || s[worst].RetryAfter < 1 {
					t.Fatalf("worst limit: got %+v, want a refusal", s[worst])
				}
				retry := mono + time.Duration(s[worst].RetryAfter)*time.Second
				if again, _ := decide(at(retry), limits, s[:]); again != Admitted {
					t.Fatalf("after Retry-After: refused, want it admitted")
				}
				mono = retry
				continue
			}
			for i := range s {
				if s[i].Remaining != peeked[i].Remaining-1 {
					t.Fatalf("limit %d: %d left, want %d", i, s[i].Remaining, peeked[i].Remaining-1)
				}
			}
		}
	})
}

// Guarantee: changing a limit keeps the number of requests that were used, up to the new
// capacity (contract, 4.3).
func TestConvertKeepsWhatWasUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		oldRate, newRate := drawRate(t, "old"), drawRate(t, "new")
		oldCap := rapid.Int64Range(1, 1000).Draw(t, "old capacity")
		newCap := rapid.Int64Range(1, 1000).Draw(t, "new capacity")
		from, to := compile(oldRate, oldCap), compile(newRate, newCap)
		bucket := new(Bucket)
		now := at(time.Duration(rapid.Int64Range(0, 1e17).Draw(t, "now")))
		limits := []Limit{{Params: &from, Bucket: bucket}}
		var s [1]Status
		used := rapid.Int64Range(0, oldCap).Draw(t, "used")
		for range used {
			decide(now, limits, s[:])
		}
		next := bucket.Convert(&from, &to, now)
		if from == to {
			if next != bucket {
				t.Fatalf("converting to the same parameters replaced the bucket")
			}
			return
		}
		peek(now, []Limit{{Params: &to, Bucket: next}}, s[:])
		if got, want := s[0].Remaining, max(0, newCap-used); got != want {
			t.Fatalf("%d of %d used: %d of %d are left after the change, want %d", used, oldCap, got, newCap, want)
		}
		if r, _ := decide(now, limits, s[:]); r != Stale {
			t.Fatalf("decision by a closed bucket: got %v, want Stale", r)
		}
	})
}

// Guarantee: changes of a limit during decisions neither lose a charge nor add
// credit.
func TestConvertRace(t *testing.T) {
	const workers, capacity, changes = 4, 20_000, 200
	type limit struct {
		params *Params
		bucket *Bucket
	}
	var current atomic.Pointer[limit]
	first := compile(perDay(1), capacity)
	current.Store(&limit{&first, new(Bucket)})
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var s [1]Status
			for {
				l := current.Load()
				switch r, _ := decide(at(0), []Limit{{Params: l.params, Bucket: l.bucket}}, s[:]); r {
				case Admitted:
					passed.Add(1)
				case Refused:
					return
				}
			}
		})
	}
	wg.Go(func() {
		for i := range changes {
			l := current.Load()
			p := compile(perDay(int64(i%3)+1), capacity) // another refill, the same capacity
			current.Store(&limit{&p, l.bucket.Convert(l.params, &p, at(0))})
		}
	})
	wg.Wait()
	if got := passed.Load(); got != capacity {
		t.Fatalf("%d requests passed, want %d", got, capacity)
	}
}

// Guarantee: neither a decision, admitted or refused, nor appending its header fields
// allocates.
func TestDecideDoesNotAllocate(t *testing.T) {
	p := compile(perSecond(1), 5)
	buckets := NewBuckets(&p, nil)
	global := new(Bucket)
	var c Charge
	var l Limiter
	field := make([]byte, 0, 256)
	allocs := testing.AllocsPerRun(100, func() {
		params, bucket := buckets.Bucket(testKey(1))
		c.Clear()
		c.Add(Limit{Params: params, Bucket: bucket}, 1)
		c.Add(Limit{Scope: GlobalScope, Params: params, Bucket: global}, 1)
		l.Decide(at(0), &c)
		l.Peek(at(0), &c)
		c.AppendLimits(c.AppendPolicy(field))
	})
	if allocs != 0 {
		t.Fatalf("%v allocations, want 0", allocs)
	}
}

func merge(parts [][]int64) []int64 {
	var all []int64
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
