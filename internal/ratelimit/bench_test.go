package ratelimit

import (
	"context"
	"encoding/binary"
	"testing"
	"time"
)

func BenchmarkDecideOneBucket(b *testing.B) {
	p := CompileRate(Rate{Count: MaxCount, Per: time.Second})
	limits := []Limit{{Scope: RouteScope, Params: &p, Bucket: new(Bucket)}}
	benchmarkDecide(b, limits)
}

func BenchmarkDecideOneBucketInexact(b *testing.B) {
	p := CompileRate(Rate{Count: 999_999_937, Per: time.Second})
	limits := []Limit{{Scope: RouteScope, Params: &p, Bucket: new(Bucket)}}
	benchmarkDecide(b, limits)
}

func BenchmarkDecideFourLimits(b *testing.B) {
	benchmarkDecide(b, fourLimits(b))
}

func BenchmarkDecideRefused(b *testing.B) {
	p := Compile(Config{Sustained: Rate{Count: 1, Per: 24 * time.Hour}, Burst: Rate{Count: 1, Per: time.Second}})
	c := chargeOf(Limit{Scope: RouteScope, Params: &p, Bucket: new(Bucket)})
	var l Limiter
	b.ReportAllocs()
	for b.Loop() {
		l.Decide(Instant{Mono: 1, Wall: startWall}, c)
	}
}

func benchmarkDecide(b *testing.B, limits []Limit) {
	c, now := chargeOf(limits...), Instant{Wall: startWall}
	var l Limiter
	b.ReportAllocs()
	for b.Loop() {
		now.Mono += 20
		if r := l.Decide(now, c); r != Admitted {
			b.Fatalf("got %v, want Admitted", r)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(limits)), "ns/limit")
}

func fourLimits(b *testing.B) []Limit {
	l, err := NewReserver(ReserverConfig{Store: newMemoryStore(), Now: func() time.Time { return time.Unix(0, startWall) }})
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Stop(context.Background()) })
	d := l.Daily("rt_1", Rate{Count: MaxCount, Per: 24 * time.Hour})
	if err := l.Wait(context.Background(), d); err != nil {
		b.Fatal(err)
	}
	d.limit.capacity.Store(MaxCount)
	p := CompileRate(Rate{Count: MaxCount, Per: time.Second})
	return []Limit{
		{Scope: KeyScope, Params: &p, Bucket: new(Bucket)},
		{Scope: RouteScope, Params: &p, Bucket: new(Bucket)},
		{Scope: DailyScope, Daily: d},
		{Scope: GlobalScope, Params: &p, Bucket: new(Bucket)},
	}
}

func BenchmarkDecideContended(b *testing.B) {
	p := CompileRate(Rate{Count: MaxCount, Per: time.Second})
	bucket := new(Bucket)
	clock := NewClock().Now
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := chargeOf(Limit{Scope: GlobalScope, Params: &p, Bucket: bucket})
		var l Limiter
		for pb.Next() {
			l.Decide(clock(), c)
		}
	})
}

func BenchmarkClock(b *testing.B) {
	clock := NewClock().Now
	b.ReportAllocs()
	for b.Loop() {
		clock()
	}
}

func BenchmarkBucketOfKey(b *testing.B) {
	p := CompileRate(Rate{Count: 100, Per: time.Second})
	buckets := NewBuckets(&p, nil)
	const keys = 100_000
	for i := range keys {
		buckets.Bucket(testKey(i))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 7919) % keys
		buckets.Bucket(testKey(i))
	}
}

func BenchmarkAppendFields(b *testing.B) {
	c := showing(Status{Scope: KeyScope, Limit: 600, Remaining: 599, Window: 60, ResetIn: 1}, Status{Scope: RouteScope, Limit: 100, Remaining: 99, Window: 1, ResetIn: 1})
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		c.AppendLimits(c.AppendPolicy(buf))
	}
}

// testKey returns the i-th bucket identifier, as random as real identifiers.
func testKey(i int) (k [16]byte) {
	binary.BigEndian.PutUint64(k[:8], 0x0199_0000_0000_7000+uint64(i)<<16)
	binary.BigEndian.PutUint64(k[8:], 0x8000_0000_0000_0000|uint64(i)*0x9e3779b97f4a7c15)
	return k
}

// BenchmarkDecideLeased decides by tokens that the limit store has granted.
func BenchmarkDecideLeased(b *testing.B) {
	s, err := NewSharing(SharingConfig{
		Mode: Leased, Store: nodeStore{memoryLimitStore: newMemoryLimitStore(), node: "node"}, Now: func() Instant { return Instant{Wall: startWall} },
		Version: func() int64 { return 1 }, CatchUp: func(context.Context) error { return nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	p := CompileRate(Rate{Count: MaxCount, Per: time.Second})
	l := Limit{Scope: RouteScope, Params: &p, Bucket: s.NewBucket(Name{}, &p)}
	c, limiter := chargeOf(l), Limiter{}
	now := Instant{Wall: startWall}
	b.ReportAllocs()
	for b.Loop() {
		now.Mono += 20
		if l.Bucket.lease.tokens.Load()&maxTokens < 2 {
			l.Bucket.lease.tokens.Store(packLease(maxTokens, 1<<30))
		}
		if r := limiter.Decide(now, c); r != Admitted {
			b.Fatalf("got %v, want Admitted", r)
		}
	}
}
