package accesslog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
)

// recordSink is a sink that keeps a copy of every entry. before, if not nil, is called
// first in each Take.
type recordSink struct {
	before func(batch []accesslog.Entry)

	mu      sync.Mutex
	entries []accesslog.Entry
}

func (b *recordSink) Take(batch []accesslog.Entry) {
	if b.before != nil {
		b.before(batch)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range batch {
		e.Path, e.MethodText = strings.Clone(e.Path), strings.Clone(e.MethodText)
		b.entries = append(b.entries, e)
	}
}

func (b *recordSink) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries)
}

func collector(t testing.TB, cfg accesslog.Config) *accesslog.Collector {
	t.Helper()
	c, err := accesslog.NewCollector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// record returns a record that differs from every other.
func record(writer, n int) *accesslog.Record {
	r := &accesslog.Record{Start: int64(n), Status: 200, Method: accesslog.GET}
	binary.BigEndian.PutUint32(r.Request[:], uint32(writer))
	binary.BigEndian.PutUint32(r.Request[4:], uint32(n))
	return r
}

// Guarantee: each sink takes every record of many concurrent writers exactly once, while
// other goroutines call Sync and the collector stops. Nothing is lost as long as there is
// room.
func TestExactlyOnce(t *testing.T) {
	const writers, each = 16, 5000
	sinks := [2]*recordSink{{}, {}}
	c := collector(t, accesslog.Config{Sinks: []accesslog.Sink{sinks[0], sinks[1]}, Records: writers * each, Interval: time.Millisecond, Shards: 3})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			shard := c.Shard()
			for n := range each {
				shard.Emit(record(w, n), "", "/some/path")
				if n%1000 == 0 {
					if err := c.Sync(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, s := range sinks {
		seen := make(map[[16]byte]bool, writers*each)
		for _, e := range s.entries {
			if seen[e.Request] {
				t.Fatalf("sink %d took %x twice", i, e.Request)
			}
			seen[e.Request] = true
			if e.Path != "/some/path" || e.Status != 200 {
				t.Fatalf("sink %d took %+v", i, e)
			}
		}
		if len(seen) != writers*each {
			t.Errorf("sink %d took %d records, want %d", i, len(seen), writers*each)
		}
	}
	if c.Lost() != 0 {
		t.Errorf("%d records counted as lost, want 0", c.Lost())
	}
}

// Guarantee: a record and its texts arrive as they were emitted, cut at their maximum
// lengths. The text of a known method is dropped.
func TestRecordsArriveUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sink := &recordSink{}
		c, err := accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{sink}, Records: 1 << 16, Shards: rapid.IntRange(1, 5).Draw(t, "shards")})
		if err != nil {
			t.Fatal(err)
		}
		long := rapid.SampledFrom([]int{0, 1, 20, 200, accesslog.MaxPath - 1, accesslog.MaxPath, accesslog.MaxPath + 1})
		shards := []*accesslog.Shard{c.Shard(), c.Shard(), c.Shard()}
		want := map[[16]byte]accesslog.Entry{}
		for n := range rapid.IntRange(0, 400).Draw(t, "records") {
			r := record(0, n)
			r.Method = accesslog.Method(rapid.IntRange(0, 9).Draw(t, "method"))
			path := strings.Repeat(string(rune('a'+n%26)), long.Draw(t, "path"))
			method := strings.Repeat("M", rapid.IntRange(0, accesslog.MaxMethod+2).Draw(t, "method text"))
			shards[n%3].Emit(r, method, path)
			e := accesslog.Entry{Record: *r, Path: path[:min(len(path), accesslog.MaxPath)]}
			if r.Method == accesslog.OtherMethod {
				e.MethodText = method[:min(len(method), accesslog.MaxMethod)]
			}
			want[r.Request] = e
			if rapid.IntRange(0, 50).Draw(t, "sync") == 0 {
				_ = c.Sync(context.Background())
			}
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		for _, e := range sink.entries {
			if e != want[e.Request] {
				t.Fatalf("took %.100v, want %.100v", e, want[e.Request])
			}
		}
		if len(sink.entries) != len(want) || c.Lost() != 0 {
			t.Fatalf("took %d records, want %d; %d counted as lost, want 0", len(sink.entries), len(want), c.Lost())
		}
	})
}

// gate makes a sink's Take block until the gate is opened.
type gate struct {
	reached chan struct{} // receives one value for each call
	open    chan struct{}
}

func newGate() *gate { return &gate{reached: make(chan struct{}, 1<<10), open: make(chan struct{})} }

func (g *gate) pass([]accesslog.Entry) {
	g.reached <- struct{}{}
	<-g.open
}

// Guarantee: no record is lost while a sink's Take blocks for 100 ms at 100,000 requests a
// second.
func TestSlowSinkLosesNothing(t *testing.T) {
	g := newGate()
	sink := &recordSink{before: g.pass}
	c := collector(t, accesslog.Config{Sinks: []accesslog.Sink{sink}, Interval: time.Millisecond})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	shards := []*accesslog.Shard{c.Shard(), c.Shard(), c.Shard()}
	shards[0].Emit(record(1, 0), "", "/")
	<-g.reached
	const during = 100_000 / 10
	for n := range during {
		shards[n%2].Emit(record(0, n), "", "/v1/orders/0193a6f0-7cc1-7b5e-8c1a-5e6d2c0a9f11/items")
	}
	close(g.open)
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sink.len() != during+1 || c.Lost() != 0 {
		t.Errorf("took %d records, want %d; %d counted as lost, want 0", sink.len(), during+1, c.Lost())
	}
}

