package enginetest_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/ratelimit"
)

// overBoth runs f with a client of each version of HTTP.
func overBoth(t *testing.T, f func(t *testing.T, client http.RoundTripper)) {
	t.Parallel()
	t.Run("HTTP/2", func(t *testing.T) {
		t.Parallel()
		f(t, h2cClient(t))
	})
	t.Run("HTTP/1.1", func(t *testing.T) {
		t.Parallel()
		client := &http.Transport{DisableCompression: true}
		t.Cleanup(client.CloseIdleConnections)
		f(t, client)
	})
}

// wantRecord is what a test expects of an access record. A negative out means the
// length of the body that the client received.
type wantRecord struct {
	result           accesslog.Result
	status, upstream uint16
	in, out          int64
	authenticated    bool
	method           accesslog.Method
	path             string
}

func (w wantRecord) check(t *testing.T, e accesslog.Entry) {
	t.Helper()
	if got := (wantRecord{e.Result, e.Status, e.UpstreamStatus, e.BytesIn, e.BytesOut, e.Authenticated, e.Method, e.Path}); got != w {
		t.Errorf("\n got %+v\nwant %+v", got, w)
	}
	if e.Duration < 0 || e.Duration > int64(time.Hour) {
		t.Errorf("got duration %v, want 0 to 1h", time.Duration(e.Duration))
	}
	if since := time.Since(time.UnixMicro(e.Start)); since > time.Hour {
		t.Errorf("got a start %v ago, want at most 1h", since)
	}
	if e.Upstream > e.Duration {
		t.Errorf("got upstream time %v, want at most the duration %v", time.Duration(e.Upstream), time.Duration(e.Duration))
	}
	if w.upstream != 0 && e.Upstream < 0 {
		t.Errorf("got upstream time %v with an upstream response, want at least 0", time.Duration(e.Upstream))
	}
	if w.upstream == 0 && e.Upstream >= 0 {
		t.Errorf("got upstream time %v without an upstream response, want a negative one", time.Duration(e.Upstream))
	}
	if client := net.IP(e.Client[:]); !client.IsLoopback() {
		t.Errorf("got client %v, want a loopback address", client)
	}
}

// byPath is the handler of the upstream of the tests below. The path selects its response.
func byPath(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/stream":
		_, _ = io.Copy(io.Discard, r.Body)
		for range 3 {
			_, _ = io.WriteString(w, "piece")
			_ = http.NewResponseController(w).Flush()
		}
	case "/none":
		w.WriteHeader(http.StatusNoContent)
	case "/trailers":
		w.Header().Set("Trailer", "X-T")
		_, _ = io.WriteString(w, "text")
		w.Header().Set("X-T", "1")
	case "/busy":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/half":
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "/nothing":
		panic(http.ErrAbortHandler)
	case "/forever":
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	default:
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "ok")
	}
}

