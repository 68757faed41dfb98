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
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// table is a configuration: for each gateway, the routes that exist.
type table map[string]map[string]bool

func (c table) Describe(gatewayID, routeID string) (hostname, path, methods string, ok bool) {
	routes, ok := c[gatewayID]
	return "gw.example", "/orders/{id}", "GET,POST", ok && (routeID == "" || routes[routeID])
}

// number returns the identifier number n.
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

// record returns a forwarded request.
func record(gateway, route int) accesslog.Entry {
	return accesslog.Entry{Record: accesslog.Record{
		Gateway: number(gateway), Route: number(route), Status: 200, UpstreamStatus: 200, Duration: int64(3 * time.Millisecond),
		Upstream: int64(2 * time.Millisecond), BytesIn: 5, BytesOut: 7,
	}}
}

// requestsHarness is a Requests with two routes of one gateway, rt and other, registered with
// Prometheus.
type requestsHarness struct {
	*Requests
	config        table
	registry      *prometheus.Registry
	gw, rt, other string
}

// newRequestsHarness returns a harness that has counted requests with every kind of result.
func newRequestsHarness(t *testing.T) *requestsHarness {
	t.Helper()
	h := &requestsHarness{
		gw: id.Format(id.Gateway, number(1)), rt: id.Format(id.Route, number(2)), other: id.Format(id.Route, number(3)), registry: prometheus.NewRegistry(),
	}
	h.config = table{h.gw: {h.rt: true, h.other: true}}
	h.Requests = newRequests(t, h.config)
	h.registry.MustRegister(h.Requests)
	limited := record(1, 2)
	limited.Status, limited.UpstreamStatus, limited.Upstream, limited.Result, limited.LimitScope = 429, 0, -1, accesslog.Limited, uint8(ratelimit.DailyScope)
	failed := record(1, 3)
	failed.Status, failed.UpstreamStatus = 503, 503
	timedOut := record(1, 3)
	timedOut.Status, timedOut.UpstreamStatus, timedOut.Upstream, timedOut.Result = 504, 0, -1, accesslog.TimedOut
	tunnel := record(1, 2)
	tunnel.Status, tunnel.UpstreamStatus, tunnel.Duration = 101, 101, int64(time.Hour)
	noGateway := accesslog.Entry{Record: accesslog.Record{Status: 404, Result: accesslog.NoGateway, Upstream: -1}}
	started, ended := record(1, 2), record(1, 2)
	started.Part, ended.Part = accesslog.Started, accesslog.Ended
	var text []byte
	for _, c := range []accesslog.Cost{{Meter: "tokens", Units: 1204, Reserved: 2000}, {Meter: "cents", Reserved: 1}, {Meter: "requests", Units: 3}} {
		text = accesslog.AppendCost(text, &c)
	}
	ended.Cost, started.Cost = string(text), string(text)
	failed.Cost = string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: "tokens", Units: 16000, Unknown: "missing"}))
	timedOut.Cost = string(accesslog.AppendCost(nil, &accesslog.Cost{Meter: "tokens", Unknown: "incomplete"}))
	h.Take([]accesslog.Entry{started, ended, record(1, 2), limited, failed, timedOut, tunnel, noGateway, noGateway})
	return h
}

