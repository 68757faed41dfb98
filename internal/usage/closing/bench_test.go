package closing_test

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/store"
	"github.com/keygate/keygate/internal/store/postgres"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/store/state"
	"github.com/keygate/keygate/internal/traffic/meter"
	"github.com/keygate/keygate/internal/usage/closing"
)

// times collects what the transactions of a store were.
type times struct {
	mu   sync.Mutex
	on   bool
	all  []time.Duration
	rows int64 // of the largest
}

func (t *times) count(n state.Counted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on {
		t.all, t.rows = append(t.all, n.Took), max(t.rows, n.Rows)
	}
}

func (t *times) set(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on = on
}

// BenchmarkClose closes an hour in which the keys of 100,000 owners were used ten times each, and later makes records of
// days of those of hours.
func BenchmarkClose(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		benchmarkClose(b, func(counted func(state.Counted)) store.Engine {
			return sqlitetest.Open(b, sqlite.Config{Counted: counted})
		})
	})
	b.Run("postgres", func(b *testing.B) {
		benchmarkClose(b, func(counted func(state.Counted)) store.Engine {
			db, err := postgres.Open(b.Context(), postgres.Config{URL: postgrestest.Empty(b), Counted: counted, LeaseTTL: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				if err := db.Close(); err != nil {
					b.Error(err)
				}
			})
			return db
		})
	})
}

func benchmarkClose(b *testing.B, open func(counted func(state.Counted)) store.Engine) {
	b.Helper()
	const owners = 100_000
	var counted times
	db := open(counted.count)
	now := time.Date(2026, 3, 1, 0, 30, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	m, err := meter.New(meter.Config{Store: db, Now: clock})
	if err != nil {
		b.Fatal(err)
	}
	closer, err := closing.New(closing.Config{Store: db, Alone: true, Now: clock, Flush: m.Sync})
	if err != nil {
		b.Fatal(err)
	}
	var spent time.Duration
	for b.Loop() {
		b.StopTimer()
		for range 10 {
			batch := make([]accesslog.Entry, owners)
			for n := range batch {
				e := &batch[n]
				e.Start, e.Account, e.Gateway, e.Route, e.BytesOut = now.UnixMicro(), uuid(1), uuid(2), uuid(3), 100
				binary.BigEndian.PutUint32(e.OwnerID[12:], uint32(n+1))
				binary.BigEndian.PutUint32(e.Key[12:], uint32(n+1))
				e.SetPeriod(0, math.MaxInt64)
			}
			m.Take(batch)
			if err := m.Sync(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		now = now.Add(time.Hour)
		b.StartTimer()
		before := proctest.CPUTime(b)
		counted.set(true)
		if err := closer.Step(b.Context()); err != nil {
			b.Fatal(err)
		}
		counted.set(false)
		spent += proctest.CPUTime(b) - before
	}
	b.ReportMetric(float64(spent)/float64(b.N)/1e6, "cpu-ms/hour")
	counted.report(b, "close")
	now = now.Add(36 * 24 * time.Hour)
	counted.set(true)
	if err := closer.Step(b.Context()); err != nil {
		b.Fatal(err)
	}
	counted.set(false)
	counted.report(b, "days")
}

// report reports what was collected, and begins again.
func (t *times) report(b *testing.B, what string) {
	b.Helper()
	slices.Sort(t.all)
	last := len(t.all) - 1
	b.Logf("%s: %d transactions, p50 %v, p99 %v, at most %v; at most %d rows", what, len(t.all), t.all[last/2], t.all[last*99/100], t.all[last], t.rows)
	b.ReportMetric(float64(t.all[last*99/100])/1e6, what+"-p99-ms")
	b.ReportMetric(float64(t.all[last])/1e6, what+"-longest-ms")
	t.all, t.rows = nil, 0
}
