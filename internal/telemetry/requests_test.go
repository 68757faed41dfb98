package telemetry

import (
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// table is a configuration: the routes of each gateway.
type table map[string]map[string]bool

func (c table) Describe(gatewayID, routeID string) (hostname, path, methods string, ok bool) {
	routes, ok := c[gatewayID]
	return "gw.example", "/orders/{id}", "GET,POST", ok && (routeID == "" || routes[routeID])
}

func number(n int) (u [16]byte) {
	binary.BigEndian.PutUint64(u[8:], uint64(n))
	return u
}

func newRequests(t testing.TB, c table) *Requests {
	t.Helper()
	r, err := NewRequests(RequestsConfig{Routes: func() Routes { return c }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// record is a request that was forwarded.
func record(gateway, route int) accesslog.Entry {
	return accesslog.Entry{Record: accesslog.Record{
		Gateway: number(gateway), Route: number(route), Status: 200, UpstreamStatus: 200, Duration: int64(3 * time.Millisecond),
		Upstream: int64(2 * time.Millisecond), BytesIn: 5, BytesOut: 7,
	}}
}

// Guarantee: what ended is counted where it ended; a route and a gateway that are
// no more are no more counted; what found no gateway has no identifiers.
func TestRequests(t *testing.T) {
	gw, rt, other := id.Format(id.Gateway, number(1)), id.Format(id.Route, number(2)), id.Format(id.Route, number(3))
	c := table{gw: {rt: true, other: true}}
	r := newRequests(t, c)
	limited := record(1, 2)
	limited.Status, limited.UpstreamStatus, limited.Upstream, limited.Result, limited.LimitScope = 429, 0, -1, accesslog.Limited, uint8(ratelimit.DailyScope)
	failed := record(1, 3)
	failed.Status, failed.UpstreamStatus = 503, 503
	cut := record(1, 3)
	cut.Status, cut.UpstreamStatus, cut.Upstream, cut.Result = 504, 0, -1, accesslog.TimedOut
	tunnel := record(1, 2)
	tunnel.Status, tunnel.UpstreamStatus, tunnel.Duration = 101, 101, int64(time.Hour)
	nowhere := accesslog.Entry{Record: accesslog.Record{Status: 404, Result: accesslog.NoGateway, Upstream: -1}}
	begun, ended := record(1, 2), record(1, 2)
	begun.Part, ended.Part = accesslog.Started, accesslog.Ended
	r.Take([]accesslog.Entry{begun, ended, record(1, 2), limited, failed, cut, tunnel, nowhere, nowhere})

	registry := prometheus.NewRegistry()
	registry.MustRegister(r)
	expect := func(prefix string, want ...string) {
		t.Helper()
		for i, line := range want {
			want[i] = strings.NewReplacer("GW", gw, "RT", rt, "OTHER", other).Replace(line)
		}
		slices.Sort(want)
		if got := shown(registry, prefix); !slices.Equal(got, want) {
			t.Errorf("shown\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	expect("keygate_requests_total{",
		`keygate_requests_total{gateway="",route="",status="4xx"} 2`,
		`keygate_requests_total{gateway="GW",route="RT",status="1xx"} 1`,
		`keygate_requests_total{gateway="GW",route="RT",status="2xx"} 2`,
		`keygate_requests_total{gateway="GW",route="RT",status="4xx"} 1`,
		`keygate_requests_total{gateway="GW",route="OTHER",status="5xx"} 2`)
	expect("keygate_limit_refusals_total{", `keygate_limit_refusals_total{gateway="GW",route="RT",scope="daily"} 1`)
	expect("keygate_upstream_errors_total{",
		`keygate_upstream_errors_total{gateway="GW",reason="timeout",route="OTHER"} 1`,
		`keygate_upstream_errors_total{gateway="GW",reason="upstream_status",route="OTHER"} 1`)
	expect("keygate_route_info{",
		`keygate_route_info{gateway="GW",host="gw.example",methods="GET,POST",path="/orders/{id}",route="RT"} 1`,
		`keygate_route_info{gateway="GW",host="gw.example",methods="GET,POST",path="/orders/{id}",route="OTHER"} 1`)
	expect("keygate_request_body_bytes_total{",
		`keygate_request_body_bytes_total{gateway="",route=""} 0`,
		`keygate_request_body_bytes_total{gateway="GW",route="RT"} 20`,
		`keygate_request_body_bytes_total{gateway="GW",route="OTHER"} 10`)
	if got := histogramCount(t, registry, "keygate_request_duration_seconds", rt); got != 3 {
		t.Errorf("%d durations of the first route, want 3: that of a tunnel is none", got)
	}
	if got := histogramCount(t, registry, "keygate_upstream_duration_seconds", other); got != 1 {
		t.Errorf("%d durations upstream of the second route, want 1: what gave no answer has none", got)
	}

	delete(c[gw], rt)
	expect("keygate_requests_total{",
		`keygate_requests_total{gateway="",route="",status="4xx"} 2`,
		`keygate_requests_total{gateway="GW",route="OTHER",status="5xx"} 2`)
	r.Take([]accesslog.Entry{record(1, 2)}) // it was still running
	delete(c, gw)
	expect("keygate_requests_total{",
		`keygate_requests_total{gateway="",route="",status="4xx"} 2`)
}

// shown returns the lines of /metrics that begin with prefix, in order.
func shown(g prometheus.Gatherer, prefix string) (out []string) {
	body := httptest.NewRecorder()
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(body, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.Lines(body.Body.String()) {
		if strings.HasPrefix(line, prefix) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	slices.Sort(out)
	return out
}

func histogramCount(t *testing.T, g prometheus.Gatherer, name, route string) uint64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == "route" && l.GetValue() == route {
					return m.GetHistogram().GetSampleCount()
				}
			}
		}
	}
	return 0
}

// Guarantee: routes that come and go do not pile up, even if nobody looks.
func TestRequestsForgetWithoutBeingAsked(t *testing.T) {
	r := newRequests(t, table{})
	for i := range 50_000 {
		r.Take([]accesslog.Entry{record(1, i+1)})
	}
	if n := len(r.series); n > leastPrune {
		t.Errorf("%d series of routes that are no more, want at most %d", n, leastPrune)
	}
}

// Guarantee: the lag is the longest of this minute and the one before.
func TestLag(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	r, err := NewRequests(RequestsConfig{Routes: func() Routes { return table{} }, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	take := func(ago time.Duration) {
		e := record(1, 2)
		e.Start = now.Add(-ago).UnixMicro() - e.Duration/1000
		r.Take([]accesslog.Entry{e})
	}
	want := func(d time.Duration) {
		t.Helper()
		if _, _, got := r.copy(table{}); got != d.Seconds() {
			t.Errorf("the lag is %v s, want %v", got, d)
		}
	}
	want(0)
	take(2 * time.Second)
	take(time.Second)
	want(2 * time.Second)
	now = now.Add(time.Minute)
	take(time.Second)
	want(2 * time.Second)
	now = now.Add(time.Minute)
	want(time.Second)
	now = now.Add(2 * time.Minute)
	want(0)
}

// Guarantee: counting while somebody looks loses nothing.
func TestRequestsWhileTold(t *testing.T) {
	gw := id.Format(id.Gateway, number(1))
	c := table{gw: {}}
	for i := range 201 {
		c[gw][id.Format(id.Route, number(i))] = i%2 == 0 // the others are no more
	}
	r := newRequests(t, c)
	var counting sync.WaitGroup
	counting.Go(func() {
		for range 60 {
			r.Take(mixed(200))
		}
	})
	for looking := true; looking; {
		_, all, _ := r.copy(c)
		for i := range all {
			if s := &all[i]; s.statuses[2] != s.took.count {
				t.Fatalf("%d requests, %d durations", s.statuses[2], s.took.count)
			}
		}
		r.mu.Lock()
		looking = r.ended[accesslog.Forwarded] < 60*1024
		r.mu.Unlock()
	}
	counting.Wait()
	_, all, _ := r.copy(c)
	for i := range all {
		if s := &all[i]; s.route != "" && !c[gw][s.route] || s.gateway != "" && s.statuses[2] < 60*5 {
			t.Errorf("%s %s: %d requests", s.gateway, s.route, s.statuses[2])
		}
	}
	if len(all) != 101 {
		t.Errorf("%d series, want those of 100 routes and of nowhere", len(all))
	}
}

// Guarantee: in steady state a record costs no allocation.
func TestRequestsAllocate(t *testing.T) {
	r := newRequests(t, table{})
	batch := mixed(100)
	r.Take(batch)
	if n := testing.AllocsPerRun(100, func() { r.Take(batch) }); n > 0 {
		t.Errorf("%v allocations for a batch, want none", n)
	}
}

// mixed is a batch for many routes, with durations from 0.1 to 100 ms.
func mixed(routes int) []accesslog.Entry {
	batch := make([]accesslog.Entry, 1024)
	for i := range batch {
		batch[i] = record(1, i*7%routes+1)
		batch[i].Duration = int64(100*time.Microsecond) << (i % 10)
		batch[i].Upstream = batch[i].Duration / 3
	}
	return batch
}

func BenchmarkRequests(b *testing.B) {
	for _, c := range []struct {
		name   string
		routes int
	}{{"1 route", 1}, {"100 routes", 100}, {"1000 routes", 1000}} {
		b.Run(c.name, func(b *testing.B) {
			r, batch := newRequests(b, table{}), mixed(c.routes)
			b.ReportAllocs()
			for i := 0; i < b.N; i += len(batch) {
				r.Take(batch[:min(len(batch), b.N-i)])
			}
		})
	}
}
