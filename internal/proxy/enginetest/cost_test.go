package enginetest_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/plan"
)

// threeCosts are the costs of the routes of the tests: of the body, of a header, and a price.
const threeCosts = `
- {meter: tokens, reserve: 10, max: 1000, from: {json: {usage.total: 1}}}
- {meter: cents, max: 500, from: {header: X-Cost}, unknown: reserve}
- {meter: calls, from: {request: 3}}
`

const unitLimit = 1_000_000

// unitsPlan returns a plan with a limit of each meter of threeCosts, in buckets that regain a unit a day.
func unitsPlan(t testing.TB, planID, accountID string) plan.Plan {
	t.Helper()
	var in []plan.LimitInput
	for _, meter := range []string{"tokens", "cents", "calls"} {
		in = append(in, plan.LimitInput{Name: meter, Sustained: "1/day", Burst: fmt.Sprintf("%d/day", unitLimit), Meter: meter})
	}
	limits, err := plan.ParseLimits(in)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Plan{ID: planID, AccountID: accountID, Name: "units", Limits: limits, TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor}
}

// costsOf parses costs.
func costsOf(t testing.TB, text string) cost.Rules {
	t.Helper()
	if text == "" {
		return nil
	}
	n, err := document.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := cost.Read(n)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// costOf is what a request was charged by threeCosts, as its record says.
type costOf struct {
	tokens, cents, calls    int64
	tokensUnknown, centsWhy string
	read                    string // of tokens
}

// costed returns what the record of the exchange with a path says of its costs, once there is one.
func (g *harness) costed(t *testing.T, path string) (c costOf) {
	t.Helper()
	for {
		for _, e := range g.nextRecords(t) {
			if e.Path != path || e.Part == accesslog.Started {
				continue
			}
			for one := range accesslog.Costs(e.Cost) {
				switch one.Meter {
				case "tokens":
					c.tokens, c.tokensUnknown, c.read = one.Units, one.Unknown, one.Read
					if one.Reserved != 10 {
						t.Errorf("%s: %d were reserved, want 10", path, one.Reserved)
					}
				case "cents":
					c.cents, c.centsWhy = one.Units, one.Unknown
				case "calls":
					c.calls = one.Units
				}
			}
			return c
		}
	}
}

// costHandler is an upstream whose responses have costs.
type costHandler struct {
	asked atomic.Pointer[http.Header] // of the last request
	gone  chan struct{}               // receives when the client of /endless has gone
}

const usage = `{"usage": {"total": 42}}`

// ServeHTTP implements http.Handler: it responds as the paths of the tests say.
func (h *costHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	asked := r.Header.Clone()
	h.asked.Store(&asked)
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/missing" && r.URL.Path != "/error" && r.URL.Path != "/trailer" {
		w.Header().Set("X-Cost", "7.2")
	}
	switch r.URL.Path {
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, usage)
		_ = z.Close()
	case "/brotli":
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, "????")
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 50 {
			_, _ = fmt.Fprintf(w, "data: {\"n\": %d, \"usage\": null}\n\n", i)
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: "+strings.ReplaceAll(usage, "42", "51")+"\n\ndata: [DONE]\n\n")
	case "/trailer":
		w.Header().Set("Trailer", "X-Cost, X-Other")
		_, _ = io.WriteString(w, usage)
		w.Header().Set("X-Cost", "9")
		w.Header().Set("X-Other", "yes")
	case "/missing":
		_, _ = io.WriteString(w, "{}")
	case "/error":
		w.WriteHeader(http.StatusInternalServerError)
	case "/empty":
		w.WriteHeader(http.StatusNoContent)
	case "/torn":
		_, _ = io.WriteString(w, usage)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "/endless":
		_, _ = io.WriteString(w, usage)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		h.gone <- struct{}{}
	default:
		_, _ = io.WriteString(w, usage)
	}
}

