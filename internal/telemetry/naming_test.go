package telemetry

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// everything is a configuration in which every gateway and route exists.
type everything struct{}

func (everything) Describe(string, string) (hostname, path, methods string, ok bool) {
	return "gw.example", "/orders/{id}", "GET,POST", true
}

// namingHarness is a Requests with few lines, whose time goes on with each scrape.
type namingHarness struct {
	*Requests
	now      time.Time
	registry *prometheus.Registry
	values   map[string]uint64 // keygate_requests_total at the last scrape
	counted  uint64            // sum of the increases between scrapes
	lines    int               // of the last scrape
}

func newNamingHarness(t testing.TB, lines int) *namingHarness {
	t.Helper()
	h := &namingHarness{now: time.Unix(1_800_000_000, 0), registry: prometheus.NewRegistry()}
	var err error
	if h.Requests, err = NewRequests(RequestsConfig{
		Routes: func() Routes { return everything{} }, MaxLines: lines, Now: func() time.Time { return h.now },
	}); err != nil {
		t.Fatal(err)
	}
	h.registry.MustRegister(h.Requests)
	return h
}

// request counts n requests of a route.
func (h *namingHarness) request(account, gateway, route, n int) {
	e := record(gateway, route)
	e.Account = number(account)
	h.Take(slices.Repeat([]accesslog.Entry{e}, n))
}

// scrape reads the metrics, a minute after the last scrape. No counter may be below its value at
// that scrape.
func (h *namingHarness) scrape(t *testing.T) {
	t.Helper()
	h.now = h.now.Add(time.Minute)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("got status %d: %s", w.Code, w.Body)
	}
	values := map[string]uint64{}
	h.lines = strings.Count(w.Body.String(), "\n")
	for line := range strings.Lines(w.Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(name, "keygate_requests_total{") {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			values[name] = uint64(n)
			if uint64(n) < h.values[name] {
				t.Fatalf("%s} went from %d to %d", name, h.values[name], uint64(n))
			}
			h.counted += uint64(n) - h.values[name]
		}
	}
	h.values = values
}

// named reports whether a route had a series at the last scrape.
func (h *namingHarness) named(gateway, route int) bool {
	_, ok := h.values[fmt.Sprintf(`keygate_requests_total{gateway=%q,route=%q,status="2xx"`, id.Format(id.Gateway, number(gateway)), id.Format(id.Route, number(route)))]
	return ok
}

// names returns how many of the routes from first to last had a series at the last scrape.
func (h *namingHarness) names(gateway, first, last int) (n int) {
	for route := first; route <= last; route++ {
		if h.named(gateway, route) {
			n++
		}
	}
	return n
}

// Guarantee: however many gateways and routes are in use, with whatever results, a scrape has
// at most --metrics-max-series lines together with the reserve for the rest (contract,
// section 7).
func TestLinesOfScrapeAreBounded(t *testing.T) {
	for _, lines := range []int{LeastLines, 3000} {
		h := newNamingHarness(t, lines)
		check := func(what string) {
			h.scrape(t)
			if most := lines - reservedLines + 2*mostLines + 30; h.lines > most { // 30 lines are results and comments
				t.Errorf("%s: got %d lines, want at most %d", what, h.lines, most)
			}
		}
		for route := range 2000 {
			h.request(1, route%60+1, route+1, 1)
		}
		check("with one status each")
		for i := range 30_000 {
			e := record(i%60+1, i%2000+1)
			e.Account = number(1)
			e.Status = uint16(i % 7 * 100)
			e.Result = accesslog.Result(i % 15)
			e.LimitScope, e.UpstreamStatus = uint8(i%int(ratelimit.GlobalScope+1)), e.Status
			h.Take([]accesslog.Entry{e})
		}
		check("with every result")
		if h.values[`keygate_requests_total{gateway="other",route="other",status="2xx"`] == 0 {
			t.Errorf("got no requests of other gateways, want some among %v", h.values)
		}
		if got := shown(h.registry, `keygate_route_info{gateway="other"`); len(got) != 1 || !strings.Contains(got[0], `host="other"`) || !strings.Contains(got[0], `path="other"`) {
			t.Errorf("got %q, want other gateways described as other", got)
		}
	}
}

// Guarantee: while the traffic moves between many routes of several accounts, no counter
// decreases, and the increases that a scraper sees add up to the requests made: each is
// counted by exactly one series.
func TestFoldedRoutesAreCountedOnce(t *testing.T) {
	h := newNamingHarness(t, 1500)
	random := rand.New(rand.NewPCG(1, 2))
	sent := uint64(0)
	for step := range 40 {
		for range 300 {
			// A few busy routes that move, and many others.
			account, busy := random.IntN(4)+1, random.IntN(3)
			route := step/10*7 + busy
			if random.IntN(2) == 0 {
				route = random.IntN(500)
			}
			n := random.IntN(3) + 1
			if busy == 0 {
				n *= 3
			}
			h.request(account, account*10+route%5, account*1000+route, n)
			sent += uint64(n)
		}
		h.scrape(t)
	}
	if h.counted != sent {
		t.Errorf("the increases add up to %d, want %d", h.counted, sent)
	}
}