// Guarantee: however a request ends, exactly one access record says what the client
// received. It is emitted before the client has the whole response.
func TestOneRecordForEachRequest(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(byPath))
	t.Cleanup(upstream.Close)
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		g := start(t, setup{upstream: upstream.URL, maxBody: 1000, cors: &gateway.CORS{Origins: []string{"*"}}})
		const forwarded, malformed = accesslog.Forwarded, accesslog.Malformed
		for _, c := range []struct {
			method, path, body string
			fields             []string
			want               wantRecord
		}{
			{"GET", "/a?api_key=none&b=c", "", nil, wantRecord{forwarded, 200, 200, 0, 2, true, accesslog.GET, "/a"}},
			{"HEAD", "/a", "", nil, wantRecord{forwarded, 200, 200, 0, 0, true, accesslog.HEAD, "/a"}},
			{"GET", "/stream", "", nil, wantRecord{forwarded, 200, 200, 0, 15, true, accesslog.GET, "/stream"}},
			{"GET", "/none", "", nil, wantRecord{forwarded, 204, 204, 0, 0, true, accesslog.GET, "/none"}},
			{"GET", "/trailers", "", []string{"TE", "trailers"}, wantRecord{forwarded, 200, 200, 0, 4, true, accesslog.GET, "/trailers"}},
			{"GET", "/busy", "", nil, wantRecord{forwarded, 503, 503, 0, 0, true, accesslog.GET, "/busy"}},
			{"POST", "/stream", "hello", nil, wantRecord{forwarded, 200, 200, 5, 15, true, accesslog.POST, "/stream"}},
			{"POST", "/nothing", "", nil, wantRecord{accesslog.Unreachable, 502, 0, 0, -1, true, accesslog.POST, "/nothing"}},
			{"GET", "/a", "", []string{"Via", "1.1 keygate"}, wantRecord{accesslog.Unreachable, 502, 0, 0, -1, true, accesslog.GET, "/a"}},
			{"GET", "/a", "", []string{"Authorization", "twice"}, wantRecord{malformed, 400, 0, 0, -1, false, accesslog.GET, "/a"}},
			{"POST", "/a", strings.Repeat("x", 1001), nil, wantRecord{malformed, 413, 0, 0, -1, true, accesslog.POST, "/a"}},
			{"PROPFIND", "/a", "", nil, wantRecord{accesslog.NoMethod, 405, 0, 0, -1, true, accesslog.OtherMethod, "/a"}},
			{"OPTIONS", "/a", "", []string{"Origin", "http://b", "Access-Control-Request-Method", "GET"}, wantRecord{accesslog.Preflight, 204, 0, 0, 0, false, accesslog.OPTIONS, "/a"}},
			{"TRACE", "/a", "", nil, wantRecord{malformed, 405, 0, 0, -1, false, accesslog.TRACE, ""}},
			{"GET", "/" + strings.Repeat("a", admit.MaxTarget), "", nil, wantRecord{malformed, 414, 0, 0, -1, false, 0, ""}},
		} {
			t.Run(c.method+" "+c.path[:min(len(c.path), 20)], func(t *testing.T) {
				var body io.Reader
				if c.body != "" {
					body = strings.NewReader(c.body)
				}
				resp, text := g.do(client, c.method, c.path, body, c.fields...)
				entry := final(t, g.records())
				if c.want.out < 0 {
					c.want.out = int64(len(text))
				}
				if c.want.status == http.StatusRequestURITooLong {
					entry.Method = 0 // only one of the engines knows it
				}
				c.want.check(t, entry)
				attempts, target := uint8(0), ""
				if c.want.upstream != 0 || c.path == "/nothing" { // the request went upstream
					attempts, target = 1, hostOf(upstream.URL)
				}
				if entry.Attempts != attempts || entry.Target != target {
					t.Errorf("got %d attempts, the last to %q; want %d, to %q", entry.Attempts, entry.Target, attempts, target)
				}
				if got := id.Format(id.Request, entry.Request); got != resp.Header.Get("X-Request-Id") {
					t.Errorf("got record of request %s, want %s as in the response", got, resp.Header.Get("X-Request-Id"))
				}
			})
		}
	})
}

// final returns the record of the end of a request. A start record may precede it if the
// request took long, which can happen on a slow machine.
func final(t *testing.T, entries []accesslog.Entry) accesslog.Entry {
	t.Helper()
	if len(entries) == 2 && entries[0].Part == accesslog.Started {
		started := entries[0]
		entries = entries[1:]
		if last := entries[0]; last.Part != accesslog.Ended || last.Request != started.Request {
			t.Fatalf("got records %+v and %+v, want the start and the end of one request", started, last)
		}
	}
	if len(entries) != 1 {
		t.Fatalf("got %d records, want 1: %+v", len(entries), entries)
	}
	return entries[0]
}

// recordsToEnd waits for the next records, up to one of the end of a request.
func (g *harness) recordsToEnd(t *testing.T) []accesslog.Entry {
	t.Helper()
	entries := g.nextRecords(t)
	for entries[len(entries)-1].Part == accesslog.Started {
		entries = append(entries, g.nextRecords(t)...)
	}
	return entries
}

// nextRecords waits for the next records.
func (g *harness) nextRecords(t *testing.T) (entries []accesslog.Entry) {
	t.Helper()
	awaittest.True(t, "an access record is emitted", func() bool {
		entries = g.records()
		return len(entries) > 0
	})
	return entries
}

// wantStart waits for the record of a request's start and returns it.
func (g *harness) wantStart(t *testing.T) accesslog.Entry {
	t.Helper()
	entries := g.nextRecords(t)
	if len(entries) != 1 || entries[0].Part != accesslog.Started {
		t.Fatalf("got records %+v, want the start of one request", entries)
	}
	return entries[0]
}

// wantEnd waits for the record that ends the request that started began, and returns it.
func (g *harness) wantEnd(t *testing.T, started accesslog.Entry) accesslog.Entry {
	t.Helper()
	entries := g.nextRecords(t)
	if len(entries) != 1 || entries[0].Part != accesslog.Ended || entries[0].Request != started.Request {
		t.Fatalf("got records %+v, want the end of request %x", entries, started.Request)
	}
	return entries[0]
}