// usedOf returns what the limits of the meters have counted, as the response to a request says, which costs 3 calls itself and 8 cents.
func (g *harness) usedOf(t *testing.T) (tokens, cents, calls int64) {
	t.Helper()
	c := g.dial(t)
	c.Send("HEAD /look HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + g.key + "\r\n\r\n")
	h := c.head()
	for item := range strings.SplitSeq(h.get("ratelimit"), ", ") {
		var name string
		var left, reset int64
		if _, err := fmt.Sscanf(strings.ReplaceAll(item, ";", " "), "%q r=%d t=%d", &name, &left, &reset); err != nil {
			t.Fatalf("%s: %v", item, err)
		}
		switch name {
		case "units.tokens":
			tokens = unitLimit - left - 10
		case "units.cents":
			cents = unitLimit - left - 1
		case "units.calls":
			calls = unitLimit - left - 3
		}
	}
	g.costed(t, "/look")
	return tokens, cents, calls
}

// exchange sends a request with the key and reads its response, which is nil if there is none.
func (g *harness) exchange(t *testing.T, client http.RoundTripper, method, path string, fields http.Header) (resp *http.Response, body string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.addr+path, strings.NewReader("{}"))
	if err != nil {
		return nil, "", err
	}
	req.Header = fields
	req.Header.Set("Authorization", "Bearer "+g.key)
	if resp, err = client.RoundTrip(req); err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return resp, string(content), err
}

// upstreamOf starts an upstream that speaks a version of HTTP, and returns its URL.
func upstreamOf(t *testing.T, version string, h http.Handler) (url string) {
	if version == "HTTP/2" {
		return h2cUpstream(t, h.ServeHTTP)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// Guarantee: plans.md, section 5: each request costs what its response says, whichever versions of HTTP client and upstream
// speak, and however it ends; a limit of the meter has counted exactly what the record says, and a header that was read is
// not passed on.
func TestCosts(t *testing.T) {
	const whole = "total 42 × 1"
	cases := []struct {
		method, path string
		want         costOf
	}{
		{"POST", "/json", costOf{42, 8, 3, "", "", whole}},
		{"POST", "/gzip", costOf{42, 8, 3, "", "", whole}},
		{"POST", "/brotli", costOf{1000, 8, 3, "encoding", "", "total missing"}},
		{"POST", "/events", costOf{51, 8, 3, "", "", "total 51 × 1"}},
		{"POST", "/trailer", costOf{42, 9, 3, "", "", whole}},
		{"POST", "/missing", costOf{1000, 1, 3, "missing", "missing", "total missing"}},
		{"POST", "/error", costOf{0, 0, 3, "", "", "total missing"}},
		{"POST", "/empty", costOf{0, 8, 3, "", "", "total missing"}},
		{"HEAD", "/head", costOf{0, 8, 3, "", "", "total missing"}},
		{"POST", "/torn", costOf{1000, 8, 3, "incomplete", "incomplete", whole}},
	}
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(version, func(t *testing.T) {
			url := upstreamOf(t, version, &costHandler{})
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				g := start(t, setup{upstream: url, cost: threeCosts})
				var tokens, cents, calls int64
				count := func(got costOf) {
					t.Helper()
					tokens, cents, calls = tokens+got.tokens, cents+got.cents, calls+got.calls
					if a, b, c := g.usedOf(t); a != tokens || b != cents || c != calls {
						t.Errorf("the limits have counted %d tokens, %d cents and %d calls, want %d, %d and %d", a, b, c, tokens, cents, calls)
					}
					cents, calls = cents+8, calls+3 // of the look
				}
				for _, c := range cases {
					resp, body, err := g.exchange(t, client, c.method, c.path, http.Header{"Te": {"trailers"}})
					if resp == nil || (err != nil) != (c.path == "/torn") {
						t.Fatalf("%s: %v", c.path, err)
					}
					if resp.Header.Get("X-Cost")+resp.Trailer.Get("X-Cost") != "" || c.path == "/trailer" && resp.Trailer.Get("X-Other") != "yes" {
						t.Errorf("%s: got the fields %v and the trailers %v, want none with the cost", c.path, resp.Header, resp.Trailer)
					}
					if c.path == "/json" && body != usage {
						t.Errorf("got the body %q, want it unchanged", body)
					}
					got := g.costed(t, c.path)
					if got != c.want {
						t.Errorf("%s:\n got %+v\nwant %+v", c.path, got, c.want)
					}
					count(got)
				}
			})
		})
	}
}

