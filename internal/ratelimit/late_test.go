package ratelimit

import (
	"testing"
	"time"
)

// The races of a decision, one step at a time: what look has seen is changed before charge.

// lateHouse has a key's bucket, a daily cap of 100 and a global bucket of one request.
func lateHouse(t *testing.T) (now Instant, day int64, limits []Limit) {
	t.Helper()
	now = Instant{Wall: startWall}
	l, err := NewReserver(ReserverConfig{Store: newMemoryStore(), Now: func() time.Time { return time.Unix(0, startWall) }})
	if err != nil {
		t.Fatal(err)
	}
	d := l.Daily("rt_1", perDay(100))
	l.serve(t.Context())
	wide, narrow := compile(perDay(1), 10), compile(perDay(1), 1)
	return now, dayOf(now.Wall), []Limit{
		{Scope: KeyScope, Params: &wide, Bucket: new(Bucket)},
		{Scope: DailyScope, Daily: d},
		{Scope: GlobalScope, Params: &narrow, Bucket: new(Bucket)},
	}
}

// TestLateRefusalGivesBack holds the guarantee that a request that is refused after some of
// its limits were charged charges nothing.
func TestLateRefusalGivesBack(t *testing.T) {
	now, day, limits := lateHouse(t)
	var views [3]view
	if f, i := check(now, day, limits, views[:]); f != passes {
		t.Fatalf("limit %d: %v", i, f)
	}
	key, count := limits[0].Bucket.state.Load(), limits[1].Daily.load()
	var s [3]Status
	if r, _ := Decide(now, limits[2:], s[:]); r != Admitted {
		t.Fatal(r)
	}
	if charge(day, limits, views[:]) {
		t.Fatal("more than the global limit passed")
	}
	if got := limits[0].Bucket.state.Load(); got != key {
		t.Errorf("the key was charged %d units", got-key)
	}
	if got := limits[1].Daily.load(); got != count {
		t.Errorf("the day has %d used and %d left, want %d and %d", got.used(), got.left(), count.used(), count.left())
	}
}

// TestGiveBackMintsNothing holds the guarantee that what is given back late adds no credit:
// a bucket that was charged again keeps both charges, and a count gives back its one.
func TestGiveBackMintsNothing(t *testing.T) {
	now, day, limits := lateHouse(t)
	d := limits[1].Daily
	l, store := d.limit.reserver, d.limit.reserver.store.(*memoryStore)
	var views [3]view
	check(now, day, limits, views[:])
	if !charge(day, limits[:2], views[:]) {
		t.Fatal("refused")
	}
	var s [3]Status
	if r, _ := Decide(now, limits[:1], s[:]); r != Admitted { // another request of the key
		t.Fatal(r)
	}
	l.enqueue(d)
	l.serve(t.Context()) // and another range of the day

	refund(day, limits[:2], views[:])
	if used := limits[0].Params.used(limits[0].Bucket.state.Load(), 0); used != 2*limits[0].Params.cost {
		t.Errorf("the key has %d requests charged, want 2", used/limits[0].Params.cost)
	}
	if w := d.load(); w.used() != 0 || w.left() != 1 {
		t.Errorf("the day has %d used and %d left, want 0 and 1", w.used(), w.left())
	}
	l.serve(t.Context())
	if stored := store.used("rt_1", day); stored != 1 {
		t.Errorf("a crash would lose %d of a cap of 100", stored)
	}
}

// TestGiveBackOfAnotherDay holds the guarantee that what is given back after midnight does
// not come off the new day.
func TestGiveBackOfAnotherDay(t *testing.T) {
	_, day, limits := lateHouse(t)
	d := limits[1].Daily
	d.word.Store(uint64(packDaily(day+1, 5, 1)))
	d.refund(day)
	if w := d.load(); w.used() != 5 || w.left() != 1 {
		t.Errorf("the new day has %d used", w.used())
	}
}

// TestReplacedBucketsAreStale holds the guarantee that whoever looked a bucket of a key up before it
// was converted or dropped cannot charge what is no longer there.
func TestReplacedBucketsAreStale(t *testing.T) {
	p5, p10 := compile(perSecond(5), 5), compile(perSecond(10), 10)
	var s [1]Status
	for _, c := range []struct {
		name    string
		replace func(b *Buckets)
	}{
		{"converted by use", func(b *Buckets) { b.Configure(&p10); b.Bucket(at(0), testKey(1)) }},
		{"converted by a sweep", func(b *Buckets) { b.Configure(&p10); b.Sweep(at(0)) }},
		{"dropped by a sweep", func(b *Buckets) { b.Sweep(at(time.Hour)) }},
		{"dropped by a sweep after a change", func(b *Buckets) { b.Configure(&p10); b.Sweep(at(time.Hour)) }},
	} {
		b := NewBuckets(&p5)
		params, bucket := b.Bucket(at(0), testKey(1))
		limits := []Limit{{Params: params, Bucket: bucket}}
		Decide(at(0), limits, s[:])
		c.replace(b)
		if r, worst := Decide(at(time.Hour), limits, s[:]); r != Stale || worst != 0 {
			t.Errorf("%s: %v", c.name, r)
		}
		if _, again := b.Bucket(at(time.Hour), testKey(1)); again == bucket {
			t.Errorf("%s: the same bucket comes back", c.name)
		}
	}
}

// TestDroppedDailyIsStale holds the guarantee that a dropped cap stops deciding, and comes back with
// its count if the limit does.
func TestDroppedDailyIsStale(t *testing.T) {
	now, _, limits := lateHouse(t)
	l := limits[1].Daily.limit.reserver
	var s [3]Status
	if r, _ := Decide(now, limits, s[:]); r != Admitted {
		t.Fatal(r)
	}
	l.Drop("rt_1")
	back := l.Daily("rt_1", perDay(100))
	l.serve(t.Context())
	if r, worst := Decide(now, limits[1:2], s[:]); r != Stale || worst != 0 {
		t.Errorf("a dropped cap decided %v", r)
	}
	if w := back.load(); w.used() != 1 {
		t.Errorf("it came back with %d used", w.used())
	}
}
