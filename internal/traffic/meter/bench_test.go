package meter

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/traffic"
)

// mixed returns batches of requests of an account with that many routes and keys: nearly all
// within one second, 1 of 16 refused, and the others sent to three targets.
func mixed(routes, keys int) [][]accesslog.Entry {
	gateway, account := id.NewFast(), id.NewFast()
	routeIDs, keyIDs := make([][16]byte, routes), make([][16]byte, keys)
	for i := range routeIDs {
		routeIDs[i] = id.NewFast()
	}
	for i := range keyIDs {
		keyIDs[i] = id.NewFast()
	}
	targets := [...]string{"10.0.0.1:8443", "10.0.0.2:8443", "10.0.0.3:8443"}
	batches := make([][]accesslog.Entry, 512)
	n := uint64(1)
	for b := range batches {
		batches[b] = make([]accesslog.Entry, 128)
		for i := range batches[b] {
			n = n*6364136223846793005 + 1442695040888963407
			r := &batches[b][i].Record
			*r = accesslog.Record{Account: account, Gateway: gateway, Route: routeIDs[n>>33%uint64(routes)], Key: keyIDs[n>>35%uint64(keys)],
				Start: 1_800_000_000_000_000 + int64(b)*1000, Duration: int64(n >> 40), Upstream: int64(n >> 41), BytesIn: 100, BytesOut: 2000, Status: 200}
			if n>>40%16 == 0 {
				r.Status, r.Result, r.Upstream = 429, accesslog.Limited, -1
			} else {
				r.SetPeriod(0, math.MaxInt64)
				batches[b][i].UpstreamName, batches[b][i].Target = "default", targets[n>>37%uint64(len(targets))]
			}
		}
	}
	return batches
}

// BenchmarkTake measures the time of Take for one record. An iteration is a record.
func BenchmarkTake(b *testing.B) {
	for _, size := range []struct{ routes, keys int }{{1, 1}, {10, 100}, {50, 1000}, {1000, 10_000}} {
		b.Run(fmt.Sprintf("%d_routes_%d_keys", size.routes, size.keys), func(b *testing.B) {
			batches := mixed(size.routes, size.keys)
			m, err := New(Config{Store: nowhere{}})
			if err != nil {
				b.Fatal(err)
			}
			for _, w := range []*window{m.active, m.spare} {
				for _, batch := range batches {
					for i := range batch {
						w.add(&batch[i])
					}
				}
				w.reset()
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := proctest.CPUTime(b)
			for i := 0; i < b.N; i += 128 {
				at := i / 128
				if at%len(batches) == 0 {
					m.active.reset()
				}
				m.Take(batches[at%len(batches)])
			}
			b.ReportMetric(float64(proctest.CPUTime(b)-before)/float64(b.N), "cpu-ns/record")
		})
	}
}

// nowhere is a store for benchmarks that write nothing.
type nowhere struct{ traffic.Store }

// BenchmarkFlush measures the time of a flush for each record of a tenth of a second with 13,000
// requests a second.
func BenchmarkFlush(b *testing.B) {
	db, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "keygate.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	m, err := New(Config{Store: db})
	if err != nil {
		b.Fatal(err)
	}
	batches := mixed(50, 1000)[:10]
	b.ReportAllocs()
	spent := time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		for _, batch := range batches {
			m.Take(batch)
		}
		b.StartTimer()
		before := proctest.CPUTime(b)
		if err := m.Sync(context.Background()); err != nil {
			b.Fatal(err)
		}
		spent += proctest.CPUTime(b) - before
	}
	b.ReportMetric(float64(spent)/float64(b.N)/float64(len(batches)*128), "cpu-ns/record")
}