// request makes a GET request with the key and discards its response, or its error.
func (g *harness) request(ctx context.Context, client http.RoundTripper, path string) {
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+g.addr+path, nil)
	req.Header.Set("Authorization", "Bearer "+g.key)
	if resp, err := client.RoundTrip(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// Guarantee: the record of a response that the upstream broke off has the bytes that
// were sent.
func TestRecordOfBrokenResponse(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(byPath))
	t.Cleanup(upstream.Close)
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		g := start(t, setup{upstream: upstream.URL, realClock: true})
		g.request(t.Context(), client, "/half")
		wantRecord{accesslog.Forwarded, 200, 200, 0, 4, true, accesslog.GET, "/half"}.check(t, final(t, g.recordsToEnd(t)))
	})
}

// Guarantee: the start of a long request is recorded while it runs, and a client that
// hangs up before the response is recorded with status 499.
func TestRecordOfClientHangUp(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(byPath))
	t.Cleanup(upstream.Close)
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		g := start(t, setup{upstream: upstream.URL, realClock: true})
		ctx, hangUp := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			g.request(ctx, client, "/forever")
			close(done)
		}()
		started := g.wantStart(t)
		if started.Path != "/forever" || started.Status != 0 {
			t.Fatalf("got %+v, want path /forever and no status", started)
		}
		hangUp()
		<-done
		wantRecord{accesslog.Abandoned, 499, 0, 0, 0, true, accesslog.GET, "/forever"}.check(t, g.wantEnd(t, started))
	})
}

// Guarantee: a request to an upstream that times out is recorded with status 504.
func TestRecordOfTimeout(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(byPath))
	t.Cleanup(upstream.Close)
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		g := start(t, setup{upstream: upstream.URL, timeout: "1s", realClock: true})
		g.request(t.Context(), client, "/forever")
		entries := g.recordsToEnd(t)
		last := entries[len(entries)-1]
		if last.Part != accesslog.Ended || last.Result != accesslog.TimedOut || last.Status != 504 {
			t.Errorf("got %+v, want the end of a request that timed out with status 504", last)
		}
	})
}

// Guarantee: the start of an upgraded connection is recorded at once, and its end with the
// bytes of both directions.
func TestRecordOfTunnel(t *testing.T) {
	t.Parallel()
	g := start(t, setup{upstream: "http://" + switching(t, "first")})
	c := g.dial(t)
	c.upgrade(g, "early")
	started := g.wantStart(t)
	c.closeWrite()
	got, err := c.rest()
	if err != nil {
		t.Fatal(err)
	}
	ended := g.wantEnd(t, started)
	wantRecord{accesslog.Forwarded, 101, 101, 5, int64(len(got)), true, accesslog.GET, ended.Path}.check(t, ended)
}

// panickingDecider is a Decider that panics.
type panickingDecider struct{ proxy.Decider }

func (panickingDecider) Decide(*admit.Request, *admit.Verdict) { panic("panic in a test's decider") }

func (panickingDecider) Review() admit.Review    { return admit.Review{} }
func (panickingDecider) GiveBack(*admit.Verdict) {}

func (panickingDecider) Extend(*ratelimit.Charge, *ratelimit.Used) {}
func (panickingDecider) Settle(*ratelimit.Charge, *ratelimit.Used) {}

// Guarantee: a panic gives a 500 and the access record of it.
func TestRecordOfPanic(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		g := serve(t, panickingDecider{}, setup{})
		resp, body := g.do(client, "GET", "/a", nil)
		if resp.StatusCode != 500 || resp.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, `"internal"`) {
			t.Errorf("got %+v with body %s, want a 500 in JSON with code internal", resp, body)
		}
		entries := g.records()
		if len(entries) != 1 || entries[0].Result != accesslog.Failed || entries[0].Status != 500 || entries[0].Gateway != [16]byte{} {
			t.Errorf("got records %+v, want one with result Failed, status 500 and no gateway", entries)
		}
	})
}

// Guarantee: requests that a drain cuts off are recorded by the time Shutdown returns.
func TestRecordOfRequestCutOffByDrain(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(byPath))
	t.Cleanup(upstream.Close)
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		g := start(t, setup{upstream: upstream.URL, realClock: true})
		done := make(chan struct{})
		go func() {
			defer close(done)
			g.request(t.Context(), client, "/forever")
		}()
		g.wantStart(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = g.server.Shutdown(ctx)
		ended := g.records()
		if len(ended) != 1 || ended[0].Part != accesslog.Ended || ended[0].Status != 503 {
			t.Errorf("got records %+v, want the end of one request with status 503", ended)
		}
		<-done
	})
}
