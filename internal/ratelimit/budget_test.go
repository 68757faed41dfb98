package ratelimit

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// Guarantee: buckets of limits with per: key take no more memory than their budget, an account leaves
// room for others, and a bucket that is in use is neither dropped nor refilled to make room. Buckets
// that are full again, that belong to ended keys or whose limit is not in force any more make room.
func TestBucketsKeepToTheirBudget(t *testing.T) {
	const limit = 1 << 20
	p := compile(perDay(1), 1)
	budget := NewBudget(limit)
	first, second := NewBuckets(&p, budget.Of("first")), NewBuckets(&p, budget.Of("second"))
	fill := func(b *Buckets, from int) (keys int) {
		for i := range limit {
			params, bucket := b.Bucket(testKey(from + i))
			if bucket == nil {
				return i
			}
			var s [1]Status
			if r, _ := decide(at(0), []Limit{{Params: params, Bucket: bucket}}, s[:]); r != Admitted {
				t.Fatalf("key %d: %v", i, r)
			}
		}
		t.Fatal("the budget admits more buckets than it has bytes")
		return 0
	}
	n := fill(first, 0)
	if used := budget.Used(); used < limit/2 || used > limit {
		t.Errorf("an account that is alone: %d bytes of %d", used, limit)
	}
	select {
	case <-budget.Short():
	default:
		t.Error("nothing says that a sweep is due")
	}
	m := fill(second, n)
	if used := budget.Used(); used > limit || m < n/16 {
		t.Errorf("with another account: %d bytes of %d; %d buckets, the first one %d", used, limit, m, n)
	}

	first.Sweep(at(time.Second), nil)
	var s [1]Status
	for i := range n {
		params, bucket := first.Bucket(testKey(i))
		if bucket == nil {
			t.Fatalf("the bucket of key %d was dropped", i)
		}
		if r, _ := decide(at(time.Second), []Limit{{Params: params, Bucket: bucket}}, s[:]); r != Refused {
			t.Fatalf("key %d: %v, and its request of the day is used", i, r)
		}
	}
	if _, bucket := second.Bucket(testKey(n + m)); bucket != nil {
		t.Fatal("there is room for another bucket already")
	}
	ended := map[[16]byte]bool{}
	for i := range 10 {
		ended[testKey(n+i)] = true
	}
	second.Sweep(at(time.Second), ended)
	if _, bucket := second.Bucket(testKey(n + m)); bucket == nil {
		t.Error("the buckets of ended keys made no room for another one")
	}
	second.Drop()
	first.Sweep(at(25*time.Hour), nil)
	if used := budget.Used(); used != 0 {
		t.Errorf("%d bytes in use when all buckets are full again or not in force", used)
	}
	if _, bucket := second.Bucket(testKey(1)); bucket == nil || bucket.state.Load() != closed {
		t.Error("a decision with a limit that is not in force is not made again")
	}
}

// Guarantee: the budget counts about what buckets take of the heap, also those that nodes share.
func TestBudgetCountsTheHeap(t *testing.T) {
	p := compile(perDay(1), 1)
	sharing, err := NewSharing(SharingConfig{Mode: Divided, Now: func() Instant { return at(0) }})
	if err != nil {
		t.Fatal(err)
	}
	for name, sharing := range map[string]*Sharing{"one node": nil, "shared": sharing} {
		const sets, keys = 50, 1000
		budget := NewBudget(1 << 30)
		before := heap()
		all := make([]*Buckets, sets)
		for i := range all {
			all[i] = sharing.NewBuckets(Name{Account: "acct_1"}, &p, budget.Of("acct_1"))
			for k := range keys {
				params, bucket := all[i].Bucket(testKey(k))
				var s [1]Status
				decide(at(0), []Limit{{Params: params, Bucket: bucket}}, s[:])
			}
		}
		took, counted := heap()-before, budget.Used()
		if took > counted*5/4 || took < counted/2 {
			t.Errorf("%s: %d bytes are counted, the heap grew by %d", name, counted, took)
		}
		runtime.KeepAlive(all)
	}
}