// want checks the series that begin with prefix. GW, RT and OTHER stand for identifiers.
func (h *requestsHarness) want(t *testing.T, prefix string, want ...string) {
	t.Helper()
	for i, line := range want {
		want[i] = strings.NewReplacer("GW", h.gw, "RT", h.rt, "OTHER", h.other).Replace(line)
	}
	slices.Sort(want)
	if got := shown(h.registry, prefix); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Guarantee: requests are counted by gateway and route once they have ended; requests without a
// gateway have empty labels.
func TestRequests(t *testing.T) {
	h := newRequestsHarness(t)
	for _, tc := range []struct {
		name, prefix string
		want         []string
	}{
		{"requests by status class", "keygate_requests_total{", []string{
			`keygate_requests_total{gateway="",route="",status="4xx"} 2`,
			`keygate_requests_total{gateway="GW",route="RT",status="1xx"} 1`,
			`keygate_requests_total{gateway="GW",route="RT",status="2xx"} 2`,
			`keygate_requests_total{gateway="GW",route="RT",status="4xx"} 1`,
			`keygate_requests_total{gateway="GW",route="OTHER",status="5xx"} 2`,
		}},
		{"refusals by limit scope", "keygate_limit_refusals_total{", []string{`keygate_limit_refusals_total{gateway="GW",route="RT",scope="daily"} 1`}},
		{"upstream errors by reason", "keygate_upstream_errors_total{", []string{
			`keygate_upstream_errors_total{gateway="GW",reason="timeout",route="OTHER"} 1`,
			`keygate_upstream_errors_total{gateway="GW",reason="upstream_status",route="OTHER"} 1`,
		}},
		{"units by meter", "keygate_units_total{", []string{
			`keygate_units_total{gateway="GW",meter="tokens",route="RT"} 1204`,
			`keygate_units_total{gateway="GW",meter="requests",route="RT"} 3`,
			`keygate_units_total{gateway="GW",meter="tokens",route="OTHER"} 16000`,
		}},
		{"unknown costs by reason", "keygate_cost_unknown_total{", []string{
			`keygate_cost_unknown_total{gateway="GW",reason="missing",route="OTHER"} 1`,
			`keygate_cost_unknown_total{gateway="GW",reason="incomplete",route="OTHER"} 1`,
		}},
		{"descriptions of routes", "keygate_route_info{", []string{
			`keygate_route_info{gateway="GW",host="gw.example",methods="GET,POST",path="/orders/{id}",route="RT"} 1`,
			`keygate_route_info{gateway="GW",host="gw.example",methods="GET,POST",path="/orders/{id}",route="OTHER"} 1`,
		}},
		{"bytes of request bodies", "keygate_request_body_bytes_total{", []string{
			`keygate_request_body_bytes_total{gateway="",route=""} 0`,
			`keygate_request_body_bytes_total{gateway="GW",route="RT"} 20`,
			`keygate_request_body_bytes_total{gateway="GW",route="OTHER"} 10`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { h.want(t, tc.prefix, tc.want...) })
	}
	t.Run("durations without those of tunnels", func(t *testing.T) {
		if got := histogramCount(t, h.registry, "keygate_request_duration_seconds", h.rt); got != 3 {
			t.Errorf("got %d durations of the first route, want 3", got)
		}
	})
	t.Run("upstream durations without those of requests that got no response", func(t *testing.T) {
		if got := histogramCount(t, h.registry, "keygate_upstream_duration_seconds", h.other); got != 1 {
			t.Errorf("got %d upstream durations of the second route, want 1", got)
		}
	})
}

// Guarantee: the series of a deleted route or gateway disappear, and requests that end
// afterwards do not bring them back.
func TestSeriesOfDeletedRoutesDisappear(t *testing.T) {
	h := newRequestsHarness(t)
	shown(h.registry, "") // a reading before the deletion must not keep them
	delete(h.config[h.gw], h.rt)
	h.want(t, "keygate_requests_total{",
		`keygate_requests_total{gateway="",route="",status="4xx"} 2`,
		`keygate_requests_total{gateway="GW",route="OTHER",status="5xx"} 2`)
	h.Take([]accesslog.Entry{record(1, 2)}) // a request that was still running
	delete(h.config, h.gw)
	h.want(t, "keygate_requests_total{",
		`keygate_requests_total{gateway="",route="",status="4xx"} 2`)
}

// shown returns the lines of /metrics that begin with prefix, sorted.
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

// histogramCount returns the number of observations in the histogram of a route.
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

// Guarantee: the lag is the longest of the current minute and of the minute before.
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
		if _, _, got := r.read(table{}); got != d.Seconds() {
			t.Errorf("got a lag of %vs, want %v", got, d)
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

// Guarantee: reading the metrics while requests are counted loses no counts.
func TestConcurrentTakeAndRead(t *testing.T) {
	gw := id.Format(id.Gateway, number(1))
	c := table{gw: {}}
	for i := range 201 {
		c[gw][id.Format(id.Route, number(i))] = i%2 == 0 // the others do not exist
	}
	r := newRequests(t, c)
	var counting sync.WaitGroup
	counting.Go(func() {
		for range 60 {
			r.Take(mixed(200))
		}
	})
	for reading := true; reading; {
		r.collecting.Lock()
		_, all, _ := r.read(c)
		for _, s := range all {
			if s.total.statuses[2] != s.total.took.count {
				t.Fatalf("got %d requests and %d durations, want the same number", s.total.statuses[2], s.total.took.count)
			}
		}
		r.collecting.Unlock()
		r.mu.Lock()
		reading = r.ended[accesslog.Forwarded] < 60*1024
		r.mu.Unlock()
	}
	counting.Wait()
	_, all, _ := r.read(c)
	for _, s := range all {
		if s.route != "" && !c[gw][s.route] {
			t.Errorf("got a series of route %s, which does not exist", s.route)
		}
		if s.gateway != "" && s.total.statuses[2] < 60*5 {
			t.Errorf("%s %s: got %d requests, want at least %d", s.gateway, s.route, s.total.statuses[2], 60*5)
		}
	}
	if len(all) != 100 {
		t.Errorf("got %d series, want those of 100 routes", len(all))
	}
}

// Guarantee: in steady state counting a record does not allocate.
func TestTakeDoesNotAllocate(t *testing.T) {
	r := newRequests(t, table{})
	batch := mixed(100)
	r.Take(batch)
	if n := testing.AllocsPerRun(100, func() { r.Take(batch) }); n > 0 {
		t.Errorf("got %v allocations for a batch, want 0", n)
	}
}

// mixed returns a batch of requests of many routes that took 0.1 to 51 ms.
func mixed(routes int) []accesslog.Entry {
	batch := make([]accesslog.Entry, 1024)
	for i := range batch {
		batch[i] = record(1, i*7%routes+1)
		batch[i].Duration = int64(100*time.Microsecond) << (i % 10)
		batch[i].Upstream = batch[i].Duration / 3
	}
	return batch
}

// Guarantee: a label has at most 512 bytes, and is valid UTF-8, wherever it is cut.
func TestLongLabelsAreCut(t *testing.T) {
	for _, text := range []string{strings.Repeat("a", 512), strings.Repeat("a", 513), strings.Repeat("ü", 5000), "a" + strings.Repeat("ü", 5000), strings.Repeat("\xff", 600), strings.Repeat("a\xff", 256)} {
		got := label(text)
		if len(got) > 512 || !utf8.ValidString(got) {
			t.Errorf("got a label of %d bytes, valid %v, of a text of %d; want at most 512 and valid", len(got), utf8.ValidString(got), len(text))
		}
		if text == strings.Repeat("a", 512) && got != text {
			t.Errorf("got %q, want the text unchanged", got)
		}
	}
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
