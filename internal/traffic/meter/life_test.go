package meter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/traffic/meter"
)

// total returns the number of stored requests of an account, by part.
func total(t *testing.T, store traffic.Store, account [16]byte) (by [5]int64) {
	t.Helper()
	for i, p := range []traffic.Part{traffic.Gateways, traffic.Routes, traffic.Keys, traffic.Targets, traffic.Subjects} {
		q := traffic.ChunkQuery{AccountID: id.Format(id.Account, account), Part: p, Tier: p.In(traffic.Days), Before: 1 << 40}
		err := store.ReadTraffic(t.Context(), q, func(c *traffic.Chunk) error {
			by[i] += c.Requests()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return by
}

// wantTotal checks the number of stored requests of an account.
func wantTotal(t *testing.T, when string, store traffic.Store, account [16]byte, want int64) {
	t.Helper()
	if got := total(t, store, account); got != [5]int64{want, want, want, want, want} {
		t.Errorf("%s: got %v requests by gateway, route, key, target and subject, want %d each", when, got, want)
	}
}

// flaky is a store that can be made to fail.
type flaky struct {
	*sqlite.DB
	fail atomic.Bool
}

var errStore = errors.New("the store is not available")

func (f *flaky) AppendTraffic(ctx context.Context, batch accesslog.BatchID, chunks []traffic.Chunk) error {
	if f.fail.Load() {
		return errStore
	}
	return f.DB.AppendTraffic(ctx, batch, chunks)
}

// entry returns an access record with one of seven routes and one of 100 keys, by n.
func entry(account [16]byte, n int, at time.Time) accesslog.Entry {
	return accesslog.Entry{Record: accesslog.Record{Account: account, Gateway: identifier(1), Route: identifier(n%7 + 1), Key: identifier(n%100 + 1), Start: at.UnixMicro(), Status: 200},
		UpstreamName: "default", Target: fmt.Sprintf("10.0.0.%d:80", n%3), Token: &accesslog.Token{IssuerID: "iss_1", Subject: fmt.Sprint("user-", n%5)}}
}

// Guarantee: counts that the store did not take are written later, once, and Sync returns
// the error.
func TestFailedWritesAreRetried(t *testing.T) {
	store := &flaky{DB: sqlitetest.Open(t, sqlite.Config{})}
	c := &clock{at: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	m, account := newMeter(t, store, c), id.NewFast()
	store.fail.Store(true)
	for n := range 10 {
		m.Take([]accesslog.Entry{entry(account, n, c.now())})
		if err := m.Sync(t.Context()); !errors.Is(err, errStore) {
			t.Fatalf("Sync returned %v, want the error of the store", err)
		}
	}
	store.fail.Store(false)
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTotal(t, "afterwards", store, account, 10)
	if m.Lost() != 0 {
		t.Errorf("%d requests are lost, want 0", m.Lost())
	}
}

// Guarantee: a cancelled Sync loses no counts.
func TestCancelledSyncLosesNothing(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	c := &clock{at: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	m, account := newMeter(t, db, c), id.NewFast()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for n := range 5 {
		m.Take([]accesslog.Entry{entry(account, n, c.now())})
		if err := m.Sync(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("Sync returned %v, want context.Canceled", err)
		}
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTotal(t, "after Stop", db, account, 5)
}

// Guarantee: records taken while reports, flushes and merges run are counted once.
func TestConcurrentTakeAndReport(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	begin := time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)
	c := &clock{at: begin}
	m, account := newMeter(t, db, c), id.NewFast()
	const batches, size = 200, 100
	var taken atomic.Int64
	var work sync.WaitGroup
	done := make(chan struct{})
	work.Go(func() {
		defer close(done)
		for b := range batches {
			batch := make([]accesslog.Entry, size)
			for i := range batch {
				batch[i] = entry(account, b*size+i, c.now())
			}
			m.Take(batch)
			taken.Add(size)
			c.add(20 * time.Second)
		}
	})
	for range 2 {
		work.Go(func() {
			for last := int64(0); ; {
				before := taken.Load()
				if err := m.Sync(context.Background()); err != nil {
					t.Error(err)
					return
				}
				rows, err := m.Report(context.Background(), id.Format(id.Account, account), traffic.Query{Interval: traffic.Hour, Since: begin, Until: begin.Add(2 * time.Hour)})
				if err != nil {
					t.Error(err)
					return
				}
				sum := rows[0].Requests + rows[1].Requests
				if sum < before || sum < last || sum > batches*size {
					t.Errorf("a report has %d requests, want at least %d and at most %d", sum, max(before, last), batches*size)
					return
				}
				last = sum
				if err := m.Maintain(context.Background()); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	work.Wait()
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTotal(t, "at the end", db, account, batches*size)
}

// Guarantee: the counts of too many keys for the memory are written before the period ends,
// and none are lost.
func TestCountsOfManyKeysAreWrittenEarly(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	c := &clock{at: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	m, err := meter.New(meter.Config{Store: db, Now: c.now, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	account := id.NewFast()
	const keys = 300_000
	batch := make([]accesslog.Entry, 100)
	for n := 0; n < keys; n += len(batch) {
		for i := range batch {
			batch[i] = entry(account, 0, c.now())
			batch[i].Key = [16]byte{1, 2, 3, byte((n + i) >> 16), byte((n + i) >> 8), byte(n + i), 15: 1}
		}
		m.Take(batch)
	}
	awaittest.True(t, "some requests are written before the end of the period", func() bool { return total(t, db, account)[traffic.Keys] > 0 })
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTotal(t, "at the end", db, account, keys)
	if m.Lost() != 0 {
		t.Errorf("%d requests are lost, want 0", m.Lost())
	}
}

// Guarantee: minutes are kept for 2 days, hours for 35 and days for 400. Counts that arrive
// late are added to the next tier before they are removed.
func TestRetention(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	begin := time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)
	c := &clock{at: begin}
	m, account := newMeter(t, db, c), id.NewFast()
	m.Take([]accesslog.Entry{entry(account, 1, begin), entry(account, 1, begin.Add(-60*time.Hour)), entry(account, 1, begin.Add(-30*24*time.Hour))})
	for _, step := range []struct {
		after                time.Duration
		minutes, hours, days int64
	}{
		{0, 1, 3, 3},
		{3 * time.Minute, 1, 3, 3},
		{2 * time.Hour, 1, 3, 3},
		{47 * time.Hour, 1, 3, 3},
		{50 * time.Hour, 0, 3, 3},
		{6 * 24 * time.Hour, 0, 2, 3},
		{36 * 24 * time.Hour, 0, 0, 3},
		{399 * 24 * time.Hour, 0, 0, 2},
		{403 * 24 * time.Hour, 0, 0, 0},
	} {
		c.mu.Lock()
		c.at = begin.Add(step.after)
		c.mu.Unlock()
		if err := m.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
		for tier, want := range []int64{step.minutes, step.hours, step.days} {
			for _, part := range []traffic.Part{traffic.Keys, traffic.Targets, traffic.Subjects} {
				got := int64(0)
				q := traffic.ChunkQuery{AccountID: id.Format(id.Account, account), Part: part, Tier: part.In(traffic.Tier(tier)), Before: 1 << 40}
				if err := db.ReadTraffic(t.Context(), q, func(c *traffic.Chunk) error {
					got += c.Requests()
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Errorf("after %s tier %d of part %d has %d requests, want %d", step.after, tier, part, got, want)
				}
			}
		}
	}
}

// Guarantee: a version that does not know part Targets or Subjects, and merges what it finds in the tiers that it knows, finds
// none of their chunks, at any time.
func TestEarlierVersionsDoNotFindTargets(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	c := &clock{at: time.Date(2026, 5, 6, 12, 0, 0, 0, time.UTC)}
	m, account := newMeter(t, db, c), id.NewFast()
	found := map[traffic.Part]bool{}
	for range 50 {
		for range 2 {
			m.Take([]accesslog.Entry{entry(account, 1, c.now())})
			if err := m.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for tier := traffic.Minutes; tier <= traffic.SubjectDays; tier++ {
			for state := traffic.Fresh; state < traffic.Rolled; state++ {
				list, err := db.TrafficBacklog(t.Context(), tier, state, 1<<40, 1000)
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range list {
					found[b.Part] = true
					ofTargets := tier >= traffic.TargetMinutes && tier <= traffic.TargetDays
					if (b.Part == traffic.Targets) != ofTargets || (b.Part == traffic.Subjects) != (tier >= traffic.SubjectMinutes) {
						t.Fatalf("got a chunk of part %d in tier %d", b.Part, tier)
					}
				}
			}
		}
		if err := m.Maintain(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.add(33 * time.Minute)
	}
	if !found[traffic.Targets] || !found[traffic.Subjects] {
		t.Error("got no chunk of part Targets or Subjects")
	}
}

// Guarantee: counts are written once a period without Sync, so that a crash loses no more, and
// Stop writes the rest.
func TestWritesWithoutSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{}
		m, err := meter.New(meter.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.Take([]accesslog.Entry{entry([16]byte{1}, 1, time.Now())})
		<-time.After(meter.DefaultPeriod + time.Millisecond)
		if got := store.requests.Load(); got != 1 {
			t.Errorf("%d requests were written after a period, want 1", got)
		}
		m.Take([]accesslog.Entry{entry([16]byte{1}, 1, time.Now())})
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := store.requests.Load(); got != 2 {
			t.Errorf("%d requests were written after Stop, want 2", got)
		}
	})
}

// countingStore is a store that counts the requests it gets. The real one does not run on
// virtual time.
type countingStore struct {
	traffic.Store
	requests atomic.Int64
}

func (s *countingStore) AppendTraffic(_ context.Context, _ accesslog.BatchID, chunks []traffic.Chunk) error {
	for i := range chunks {
		if chunks[i].Part == traffic.Keys {
			s.requests.Add(chunks[i].Requests())
		}
	}
	return nil
}
