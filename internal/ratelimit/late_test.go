package ratelimit

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/id"
)

// Races between the two steps of a decision: the state changes after check and before charge.

// lateLimits returns a key's bucket, a daily cap of 1000, and a global bucket of one
// request.
func lateLimits(t *testing.T) (now Instant, day int64, limits []Limit) {
	t.Helper()
	now = Instant{Wall: startWall}
	l, err := NewReserver(ReserverConfig{Store: newMemoryStore(), Now: func() time.Time { return time.Unix(0, startWall) }})
	if err != nil {
		t.Fatal(err)
	}
	d := l.Daily("rt_1", perDay(1000))
	d.wanted.Store(true) // as after a request
	l.serve(t.Context())
	wide, narrow := compile(perDay(1), 10), compile(perDay(1), 1)
	return now, dayOf(now.Wall), []Limit{
		{Scope: KeyScope, Params: &wide, Bucket: new(Bucket)},
		{Scope: DailyScope, Daily: d},
		{Scope: GlobalScope, Params: &narrow, Bucket: new(Bucket)},
	}
}

// checked returns the decision about limits, which have been checked at now. All pass.
func checked(t *testing.T, now Instant, limits []Limit) *decision {
	t.Helper()
	d := &decision{moment: moment{Instant: now, day: dayOf(now.Wall)}, limiter: &Limiter{}, entries: entriesOf(limits...)}
	if f, i := d.check(); f != passes {
		t.Fatalf("limit %d: %v", i, f)
	}
	return d
}

// Guarantee: a request that is refused after some of its limits were charged charges
// nothing.
func TestLateRefusalRefunds(t *testing.T) {
	now, _, limits := lateLimits(t)
	d := checked(t, now, limits)
	key, count := limits[0].Bucket.state.Load(), limits[1].Daily.load()
	var s [3]Status
	if r, _ := decide(now, limits[2:], s[:]); r != Admitted {
		t.Fatal(r)
	}
	if d.charge() {
		t.Fatal("more than the global limit passed")
	}
	if got := limits[0].Bucket.state.Load(); got != key {
		t.Errorf("the key was charged %d units, want 0", got-key)
	}
	if got := limits[1].Daily.load(); got != count {
		t.Errorf("the day has %d used and %d left, want %d and %d", got.used(), got.left(), count.used(), count.left())
	}
}

// Guarantee: a late refund takes back one request, also from a bucket that was charged again.
func TestLateRefundTakesBackOneRequest(t *testing.T) {
	now, day, limits := lateLimits(t)
	d := limits[1].Daily
	l, store := d.limit.reserver, d.limit.reserver.store.(*memoryStore)
	late := checked(t, now, limits[:2])
	if !late.charge() {
		t.Fatal("refused")
	}
	var s [3]Status
	if r, _ := decide(now, limits[:1], s[:]); r != Admitted { // another request of the key
		t.Fatal(r)
	}
	l.enqueue(d)
	l.serve(t.Context()) // and another range of the day

	late.refund(2)
	if used := limits[0].Params.used(limits[0].Bucket.state.Load(), 0); used != limits[0].Params.cost {
		t.Errorf("the key has %d requests charged, want 1", used/limits[0].Params.cost)
	}
	if w := d.load(); w.used() != 0 || w.left() != 5 {
		t.Errorf("the day has %d used and %d left, want 0 and 5", w.used(), w.left())
	}
	l.serve(t.Context())
	if stored := store.used("rt_1", day); stored != 5 {
		t.Errorf("a crash would lose %d of a cap of 1000, want 5", stored)
	}
}

// Guarantee: a refund after midnight does not change the count of the new day.
func TestRefundOfAnotherDay(t *testing.T) {
	_, day, limits := lateLimits(t)
	d := limits[1].Daily
	d.word.Store(uint64(packDaily(day+1, 5, 1)))
	d.refund(day)
	if w := d.load(); w.used() != 5 || w.left() != 1 {
		t.Errorf("the new day has %d used and %d left, want 5 and 1", w.used(), w.left())
	}
}