// Guarantee: plans.md, section 5: whoever hangs up pays as for an unknown cost, and a request of which no byte reached an
// upstream pays nothing.
func TestCostsOfBrokenExchanges(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		h := &costHandler{gone: make(chan struct{}, 1)}
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		send := func(g *harness, path string) (*http.Response, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			req, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.addr+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+g.key)
			resp, err := client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			return resp, cancel
		}
		g := start(t, setup{upstream: s.URL, cost: threeCosts, realClock: true})
		resp, cancel := send(g, "/endless")
		if _, err := io.ReadFull(resp.Body, make([]byte, len(usage))); err != nil {
			t.Fatal(err)
		}
		cancel()
		receive(t, "the end at the upstream", h.gone)
		if got := g.costed(t, "/endless"); got != (costOf{1000, 8, 3, "incomplete", "incomplete", "total 42 × 1"}) {
			t.Errorf("who hung up pays %+v, want the maximum of tokens", got)
		}
		if tokens, cents, calls := g.usedOf(t); tokens != 1000 || cents != 8 || calls != 3 {
			t.Errorf("the limits have counted %d, %d and %d, want 1000, 8 and 3", tokens, cents, calls)
		}

		g = start(t, setup{upstream: "http://" + closedPort(t), cost: threeCosts})
		resp, cancel = send(g, "/json")
		defer cancel()
		if resp.StatusCode != http.StatusBadGateway {
			t.Errorf("got %d, want 502", resp.StatusCode)
		}
		if got := g.costed(t, "/json"); got != (costOf{}) {
			t.Errorf("an upstream that nobody listens at costs %+v, want nothing", got)
		}

		g = start(t, setup{upstream: s.URL, maxBody: 1, cost: "[{meter: requests, from: {request: 10}}]"})
		resp, cancel = send(g, "/json")
		defer cancel()
		var costs []accesslog.Cost
		for _, e := range g.recordsToEnd(t) {
			costs = slices.AppendSeq(costs, accesslog.Costs(e.Cost))
		}
		if resp.StatusCode != http.StatusRequestEntityTooLarge || !slices.Equal(costs, []accesslog.Cost{{Meter: "requests", Reserved: 10}}) {
			t.Errorf("got %d with the costs %+v, want 413, which is no request of the plan", resp.StatusCode, costs)
		}
	})
}

// Guarantee: plans.md, section 10: a stream that is cut at any byte, of 64 at once, costs what is unknown of it, and a whole one
// what it says; the limit has counted exactly their sum.
func TestStreamsCutAtEveryByte(t *testing.T) {
	body := "event: delta\ndata: {\"text\": \"a\", \"usage\": {\"total\": 7}}\n\ndata: {\"usage\": {\"total\": 42}}\n\ndata: [DONE]\n\n"
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(version, func(t *testing.T) {
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				g := start(t, setup{upstream: upstreamOf(t, version, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					length, err := strconv.Atoi(r.URL.Path[1:])
					if err != nil {
						return // a look
					}
					w.Header().Set("Content-Type", "text/event-stream")
					w.Header().Set("Content-Length", strconv.Itoa(len(body)))
					_, _ = io.WriteString(w, body[:length])
					_ = http.NewResponseController(w).Flush()
					if length < len(body) {
						panic(http.ErrAbortHandler)
					}
				})), cost: "[{meter: tokens, reserve: 10, max: 1000, from: {json: {usage.total: 1}}, unknown: reserve}]"})
				var group sync.WaitGroup
				turn := make(chan struct{}, 64)
				for length := range len(body) + 1 {
					turn <- struct{}{}
					group.Go(func() {
						_, _, _ = g.exchange(t, client, "GET", fmt.Sprint("/", length), http.Header{}) // the record says how it ended
						<-turn
					})
				}
				group.Wait()
				var sum int64
				for ended := 0; ended <= len(body); {
					for _, e := range g.nextRecords(t) {
						if e.Part == accesslog.Started {
							continue
						}
						ended++
						want := int64(10)
						if e.Result == accesslog.Forwarded && strings.Contains(body[:e.BytesOut], "42}") { // otherwise the bytes are of a 502
							want = 42
						}
						for one := range accesslog.Costs(e.Cost) {
							sum += one.Units
							if one.Units != want || (one.Unknown == "") != (e.Path == fmt.Sprint("/", len(body))) {
								t.Errorf("%s: got %+v after %d bytes, want %d units", e.Path, one, e.BytesOut, want)
							}
						}
					}
				}
				if tokens, _, _ := g.usedOf(t); tokens != sum {
					t.Errorf("the limit has counted %d, want the sum %d of the records", tokens, sum)
				}
			})
		})
	}
}

