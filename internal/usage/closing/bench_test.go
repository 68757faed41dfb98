package closing_test

import (
	"context"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/traffic/meter"
	"github.com/keygate/keygate/internal/usage"
	"github.com/keygate/keygate/internal/usage/closing"
)

// timed is a store that notes how long the transactions of closings took.
type timed struct {
	*sqlite.DB
	longest time.Duration
}

func (s *timed) CloseUsage(ctx context.Context, c *usage.Closing, now time.Time) error {
	before := time.Now()
	err := s.DB.CloseUsage(ctx, c, now)
	s.longest = max(s.longest, time.Since(before))
	return err
}

// BenchmarkClose closes an hour in which the keys of 100,000 owners were used ten times each.
func BenchmarkClose(b *testing.B) {
	const owners = 100_000
	db := &timed{DB: sqlitetest.Open(b, sqlite.Config{})}
	now := time.Date(2026, 3, 1, 0, 30, 0, 0, time.UTC)
	m, err := meter.New(meter.Config{Store: db, Now: func() time.Time { return now }})
	if err != nil {
		b.Fatal(err)
	}
	closer, err := closing.New(closing.Config{Store: db, Alone: true, Now: func() time.Time { return now }, Flush: m.Sync})
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
		if err := closer.Step(b.Context()); err != nil {
			b.Fatal(err)
		}
		spent += proctest.CPUTime(b) - before
	}
	b.ReportMetric(float64(spent)/float64(b.N)/1e6, "cpu-ms/hour")
	b.ReportMetric(float64(db.longest)/1e6, "longest-transaction-ms")
}