// Guarantee: the budget counts the memory for requests that were given back, from the next sweep on and as long as they
// are remembered.
func TestBudgetCountsWhatWasGivenBack(t *testing.T) {
	p := compile(perDay(100), 100)
	const keys = 2000
	budget := NewBudget(1 << 30)
	before := heap()
	all := NewBuckets(&p, budget.Of("acct_1"))
	l := NewLimiter(func() int64 { return at(0).Mono })
	for k := range keys {
		params, bucket := all.Bucket(testKey(k))
		c := chargeOf(Limit{Params: params, Bucket: bucket})
		for i := range 20 {
			if r := l.Decide(at(0), c); r != Admitted {
				t.Fatal(r)
			}
			if i > 0 {
				l.Release(c)
			}
		}
	}
	all.Sweep(at(0), nil)
	took, counted := heap()-before, budget.Used()
	if took > counted*5/4 || took < counted/2 {
		t.Errorf("%d bytes are counted, the heap grew by %d", counted, took)
	}
	all.Sweep(at(25*time.Hour), nil)
	if used := budget.Used(); used != 0 {
		t.Errorf("%d bytes are in use when all buckets are full again", used)
	}
	all.Bucket(testKey(1))
	all.Sweep(at(25*time.Hour), nil)
	all.Drop()
	if used := budget.Used(); used != 0 {
		t.Errorf("%d bytes are in use when the limit is not in force", used)
	}
}

// Guarantee: a limit with per: key that nobody uses takes little memory, since an account may have one
// for each of its routes.
func TestUnusedBucketsTakeLittle(t *testing.T) {
	p := compile(perDay(1), 1)
	const sets, each = 1000, 1024
	before := heap()
	all := make([]*Buckets, sets)
	for i := range all {
		all[i] = NewBuckets(&p, nil)
	}
	if took := heap() - before; took > sets*each {
		t.Errorf("a set without buckets takes %d bytes, want at most %d", took/sets, each)
	}
	runtime.KeepAlive(all)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Guarantee: the daily counts of keys keep to the budget too: counts in use, and counts that are only remembered
// until the day ends. Existing counts stay exact.
func TestDailyCountsKeepToTheirBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a fixed clock
		const limit = 256 << 10
		budget := NewBudget(limit)
		l := startReserver(t, newMemoryStore())
		dailies := l.Dailies("rt_1", perDay(2))
		dailies.CountTowards(budget.Of("first"))
		use := func(key int) (Result, error) {
			r, _, err := ask(t.Context(), l, func() *Daily { return dailies.Daily(testKey(key)) })
			return r, err
		}
		n := 0
		for dailies.Daily(testKey(n)) != nil {
			if r, err := use(n); r != Admitted || err != nil {
				t.Fatalf("key %d: %v, %v", n, r, err)
			}
			if n++; n > limit/64 {
				t.Fatal("the budget admits more counts than it has bytes")
			}
		}
		if used := budget.Used(); used < limit/2 || used > limit {
			t.Errorf("%d bytes of %d are in use", used, limit)
		}
		<-time.After(3 * time.Minute) // on the bubble's clock: the counts are evicted and remembered
		synctest.Wait()
		if used := budget.Used(); used != int64(n)*knownSize {
			t.Errorf("%d bytes are in use for %d counts that are remembered, want %d", used, n, int64(n)*knownSize)
		}
		for key := range n {
			if r, err := use(key); r != Admitted || err != nil {
				t.Fatalf("the second request of key %d: %v, %v", key, r, err)
			}
			if r, err := use(key); r != Refused || err != nil {
				t.Fatalf("the third request of key %d: %v, %v", key, r, err)
			}
		}
		l.Drop("rt_1")
		synctest.Wait()
		if used := budget.Used(); used != 0 {
			t.Errorf("%d bytes are in use after the limit was removed", used)
		}
	})
}