// Guarantee: plans.md, section 5: where a response is read, the upstream is asked for nothing that cannot be read, and for all
// of it. Other routes' requests go unchanged.
func TestFieldsThatObstructCosts(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(version, func(t *testing.T) {
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				h := &costHandler{}
				url := upstreamOf(t, version, h)
				for _, c := range []struct {
					cost          string
					accept, want  []string
					rangeIsPassed bool
				}{
					{threeCosts, []string{"br, gzip;q=0.8"}, []string{"gzip, identity"}, false},
					{threeCosts, []string{"br", "x-gzip"}, []string{"gzip, identity"}, false},
					{threeCosts, []string{"br"}, []string{"identity"}, false},
					{threeCosts, []string{"*"}, []string{"gzip, identity"}, false},
					{threeCosts, []string{"*, gzip;q=0"}, []string{"identity"}, false},
					{threeCosts, []string{"gzip, identity;q=0"}, []string{"gzip"}, false},
					{threeCosts, nil, nil, false},
					{"[{meter: calls, from: {request: 3}}]", []string{"br"}, []string{"br"}, true},
				} {
					g := start(t, setup{upstream: url, cost: c.cost})
					g.exchange(t, client, "GET", "/json", http.Header{"Accept-Encoding": c.accept, "Range": {"bytes=0-9"}, "If-Range": {`"a"`}})
					got := *h.asked.Load()
					if !slices.Equal(got["Accept-Encoding"], c.want) || (got.Get("Range")+got.Get("If-Range") != "") != c.rangeIsPassed {
						t.Errorf("%q with Accept-Encoding %q: the upstream got %q and the range %q", c.cost, c.accept, got["Accept-Encoding"], got.Get("Range"))
					}
				}
			})
		})
	}
}

// Guarantee: plans.md, section 5: a request that a limit of a meter refuses is told how many units are left and needed. One
// whose reserve is left passes. Limits of meters that the route has no cost of do not count it.
func TestLimitsOfOwnMeters(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage": {"total": 999991}}`)
	}))
	t.Cleanup(s.Close)
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		g := start(t, setup{upstream: s.URL, cost: "[{meter: tokens, reserve: 10, max: 1000000, from: {json: {usage.total: 1}}}]"})
		for i, want := range []string{"", `"limit_scope":"plan","limit_name":"units.tokens","units_left":9,"units_needed":10`} {
			resp, text, err := g.exchange(t, client, "GET", "/json", http.Header{})
			if err != nil {
				t.Fatal(err)
			}
			if limits := resp.Header.Get("Ratelimit"); !strings.Contains(limits, "units.tokens") || strings.Contains(limits, "units.c") {
				t.Errorf("request %d was counted by %s, want the limit of tokens and no other of the plan", i, limits)
			}
			if (resp.StatusCode == 200) != (want == "") || !strings.Contains(text, want) {
				t.Errorf("request %d: got %d %s, want %s", i, resp.StatusCode, text, want)
			}
			g.costed(t, "/json")
		}
	})
}