// Guarantee: a route that becomes busy when others have all the names gets one, at the cost of the
// routes with the least traffic. With steady traffic the names stay.
func TestBusiestRoutesHaveNames(t *testing.T) {
	h := newNamingHarness(t, 2000)
	for minute := range 20 {
		for route := 1; route <= 200; route++ {
			h.request(1, 1, route, 1+route/100)
		}
		if minute >= 5 {
			h.request(1, 1, 1000, 500)
		}
		h.scrape(t)
	}
	if !h.named(1, 1000) {
		t.Error("the busiest route has no series of its own")
	}
	before := h.values
	for range 20 {
		for route := 1; route <= 200; route++ {
			h.request(1, 1, route, 1+route/100)
		}
		h.request(1, 1, 1000, 500)
		h.scrape(t)
	}
	for name := range before {
		if _, ok := h.values[name]; !ok {
			t.Errorf("%s} disappeared while the traffic was the same", name)
		}
	}
	if n := h.names(1, 1, 200); n < 25 {
		t.Errorf("got %d names of the other routes, want at least 25", n)
	}
}

// Guarantee: the route that becomes the busiest while others have all the names has a name within a minute, and so
// has the next such route, although the series that they replaced remain for five minutes.
func TestBusiestRouteIsNamedWithinAMinute(t *testing.T) {
	for _, lines := range []int{LeastLines, 2000} {
		h := newNamingHarness(t, lines)
		minute := func(busy ...int) {
			for route := 1; route <= 1000; route++ {
				h.request(1, 1, route, 1)
			}
			for _, route := range busy {
				h.request(1, 1, route, 500)
			}
			h.scrape(t)
		}
		for range 5 {
			minute()
		}
		minute(2000)
		minute(2000) // its series began with the last scrape
		if !h.named(1, 2000) {
			t.Errorf("with %d lines, the busiest route has no series of its own after a minute", lines)
		}
		if lines == LeastLines {
			continue // no room for a second replacement
		}
		minute(2000, 2001)
		minute(2000, 2001)
		if !h.named(1, 2000) || !h.named(1, 2001) {
			t.Errorf("with %d lines, the two busiest routes do not have series of their own", lines)
		}
	}
}

// Guarantee: an account with many routes neither keeps names from another account nor takes them
// away. Of two accounts with many routes, each gets about half.
func TestAccountsShareSeries(t *testing.T) {
	h := newNamingHarness(t, 2000) // room for 41 series
	minutes := func(n, second int) {
		for range n {
			for route := 1; route <= 300; route++ {
				h.request(1, 1, route, 5)
			}
			for route := 1001; route <= 1000+second; route++ {
				h.request(2, 2, route, 1)
			}
			h.scrape(t)
		}
	}
	minutes(3, 0)
	if n := h.names(1, 1, 300); n < 30 {
		t.Errorf("alone, the first account has %d names, want at least 30", n)
	}
	minutes(15, 10)
	if n := h.names(2, 1001, 1010); n != 10 {
		t.Errorf("the second account has %d of 10 routes named, want all", n)
	}
	minutes(20, 300)
	first, second := h.names(1, 1, 300), h.names(2, 1001, 1300)
	if first < 15 || second < 15 {
		t.Errorf("with many routes each, the accounts have %d and %d names, want at least 15", first, second)
	}
}

// Guarantee: the memory of the series, and of the routes that wait for a name, is bounded also if
// nobody scrapes.
func TestNamesAreBoundedWithoutScrapes(t *testing.T) {
	h := newNamingHarness(t, DefaultLines)
	for i := range 60_000 {
		h.request(i%100+1, i%1000+1, i+1, 1)
	}
	if n, most := len(h.series), DefaultLines/linesOfNew; n > most {
		t.Errorf("got %d series, want at most %d", n, most)
	}
	noted := 0
	for _, a := range h.accounts {
		noted += len(a.noted)
	}
	if noted > maxNoted+maxNoted/8 { // the first accounts had more than their share for a moment
		t.Errorf("got %d waiting routes in memory, want at most %d", noted, maxNoted)
	}
}

// BenchmarkScrape renders the metrics while 100,000 routes of 100 accounts are in use, with
// four statuses each, as text. B/op is what a scrape allocates, bytes/scrape its size.
func BenchmarkScrape(b *testing.B) {
	for _, lines := range []int{DefaultLines, MostLines} {
		b.Run(strconv.Itoa(lines)+" lines", func(b *testing.B) {
			h := newNamingHarness(b, lines)
			for i := range 400_000 {
				e := record(i%1000+1, i%100_000+1)
				e.Account, e.Status = number(i%100+1), uint16(2+i/100_000)*100
				e.Duration, e.Upstream = int64(i%100_000)*1000, int64(i%100_000)*500
				h.Take([]accesslog.Entry{e})
			}
			handler := promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{})
			b.ReportAllocs()
			for b.Loop() {
				h.now = h.now.Add(time.Minute)
				w := httptest.NewRecorder()
				newScrapes(handler).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
				b.ReportMetric(float64(strings.Count(w.Body.String(), "\n")), "lines/scrape")
				b.ReportMetric(float64(w.Body.Len()), "bytes/scrape")
			}
		})
	}
}

// BenchmarkTakeUnnamed counts requests of 100,000 routes of 100 accounts, most of which have
// no series of their own.
func BenchmarkTakeUnnamed(b *testing.B) {
	h := newNamingHarness(b, DefaultLines)
	batch := make([]accesslog.Entry, 1024)
	b.ReportAllocs()
	for i := 0; i < b.N; i += len(batch) {
		for j := range batch {
			n := (i + j) * 7919 % 100_000
			batch[j] = record(n%1000+1, n+1)
			batch[j].Account = number(n%100 + 1)
		}
		h.Take(batch[:min(len(batch), b.N-i)])
	}
}