// BenchmarkReport measures reports over 35 days with 1,000 routes, 10,000 keys and a few
// statuses, all of them used in each hour.
func BenchmarkReport(b *testing.B) {
	ctx := context.Background()
	db, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(b.TempDir(), "keygate.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	end := time.Date(2026, 5, 6, 0, 0, 0, 0, time.UTC)
	batches := mixed(1000, 10_000)
	account := fillHours(b, db, end, batches)
	m, err := New(Config{Store: db, Now: func() time.Time { return end }})
	if err != nil {
		b.Fatal(err)
	}
	route, key := id.Format(id.Route, batches[0][0].Route), id.Format(id.Key, batches[0][0].Key)
	for _, test := range []struct {
		name string
		q    traffic.Query
	}{
		{"hours", traffic.Query{Interval: traffic.Hour}},
		{"hours_by_status", traffic.Query{Interval: traffic.Hour, Group: traffic.ByStatus}},
		{"hours_of_a_route", traffic.Query{Interval: traffic.Hour, RouteID: route}},
		{"hours_by_target", traffic.Query{Interval: traffic.Hour, Group: traffic.ByTarget}},
		{"hours_of_a_key", traffic.Query{Interval: traffic.Hour, KeyID: key}},
		{"a_day_of_hours_by_route", traffic.Query{Interval: traffic.Hour, Group: traffic.ByRoute, Since: end.Add(-24 * time.Hour)}},
	} {
		b.Run(test.name, func(b *testing.B) {
			if test.q.Since.IsZero() {
				test.q.Since = end.Add(-35 * 24 * time.Hour)
			}
			test.q.Until = end
			b.ReportAllocs()
			before := proctest.CPUTime(b)
			for b.Loop() {
				rows, err := m.Report(ctx, account, test.q)
				if err != nil || len(rows) < 24 || rows[0].Requests == 0 && rows[len(rows)-1].Requests == 0 {
					b.Fatalf("got %d rows and the error %v, want at least 24 rows with requests", len(rows), err)
				}
			}
			b.ReportMetric(float64(proctest.CPUTime(b)-before)/float64(b.N)/1e6, "cpu-ms/report")
		})
	}
}

// BenchmarkTop measures the ten greatest of 10,000 keys, and of 1,000 routes, over a day.
func BenchmarkTop(b *testing.B) {
	ctx := context.Background()
	db, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(b.TempDir(), "keygate.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	end := time.Date(2026, 5, 6, 0, 0, 0, 0, time.UTC)
	account := fillHours(b, db, end, mixed(1000, 10_000))
	m, err := New(Config{Store: db, Now: func() time.Time { return end }})
	if err != nil {
		b.Fatal(err)
	}
	for _, by := range []traffic.Grouping{traffic.ByRoute, traffic.ByKey} {
		b.Run("a_day_by_"+string(by), func(b *testing.B) {
			q := traffic.Query{Interval: traffic.Hour, Group: by, Since: end.Add(-24 * time.Hour), Until: end}
			b.ReportAllocs()
			before := proctest.CPUTime(b)
			for b.Loop() {
				rows, err := m.Top(ctx, account, q, traffic.ByRequests, 10)
				if err != nil || len(rows) != 10 {
					b.Fatalf("got %d rows and the error %v, want 10", len(rows), err)
				}
			}
			b.ReportMetric(float64(proctest.CPUTime(b)-before)/float64(b.N)/1e6, "cpu-ms/report")
		})
	}
}

// fillHours stores the requests of batches in each hour of the 35 days before end, merged and
// also added to their days, and returns their account.
func fillHours(b *testing.B, db *sqlite.DB, end time.Time, batches [][]accesslog.Entry) (accountID string) {
	b.Helper()
	w := newWindow()
	for _, batch := range batches {
		for i := range batch {
			batch[i].Start = end.UnixMicro() - 1
			w.add(&batch[i])
		}
	}
	pattern := w.chunks()
	for hour := range int64(35 * 24) {
		var chunks []traffic.Chunk
		for _, c := range pattern {
			if c.Part == traffic.Seconds {
				continue
			}
			c.Tier, c.State, c.Start = c.Part.In(traffic.Hours), traffic.Merged, end.Unix()-(hour+1)*3600
			chunks = append(chunks, c)
			if hour%24 == 0 {
				c.Tier, c.State, c.Start = c.Part.In(traffic.Days), traffic.Rolled, end.Unix()-(hour/24+1)*86400
				chunks = append(chunks, c)
			}
		}
		if err := db.AppendTraffic(b.Context(), accesslog.BatchID{}, chunks); err != nil {
			b.Fatal(err)
		}
	}
	return pattern[0].AccountID
}

// BenchmarkSimulate measures the simulation of a limit over a day with 20,000 requests a second of
// ten keys: a limit that refuses none, and a limit that refuses nearly all.
func BenchmarkSimulate(b *testing.B) {
	ctx := context.Background()
	db, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(b.TempDir(), "keygate.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	end := time.Date(2026, 5, 6, 0, 0, 0, 0, time.UTC)
	of := traffic.Flow{Gateway: id.NewFast(), Route: id.NewFast()}
	minute := traffic.NewArrivals()
	for range 10 {
		of.Key = id.NewFast()
		for second := range 60 {
			minute.Add(of, second, 2000)
		}
	}
	account := id.New(id.Account)
	for start := end.Unix() - 86400; start < end.Unix(); start += 60 {
		if err := db.AppendTraffic(ctx, accesslog.BatchID{}, minute.Chunks(traffic.Chunk{AccountID: account, Tier: traffic.Minutes, State: traffic.Rolled, Start: start})); err != nil {
			b.Fatal(err)
		}
	}
	m, err := New(Config{Store: db, Now: func() time.Time { return end }})
	if err != nil {
		b.Fatal(err)
	}
	of.Key = [16]byte{}
	for _, limit := range []int64{100_000, 1000} {
		b.Run(fmt.Sprintf("%d_a_second", limit), func(b *testing.B) {
			before := proctest.CPUTime(b)
			for b.Loop() {
				got, err := m.Simulate(ctx, account, traffic.What{Flow: of, Limit: ratelimit.Config{Sustained: ratelimit.Rate{Count: limit, Per: time.Second}}})
				if err != nil || got.Requests != 86400*20_000 {
					b.Fatalf("got %+v and the error %v, want %d requests", got, err, 86400*20_000)
				}
			}
			b.ReportMetric(float64(proctest.CPUTime(b)-before)/float64(b.N)/1e6, "cpu-ms/day")
		})
	}
}
