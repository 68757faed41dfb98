package meter_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/traffic/meter"
)

// clock moves when it is told.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func open(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	return sqlitetest.Open(t, sqlite.Config{Path: path})
}

func newMeter(t fataler, store traffic.Store, c *clock) *meter.Meter {
	t.Helper()
	m, err := meter.New(meter.Config{Store: store, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func identifier(n int) (u [16]byte) {
	if n > 0 {
		u = [16]byte{0: 1, 14: byte(n >> 8), 15: byte(n)}
	}
	return u
}

// model is a house's traffic as a list.
type model struct{ records []accesslog.Record }

// rows counts the list as a report is promised to.
func (m *model) rows(account [16]byte, q traffic.Query) map[string]traffic.Row {
	length := time.Duration(q.Interval)
	from := q.Since.Truncate(length)
	out := map[string]traffic.Row{}
	for _, r := range m.records {
		at := time.UnixMicro(r.Start).UTC()
		if r.Account != account || at.Before(from) || !at.Before(q.Until.Add(length-1).Truncate(length)) || r.Part == accesslog.Started ||
			!passes(q.GatewayID, id.Gateway, r.Gateway) || !passes(q.RouteID, id.Route, r.Route) || !passes(q.KeyID, id.Key, r.Key) {
			continue
		}
		row := traffic.Row{Start: at.Truncate(length), Group: groupOf(q.Group, &r)}
		k := row.Start.String() + row.Group
		if old, ok := out[k]; ok {
			row = old
		}
		row.Requests++
		if class := int(r.Status)/100 - 2; class >= 0 && class < 4 {
			row.Status[class]++
		}
		switch r.Status {
		case 429:
			row.Limited++
		case 401:
			row.Unauthorized++
		case 403:
			row.Forbidden++
		}
		if r.Result == accesslog.Unreachable || r.Result == accesslog.TimedOut || r.UpstreamStatus >= 500 {
			row.UpstreamErrors++
		}
		row.BytesIn += r.BytesIn
		row.BytesOut += r.BytesOut
		out[k] = row
	}
	return out
}

func passes(filter string, k id.Kind, u [16]byte) bool {
	return filter == "" || filter == id.Format(k, u)
}

func groupOf(g traffic.Grouping, r *accesslog.Record) string {
	k, u := id.Gateway, r.Gateway
	switch g {
	case traffic.Together:
		return ""
	case traffic.ByStatus:
		return strconv.Itoa(int(r.Status))
	case traffic.ByRoute:
		k, u = id.Route, r.Route
	case traffic.ByKey:
		k, u = id.Key, r.Key
	}
	if u == ([16]byte{}) {
		return ""
	}
	return id.Format(k, u)
}

var groupings = []traffic.Grouping{traffic.Together, traffic.ByGateway, traffic.ByRoute, traffic.ByKey, traffic.ByStatus}

// check compares reports of every grouping, and with the filters given, with the list.
func (m *model) check(t fataler, report *meter.Meter, account [16]byte, q traffic.Query) {
	t.Helper()
	for _, g := range groupings {
		q.Group = g
		got, err := report.Report(context.Background(), id.Format(id.Account, account), q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		want := m.rows(account, q)
		intervals := int(q.Until.Add(time.Duration(q.Interval)-1).Truncate(time.Duration(q.Interval)).Sub(q.Since.Truncate(time.Duration(q.Interval))) / time.Duration(q.Interval))
		groups := map[string]bool{}
		for i, row := range got {
			groups[row.Group] = true
			if i > 0 && cmp.Or(got[i-1].Start.Compare(row.Start), cmp.Compare(got[i-1].Group, row.Group)) >= 0 && g != traffic.ByStatus {
				t.Fatalf("%+v: rows out of order", q)
			}
			if row.Latency != nil && (g == traffic.ByKey || q.KeyID != "") {
				t.Fatalf("%+v: latencies of a key", q)
			}
			if row.Requests > 0 && row.Latency == nil && g != traffic.ByKey && q.KeyID == "" {
				t.Fatalf("%+v: no latencies at %s", q, row.Start)
			}
			row.Latency, row.Upstream = nil, nil
			k := row.Start.String() + row.Group
			expected, some := want[k]
			if !some {
				expected = traffic.Row{Start: row.Start, Group: row.Group}
			}
			if row != expected {
				t.Fatalf("%+v:\n got %+v\nwant %+v", q, row, expected)
			}
			delete(want, k)
		}
		if len(want) > 0 {
			t.Fatalf("%+v: missing %+v", q, slices.Collect(maps.Values(want)))
		}
		if len(got) != intervals*len(groups) || g == traffic.Together && len(got) != intervals {
			t.Fatalf("%+v: %d rows of %d groups, want %d for each", q, len(got), len(groups), intervals)
		}
	}
}

// TestEveryRequestIsCountedOnce holds the guarantee of exact counts: whatever the order of requests,
// flushes, merges, restarts and steps of the clock, every grouping, filter and interval
// gives the sums of the very requests that were taken, to nobody but their account.
func TestEveryRequestIsCountedOnce(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		c := &clock{at: time.Date(2026, 3, 28, 23, 58, 0, 0, time.UTC)} // the night of a change to summer time in Europe
		account, other := id.NewFast(), id.NewFast()
		m, list := newMeter(t, db, c), &model{}
		small := rapid.IntRange(0, 3)
		request := func(t *rapid.T) accesslog.Entry {
			r := accesslog.Record{
				Start:    c.now().Add(-rapid.SampledFrom([]time.Duration{0, 0, 0, time.Second, time.Minute, 90 * time.Minute, 30 * time.Hour, -time.Hour}).Draw(t, "ago")).UnixMicro(),
				Duration: rapid.Int64Range(0, 1<<32).Draw(t, "duration"), Upstream: rapid.Int64Range(-1, 1<<30).Draw(t, "upstream"),
				Account: account, Gateway: identifier(small.Draw(t, "gateway") + 1), Route: identifier(small.Draw(t, "route")), Key: identifier(small.Draw(t, "key")),
				BytesIn: rapid.Int64Range(0, 1<<40).Draw(t, "in"), BytesOut: rapid.Int64Range(0, 1<<40).Draw(t, "out"),
				Status: rapid.SampledFrom([]uint16{101, 200, 204, 301, 401, 403, 404, 429, 499, 500, 502, 504}).Draw(t, "status"),
				Result: accesslog.Result(rapid.IntRange(0, int(accesslog.Abandoned)).Draw(t, "decision")),
				Part:   rapid.SampledFrom([]accesslog.Part{accesslog.Whole, accesslog.Whole, accesslog.Started, accesslog.Ended}).Draw(t, "part"),
			}
			if rapid.IntRange(0, 9).Draw(t, "account") == 0 {
				r.Account = other
			}
			return accesslog.Entry{Record: r}
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				batch := rapid.SliceOfN(rapid.Custom(request), 1, 10).Draw(t, "batch")
				m.Take(batch)
				for i := range batch {
					list.records = append(list.records, batch[i].Record)
				}
			},
			"sync": func(t *rapid.T) {
				if err := m.Sync(ctx); err != nil {
					t.Fatal(err)
				}
			},
			"restart": func(t *rapid.T) {
				if err := m.Stop(ctx); err != nil {
					t.Fatal(err)
				}
				m = newMeter(t, db, c)
			},
			"maintain": func(t *rapid.T) {
				if err := m.Maintain(ctx); err != nil {
					t.Fatal(err)
				}
			},
			"wait": func(t *rapid.T) {
				c.add(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, time.Minute, 40 * time.Minute, 3 * time.Hour, -10 * time.Minute}).Draw(t, "time"))
			},
			"report": func(t *rapid.T) {
				if err := m.Sync(ctx); err != nil {
					t.Fatal(err)
				}
				q := traffic.Query{Interval: rapid.SampledFrom([]traffic.Interval{traffic.Minute, traffic.Hour, traffic.Day}).Draw(t, "interval")}
				q.Until = c.now().Add(rapid.SampledFrom([]time.Duration{0, time.Microsecond, time.Hour}).Draw(t, "until"))
				q.Since = q.Until.Add(-rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Minute, 26 * time.Hour}).Draw(t, "span"))
				if rapid.Bool().Draw(t, "gateway filter") {
					q.GatewayID = id.Format(id.Gateway, identifier(small.Draw(t, "gateway")+1))
				}
				if rapid.Bool().Draw(t, "route filter") {
					q.RouteID = id.Format(id.Route, identifier(small.Draw(t, "route")+1))
				}
				if rapid.Bool().Draw(t, "key filter") {
					q.KeyID = id.Format(id.Key, identifier(small.Draw(t, "key")+1))
				}
				list.check(t, m, rapid.SampledFrom([][16]byte{account, account, other}).Draw(t, "reader"), q)
			},
		})
		if err := m.Stop(ctx); err != nil {
			t.Fatal(err)
		}
	})
}