// Guarantee: a record for which there is no room is counted as lost, at once and on every
// shard. When there is room again, no record is lost. Each record is either taken or counted as
// lost.
func TestLossIsCounted(t *testing.T) {
	g := newGate()
	sink := &recordSink{before: g.pass}
	c := collector(t, accesslog.Config{Sinks: []accesslog.Sink{sink}, Records: 1024, Shards: 2, Interval: time.Millisecond})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b := c.Shard(), c.Shard()
	a.Emit(record(0, 0), "", "/")
	<-g.reached
	for n := range 5000 {
		a.Emit(record(1, n), "", "/")
		b.Emit(record(2, n), "", "/")
	}
	if c.Lost() < 10_000-1024 {
		t.Errorf("%d of 10000 records counted as lost with room for 1024, want at least %d", c.Lost(), 10_000-1024)
	}
	close(g.open)
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := c.Lost()
	a.Emit(record(3, 0), "", "/")
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Lost() != lost {
		t.Error("a record was lost although there was room")
	}
	if got := uint64(sink.len()) + lost; got != 10_002 {
		t.Errorf("%d records taken or counted as lost, want 10002", got)
	}
	b.Emit(record(4, 0), "", "/")
	if c.Lost() != lost+1 {
		t.Error("a record emitted after Stop is not counted as lost")
	}
}

// Guarantee: Sync returns after every record emitted before it was taken, even if the
// collector is in the middle of a batch. It gives up when its context ends.
func TestSync(t *testing.T) {
	g := newGate()
	sink := &recordSink{before: g.pass}
	c := collector(t, accesslog.Config{Sinks: []accesslog.Sink{sink}, Interval: time.Millisecond})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	shard := c.Shard()
	shard.Emit(record(0, 0), "", "/")
	<-g.reached
	shard.Emit(record(0, 1), "", "/")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Sync(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Sync with a canceled context and a busy sink: got %v, want context.Canceled", err)
	}
	if err := c.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop with a canceled context and a busy sink: got %v, want context.Canceled", err)
	}
	close(g.open)
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sink.len() != 2 {
		t.Errorf("%d records were taken when Sync returned, want 2", sink.len())
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Guarantee: a record stays in a shard no longer than the interval.
func TestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &recordSink{}
		c := collector(t, accesslog.Config{Sinks: []accesslog.Sink{sink}})
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Shard().Emit(record(0, 0), "", "/")
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the bubble's clock
		synctest.Wait()
		if sink.len() != 1 {
			t.Error("a record was not taken within the default interval of 20 ms")
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Guarantee: when a sink panics, the other sinks still get the batch, and the sink gets the
// next one. Panics are counted; only the first of many is logged.
func TestPanickingSink(t *testing.T) {
	var log bytes.Buffer
	failing := true
	bad := &recordSink{before: func([]accesslog.Entry) {
		if failing {
			panic("broken sink")
		}
	}}
	good := &recordSink{}
	c := collector(t, accesslog.Config{Sinks: []accesslog.Sink{bad, good}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	shard := c.Shard()
	for n := range 3 {
		shard.Emit(record(0, n), "", "/")
		if err := c.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	failing = false
	shard.Emit(record(0, 3), "", "/")
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if good.len() != 4 || bad.len() != 1 || c.Panics() != 3 {
		t.Errorf("the working sink took %d records, want 4; the panicking one %d, want 1; %d panics counted, want 3", good.len(), bad.len(), c.Panics())
	}
	if got := strings.Count(log.String(), "access log sink panicked"); got != 1 || !strings.Contains(log.String(), "*accesslog_test.recordSink") {
		t.Errorf("logged %d times, want once with the sink's type: %s", got, &log)
	}
}

// Guarantee: emitting to the shard of a nil collector does nothing.
func TestNilCollector(t *testing.T) {
	var c *accesslog.Collector
	c.Shard().Emit(record(0, 0), "", "/")
}

// Guarantee: New refuses negative settings.
func TestNegativeSettings(t *testing.T) {
	for _, cfg := range []accesslog.Config{{Shards: -1}, {Records: -1}, {Interval: -1}} {
		if _, err := accesslog.NewCollector(cfg); err == nil {
			t.Errorf("NewCollector(%+v) succeeded, want an error", cfg)
		}
	}
}

// nowhere is a sink that discards its records.
type nowhere struct{}

func (nowhere) Take([]accesslog.Entry) {}

// BenchmarkEmit measures what the request path pays to emit a record while the collector
// drains, with a connection for each goroutine.
func BenchmarkEmit(b *testing.B) {
	c := collector(b, accesslog.Config{Sinks: []accesslog.Sink{nowhere{}}})
	if err := c.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		shard, r := c.Shard(), record(0, 0)
		for n := 0; pb.Next(); n++ {
			shard.Emit(r, "", "/v1/orders/0193a6f0-7cc1-7b5e-8c1a-5e6d2c0a9f11")
			if n%1000 == 0 { // do not outrun the sinks
				_ = c.Sync(context.Background())
			}
		}
	})
	b.ReportMetric(float64(c.Lost())/float64(b.N), "lost/op")
	_ = c.Stop(context.Background())
}

// BenchmarkEmitOne measures one call of Emit without concurrency.
func BenchmarkEmitOne(b *testing.B) {
	c := collector(b, accesslog.Config{Sinks: []accesslog.Sink{nowhere{}}})
	shard, r := c.Shard(), record(0, 0)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		shard.Emit(r, "", "/v1/orders/0193a6f0-7cc1-7b5e-8c1a-5e6d2c0a9f11")
		if n%2000 == 0 {
			_ = c.Sync(context.Background())
		}
	}
	if c.Lost() > 0 {
		b.Errorf("%d records lost, want 0", c.Lost())
	}
}