// Guarantee: a decision that found a key's bucket before the bucket was converted or dropped cannot
// charge the old bucket.
func TestReplacedBucketsAreStale(t *testing.T) {
	p5, p10 := compile(perSecond(5), 5), compile(perSecond(10), 10)
	var s [1]Status
	for _, c := range []struct {
		name    string
		replace func(b *Buckets)
	}{
		{"converted by use", func(b *Buckets) { b.Configure(&p10, at(0)); b.Bucket(testKey(1)) }},
		{"converted by a sweep", func(b *Buckets) { b.Configure(&p10, at(0)); b.Sweep(at(0), nil) }},
		{"dropped by a sweep", func(b *Buckets) { b.Sweep(at(time.Hour), nil) }},
		{"dropped by a sweep after a change", func(b *Buckets) { b.Configure(&p10, at(0)); b.Sweep(at(time.Hour), nil) }},
	} {
		b := NewBuckets(&p5, nil)
		params, bucket := b.Bucket(testKey(1))
		limits := []Limit{{Params: params, Bucket: bucket}}
		decide(at(0), limits, s[:])
		c.replace(b)
		if r, worst := decide(at(time.Hour), limits, s[:]); r != Stale || worst != 0 {
			t.Errorf("%s: got %v, worst %d, want Stale, 0", c.name, r, worst)
		}
		if _, again := b.Bucket(testKey(1)); again == bucket {
			t.Errorf("%s: got the replaced bucket again", c.name)
		}
	}
}

// Guarantee: a dropped cap no longer decides, and returns with its count if the limit is
// registered again.
func TestDroppedDailyIsStale(t *testing.T) {
	now, _, limits := lateLimits(t)
	l := limits[1].Daily.limit.reserver
	var s [3]Status
	if r, _ := decide(now, limits, s[:]); r != Admitted {
		t.Fatal(r)
	}
	l.Drop("rt_1")
	back := l.Daily("rt_1", perDay(1000))
	l.serve(t.Context())
	if r, worst := decide(now, limits[1:2], s[:]); r != Stale || worst != 0 {
		t.Errorf("decision by a dropped cap: got %v, worst %d, want Stale, 0", r, worst)
	}
	if w := back.load(); w.used() != 1 {
		t.Errorf("the cap returned with %d used, want 1", w.used())
	}
}

// Guarantee: a decision unlocks every limit that it has locked, also if the tokens of a shared bucket lapse or are spent
// between its check and its charge. Otherwise later requests would wait for that limit without end.
func TestLateLapseUnlocks(t *testing.T) {
	now, _, limits := lateLimits(t)
	sharing, err := NewSharing(SharingConfig{
		Mode: Leased, OnLoss: DivideOnLoss, Store: nodeStore{newMemoryLimitStore(), "node", new(atomic.Bool)}, Now: func() Instant { return now },
		Version: func() int64 { return 1 }, CatchUp: func(context.Context) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	p := Compile(Config{Sustained: Rate{Count: 1000, Per: time.Second}})
	bucket := sharing.NewBucket(Name{Account: "acct", Kind: id.Route}, &p)
	lapses := now.Mono/int64(time.Millisecond) + grantLife
	for what, after := range map[string]uint64{"spent": packLease(0, lapses), "lapsed": packLease(1, 0), "replaced": packLease(5, lapses+1)} {
		bucket.lease.tokens.Store(packLease(1, lapses))
		d := checked(t, now, []Limit{{Scope: RouteScope, Params: &p, Bucket: bucket}, limits[1]})
		d.limiter = NewLimiter(func() int64 { return now.Mono })
		bucket.lease.tokens.Store(after)
		if charged := d.charge(); charged != (what == "replaced") {
			t.Errorf("tokens that are %s: charged %v", what, charged)
		}
		for i := range d.limiter.marks {
			if isLocked(d.limiter.marks[i].Load()) {
				t.Errorf("tokens that are %s: mark %d is locked after the decision", what, i)
			}
		}
	}
}
