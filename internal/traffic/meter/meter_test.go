package meter_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
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

// clock is a clock that only moves when a test moves it.
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

// fataler is what both *testing.T and *rapid.T offer.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newMeter(t fataler, store traffic.Store, c *clock) *meter.Meter {
	t.Helper()
	m, err := meter.New(meter.Config{Store: store, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// identifier returns the identifier number n; for 0 it is zero.
func identifier(n int) (u [16]byte) {
	if n > 0 {
		u = [16]byte{0: 1, 14: byte(n >> 8), 15: byte(n)}
	}
	return u
}

// model is the list of all requests.
type model struct{ records []accesslog.Entry }

// rows returns the rows that a report should have, by time and group.
func (m *model) rows(account [16]byte, q traffic.Query) map[string]traffic.Row {
	length := time.Duration(q.Interval)
	from := q.Since.Truncate(length)
	out := map[string]traffic.Row{}
	for _, e := range m.records {
		r := e.Record
		at := time.UnixMicro(r.Start).UTC()
		if r.Account != account || at.Before(from) || !at.Before(q.Until.Add(length-1).Truncate(length)) || r.Part == accesslog.Started ||
			!passes(q.GatewayID, id.Gateway, r.Gateway) || !passes(q.RouteID, id.Route, r.Route) || !passes(q.KeyID, id.Key, r.Key) ||
			q.Upstream != "" && e.UpstreamName != q.Upstream || q.Target != "" && e.Target != q.Target ||
			q.Group == traffic.BySubject && (e.Token == nil || e.Token.Subject == "") {
			continue
		}
		row := traffic.Row{Start: at.Truncate(length), Group: groupOf(q.Group, &e)}
		if q.Group == traffic.BySubject {
			row.IssuerID = e.Token.IssuerID
		}
		k := row.Start.String() + row.Group + row.IssuerID
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
		for c := range accesslog.Costs(e.Cost) {
			row.Meters = plus(row.Meters, c.Meter, c.Units)
		}
		out[k] = row
	}
	return out
}

// plus returns amounts with more units of a meter, ordered by meter.
func plus(a traffic.Amounts, meter string, units int64) traffic.Amounts {
	sums := map[string]int64{}
	for _, one := range append(slices.Clone(a), traffic.Amount{Meter: meter, Units: units}) {
		sums[one.Meter] += one.Units
	}
	var out traffic.Amounts
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if sums[name] > 0 {
			out = append(out, traffic.Amount{Meter: name, Units: sums[name]})
		}
	}
	return out
}

// passes reports whether a filter, "" for none, matches an identifier.
func passes(filter string, k id.Kind, u [16]byte) bool {
	return filter == "" || filter == id.Format(k, u)
}

// groupOf returns the group of a request.
func groupOf(g traffic.Grouping, r *accesslog.Entry) string {
	k, u := id.Gateway, r.Gateway
	switch g {
	case traffic.Together:
		return ""
	case traffic.ByStatus:
		return strconv.Itoa(int(r.Status))
	case traffic.ByUpstream:
		return r.UpstreamName
	case traffic.ByTarget:
		return r.Target
	case traffic.BySubject:
		return r.Token.Subject
	case traffic.BySide:
		if !r.Split {
			return ""
		}
		return r.UpstreamName
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

var groupings = []traffic.Grouping{
	traffic.Together, traffic.ByGateway, traffic.ByRoute, traffic.ByKey, traffic.ByStatus, traffic.ByUpstream, traffic.ByTarget, traffic.BySide, traffic.BySubject,
}

// isCounted reports whether what q asks for is counted together.
func isCounted(q *traffic.Query) bool {
	ofTargets := q.Upstream != "" || q.Target != ""
	switch q.Group {
	case traffic.ByUpstream, traffic.ByTarget, traffic.BySide:
		ofTargets = true
	case traffic.ByRoute, traffic.ByKey:
		return !ofTargets
	case traffic.BySubject:
		return !ofTargets && q.RouteID == "" && q.KeyID == ""
	}
	return !ofTargets || q.RouteID == "" && q.KeyID == ""
}

// check compares reports with every grouping, and with the filters of q, with the model.
func (m *model) check(t fataler, report *meter.Meter, account [16]byte, q traffic.Query) {
	t.Helper()
	for _, g := range groupings {
		if q.Group = g; !isCounted(&q) {
			continue
		}
		got, err := report.Report(context.Background(), id.Format(id.Account, account), q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		want := m.rows(account, q)
		intervals := int(q.Until.Add(time.Duration(q.Interval)-1).Truncate(time.Duration(q.Interval)).Sub(q.Since.Truncate(time.Duration(q.Interval))) / time.Duration(q.Interval))
		groups := map[string]bool{}
		for i, row := range got {
			groups[row.Group+row.IssuerID] = true
			if i > 0 && cmp.Or(got[i-1].Start.Compare(row.Start), cmp.Compare(got[i-1].Group, row.Group), cmp.Compare(got[i-1].IssuerID, row.IssuerID)) >= 0 && g != traffic.ByStatus {
				t.Fatalf("%+v: got the row %+v after %+v, want them sorted", q, row, got[i-1])
			}
			if row.Latency != nil && (g == traffic.ByKey || g == traffic.BySubject || q.KeyID != "") {
				t.Fatalf("%+v: got the latencies %+v of a key or subject, want none", q, row.Latency)
			}
			if row.Requests > 0 && row.Latency == nil && g != traffic.ByKey && g != traffic.BySubject && q.KeyID == "" {
				t.Fatalf("%+v: got no latencies at %s, want some", q, row.Start)
			}
			row.Latency, row.Upstream = nil, nil
			k := row.Start.String() + row.Group + row.IssuerID
			expected, ok := want[k]
			if !ok {
				expected = traffic.Row{Start: row.Start, Group: row.Group, IssuerID: row.IssuerID}
			}
			if !reflect.DeepEqual(row, expected) {
				t.Fatalf("%+v:\n got %+v\nwant %+v", q, row, expected)
			}
			delete(want, k)
		}
		if len(want) > 0 {
			t.Fatalf("%+v: the report lacks the rows %+v", q, slices.Collect(maps.Values(want)))
		}
		m.checkTop(t, report, account, q, got)
		if len(got) != intervals*len(groups) || g == traffic.Together && len(got) != intervals {
			t.Fatalf("%+v: got %d rows of %d groups, want %d for each", q, len(got), len(groups), intervals)
		}
	}
}

// checkTop compares the greatest groups of q with the rows of its report.
func (m *model) checkTop(t fataler, report *meter.Meter, account [16]byte, q traffic.Query, rows []traffic.Row) {
	t.Helper()
	totals := map[string]traffic.Row{}
	for _, r := range rows {
		sum := totals[r.Group+r.IssuerID]
		sum.Group, sum.IssuerID = r.Group, r.IssuerID
		sum.Requests += r.Requests
		for class, n := range r.Status {
			sum.Status[class] += n
		}
		sum.Limited, sum.Unauthorized, sum.Forbidden = sum.Limited+r.Limited, sum.Unauthorized+r.Unauthorized, sum.Forbidden+r.Forbidden
		sum.UpstreamErrors, sum.BytesIn, sum.BytesOut = sum.UpstreamErrors+r.UpstreamErrors, sum.BytesIn+r.BytesIn, sum.BytesOut+r.BytesOut
		for _, a := range r.Meters {
			sum.Meters = plus(sum.Meters, a.Meter, a.Units)
		}
		totals[r.Group+r.IssuerID] = sum
	}
	for by, of := range map[traffic.Order]func(traffic.Row) int64{
		traffic.ByRequests: func(r traffic.Row) int64 { return r.Requests },
		traffic.ByErrors:   func(r traffic.Row) int64 { return r.Status[3] },
		traffic.ByRefused:  func(r traffic.Row) int64 { return r.Limited + r.Unauthorized + r.Forbidden },
		traffic.ByBytesOut: func(r traffic.Row) int64 { return r.BytesOut },
	} {
		var want []int64
		for _, sum := range totals {
			if n := of(sum); n > 0 {
				want = append(want, n)
			}
		}
		slices.SortFunc(want, func(a, b int64) int { return cmp.Compare(b, a) })
		want = want[:min(len(want), 3)]
		got, err := report.Top(context.Background(), id.Format(id.Account, account), q, by, 3)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%+v by %s: got %d rows, %v, want %d", q, by, len(got), err, len(want))
		}
		for i, row := range got {
			row.Start = time.Time{}
			if of(row.Row) != want[i] || !reflect.DeepEqual(row.Row, totals[row.Group+row.IssuerID]) {
				t.Fatalf("%+v by %s:\n got %+v\nwant %+v, with %d", q, by, row, totals[row.Group+row.IssuerID], want[i])
			}
		}
	}
}

// harness is a Meter on a clock, with a model of the requests that it took.
type harness struct {
	clock          *clock
	meter          *meter.Meter
	model          model
	account, other [16]byte
}

// small generates numbers of gateways, routes and keys.
func small() *rapid.Generator[int] { return rapid.IntRange(0, 3) }

// request generates a request that started about now, mostly of the account.
func (h *harness) request(t *rapid.T) accesslog.Entry {
	ago := rapid.SampledFrom([]time.Duration{0, 0, 0, time.Second, time.Minute, 90 * time.Minute, 30 * time.Hour, -time.Hour}).Draw(t, "ago")
	r := accesslog.Record{
		Start:    h.clock.now().Add(-ago).UnixMicro(),
		Duration: rapid.Int64Range(0, 1<<32).Draw(t, "duration"), Upstream: rapid.Int64Range(-1, 1<<30).Draw(t, "upstream"),
		Account: h.account, Gateway: identifier(small().Draw(t, "gateway") + 1), Route: identifier(small().Draw(t, "route")), Key: identifier(small().Draw(t, "key")),
		BytesIn: rapid.Int64Range(0, 1<<40).Draw(t, "in"), BytesOut: rapid.Int64Range(0, 1<<40).Draw(t, "out"),
		Status: rapid.SampledFrom([]uint16{101, 200, 204, 301, 401, 403, 404, 429, 499, 500, 502, 504}).Draw(t, "status"),
		Result: accesslog.Result(rapid.IntRange(0, int(accesslog.Abandoned)).Draw(t, "result")),
		Part:   rapid.SampledFrom([]accesslog.Part{accesslog.Whole, accesslog.Whole, accesslog.Started, accesslog.Ended}).Draw(t, "part"),
	}
	if rapid.IntRange(0, 9).Draw(t, "account") == 0 {
		r.Account = h.other
	}
	var costs []byte
	for _, meter := range rapid.SampledFrom([][]string{nil, nil, {"tokens"}, {"cents", "tokens"}, {"requests"}}).Draw(t, "meters") {
		costs = accesslog.AppendCost(costs, &accesslog.Cost{Meter: meter, Units: rapid.Int64Range(0, 1<<40).Draw(t, meter), Reserved: 1})
	}
	e := accesslog.Entry{Record: r, Cost: string(costs)}
	e.UpstreamName = rapid.SampledFrom([]string{"", "default", "default", "next"}).Draw(t, "upstream name")
	if e.UpstreamName != "" {
		e.Target, e.Split = fmt.Sprintf("10.0.0.%d:80", small().Draw(t, "target")), rapid.Bool().Draw(t, "split")
	}
	if subject := rapid.SampledFrom([]string{"", "ada", "ada", "b\x00b"}).Draw(t, "subject"); subject != "" || rapid.Bool().Draw(t, "refused token") {
		e.Token = &accesslog.Token{IssuerID: rapid.SampledFrom([]string{"iss_1", "iss_2"}).Draw(t, "issuer"), Subject: subject}
	}
	return e
}

// take hands requests to the meter and the model.
func (h *harness) take(t *rapid.T) {
	batch := rapid.SliceOfN(rapid.Custom(h.request), 1, 10).Draw(t, "batch")
	h.meter.Take(batch)
	h.model.records = append(h.model.records, batch...)
}

// report compares reports about a time, with or without filters, with the model.
func (h *harness) report(t *rapid.T) {
	must(t, h.meter.Sync(context.Background()))
	q := traffic.Query{Interval: rapid.SampledFrom([]traffic.Interval{traffic.Minute, traffic.Hour, traffic.Day}).Draw(t, "interval")}
	q.Until = h.clock.now().Add(rapid.SampledFrom([]time.Duration{0, time.Microsecond, time.Hour}).Draw(t, "until"))
	q.Since = q.Until.Add(-rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Minute, 26 * time.Hour}).Draw(t, "span"))
	if rapid.Bool().Draw(t, "gateway filter") {
		q.GatewayID = id.Format(id.Gateway, identifier(small().Draw(t, "gateway")+1))
	}
	if rapid.Bool().Draw(t, "route filter") {
		q.RouteID = id.Format(id.Route, identifier(small().Draw(t, "route")+1))
	}
	if q.GatewayID != "" && rapid.Bool().Draw(t, "upstream filter") {
		q.Upstream = "default"
	}
	if rapid.Bool().Draw(t, "target filter") {
		q.Target = "10.0.0.1:80"
	}
	if rapid.Bool().Draw(t, "key filter") {
		q.KeyID = id.Format(id.Key, identifier(small().Draw(t, "key")+1))
	}
	h.model.check(t, h.meter, rapid.SampledFrom([][16]byte{h.account, h.account, h.other}).Draw(t, "reader"), q)
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Guarantee: reports count every request and its costs exactly once, and only for its account, with every
// grouping, filter and interval, whatever the order of requests, flushes, merges, restarts
// and steps of the clock.
func TestEveryRequestIsCountedOnce(t *testing.T) {
	db := sqlitetest.Open(t, sqlite.Config{})
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		// The clock starts in the night in which summer time begins in Europe.
		h := &harness{clock: &clock{at: time.Date(2026, 3, 28, 23, 58, 0, 0, time.UTC)}, account: id.NewFast(), other: id.NewFast()}
		h.meter = newMeter(t, db, h.clock)
		t.Repeat(map[string]func(*rapid.T){
			"take":     h.take,
			"sync":     func(t *rapid.T) { must(t, h.meter.Sync(ctx)) },
			"maintain": func(t *rapid.T) { must(t, h.meter.Maintain(ctx)) },
			"report":   h.report,
			"restart": func(t *rapid.T) {
				must(t, h.meter.Stop(ctx))
				h.meter = newMeter(t, db, h.clock)
			},
			"wait": func(t *rapid.T) {
				h.clock.add(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, time.Minute, 40 * time.Minute, 3 * time.Hour, -10 * time.Minute}).Draw(t, "time"))
			},
		})
		must(t, h.meter.Stop(ctx))
	})
}
