package nethttp_test

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
	"github.com/keygate/keygate/internal/proxy"
)

// over runs f with a client of HTTP/2, and with one of HTTP/1.1 whose requests
// the engine passes on to this driver.
func over(t *testing.T, f func(t *testing.T, client http.RoundTripper)) {
	t.Run("HTTP/2", func(t *testing.T) { f(t, h2cClient(t)) })
	t.Run("HTTP/1.1", func(t *testing.T) {
		client := &http.Transport{DisableCompression: true}
		t.Cleanup(client.CloseIdleConnections)
		f(t, client)
	})
}

// told is what a test wants a record to say. A negative out is the length of the
// body that the client got.
type told struct {
	decision         accesslog.Result
	status, upstream uint16
	in, out          int64
	authenticated    bool
	method           accesslog.Method
	path             string
}

func (w told) check(t *testing.T, e accesslog.Entry) {
	t.Helper()
	if got := (told{e.Result, e.Status, e.UpstreamStatus, e.BytesIn, e.BytesOut, e.Authenticated, e.Method, e.Path}); got != w {
		t.Errorf("\n got %+v\nwant %+v", got, w)
	}
	if e.Duration < 0 || e.Duration > int64(time.Hour) || (e.Upstream >= 0) != (w.upstream != 0) || e.Upstream > e.Duration ||
		time.Since(time.UnixMicro(e.Start)) > time.Hour {
		t.Errorf("it began at %v, lasted %v, the upstream %v", time.UnixMicro(e.Start), time.Duration(e.Duration), time.Duration(e.Upstream))
	}
	if client := net.IP(e.Client[:]); !client.IsLoopback() {
		t.Errorf("the client is %v", client)
	}
}

// answering is the upstream of the tests below: the path says what it does.
func answering(w http.ResponseWriter, r *http.Request) {
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

// Guarantee: however a request ends, it gives exactly one record, which says what
// the client got, and it is there when the client has the answer.
func TestOneRecordForEachRequest(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(answering))
	t.Cleanup(upstream.Close)
	over(t, func(t *testing.T, client http.RoundTripper) {
		e := start(t, setup{upstream: upstream.URL, maxBody: 1000, cors: &gateway.CORS{Origins: []string{"*"}}})
		const forwarded, malformed = accesslog.Forwarded, accesslog.Malformed
		for _, c := range []struct {
			method, path, body string
			fields             []string
			want               told
		}{
			{"GET", "/a?api_key=none&b=c", "", nil, told{forwarded, 200, 200, 0, 2, true, accesslog.GET, "/a"}},
			{"HEAD", "/a", "", nil, told{forwarded, 200, 200, 0, 0, true, accesslog.HEAD, "/a"}},
			{"GET", "/stream", "", nil, told{forwarded, 200, 200, 0, 15, true, accesslog.GET, "/stream"}},
			{"GET", "/none", "", nil, told{forwarded, 204, 204, 0, 0, true, accesslog.GET, "/none"}},
			{"GET", "/trailers", "", []string{"TE", "trailers"}, told{forwarded, 200, 200, 0, 4, true, accesslog.GET, "/trailers"}},
			{"GET", "/busy", "", nil, told{forwarded, 503, 503, 0, 0, true, accesslog.GET, "/busy"}},
			{"POST", "/stream", "hello", nil, told{forwarded, 200, 200, 5, 15, true, accesslog.POST, "/stream"}},
			{"POST", "/nothing", "", nil, told{accesslog.Unreachable, 502, 0, 0, -1, true, accesslog.POST, "/nothing"}},
			{"GET", "/a", "", []string{"Via", "1.1 keygate"}, told{accesslog.Unreachable, 502, 0, 0, -1, true, accesslog.GET, "/a"}},
			{"GET", "/a", "", []string{"Authorization", "twice"}, told{malformed, 400, 0, 0, -1, false, accesslog.GET, "/a"}},
			{"POST", "/a", strings.Repeat("x", 1001), nil, told{malformed, 413, 0, 0, -1, true, accesslog.POST, "/a"}},
			{"PROPFIND", "/a", "", nil, told{accesslog.NoMethod, 405, 0, 0, -1, true, accesslog.OtherMethod, "/a"}},
			{"OPTIONS", "/a", "", []string{"Origin", "http://b", "Access-Control-Request-Method", "GET"}, told{accesslog.Preflight, 204, 0, 0, 0, false, accesslog.OPTIONS, "/a"}},
			{"TRACE", "/a", "", nil, told{malformed, 405, 0, 0, -1, false, accesslog.TRACE, ""}},
			{"GET", "/" + strings.Repeat("a", admit.MaxTarget), "", nil, told{malformed, 414, 0, 0, -1, false, 0, ""}},
		} {
			t.Run(c.method+" "+c.path[:min(len(c.path), 20)], func(t *testing.T) {
				var body io.Reader
				if c.body != "" {
					body = strings.NewReader(c.body)
				}
				resp, text := e.do(client, c.method, c.path, body, c.fields...)
				entry := final(t, e.records())
				if c.want.out < 0 {
					c.want.out = int64(len(text))
				}
				if c.want.status == http.StatusRequestURITooLong {
					entry.Method = 0 // one of the drivers does not know it
				}
				c.want.check(t, entry)
				if got := id.Format(id.Request, entry.Request); got != resp.Header.Get("X-Request-Id") {
					t.Errorf("the record is of %s, the answer of %s", got, resp.Header.Get("X-Request-Id"))
				}
			})
		}
	})
}

// final returns the one record of the end of a request. One that lasts, as any
// may on a slow machine, was told of before.
func final(t *testing.T, entries []accesslog.Entry) accesslog.Entry {
	t.Helper()
	if len(entries) == 2 && entries[0].Part == accesslog.Started {
		begun := entries[0]
		entries = entries[1:]
		if last := entries[0]; last.Part != accesslog.Ended || last.Request != begun.Request || last.Duration < int64(100*time.Millisecond) {
			t.Fatalf("told of before its end: %+v, then %+v", begun, last)
		}
	}
	if len(entries) != 1 {
		t.Fatalf("%d records: %+v", len(entries), entries)
	}
	return entries[0]
}

// whole waits for the next records up to the end of a request.
func (e *edge) whole(t *testing.T) []accesslog.Entry {
	t.Helper()
	entries := e.next(t)
	for entries[len(entries)-1].Part == accesslog.Started {
		entries = append(entries, e.next(t)...)
	}
	return entries
}

// next waits for the next records.
func (e *edge) next(t *testing.T) []accesslog.Entry {
	t.Helper()
	for {
		if entries := e.records(); len(entries) > 0 {
			return entries
		}
		select {
		case <-t.Context().Done():
			t.Fatal("nothing was told")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Guarantee: an answer that breaks off is told of as far as it came, and a client
// that leaves before one as 499; a request that lasts is told of while it runs.
func TestRecordsOfBrokenRequests(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(answering))
	t.Cleanup(upstream.Close)
	over(t, func(t *testing.T, client http.RoundTripper) {
		e := start(t, setup{upstream: upstream.URL, moving: true})
		ask := func(ctx context.Context, path string) {
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+e.addr+path, nil)
			req.Header.Set("Authorization", "Bearer "+e.key)
			if resp, err := client.RoundTrip(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
		ask(t.Context(), "/half")
		told{accesslog.Forwarded, 200, 200, 0, 4, true, accesslog.GET, "/half"}.check(t, final(t, e.whole(t)))

		ctx, leave := context.WithCancel(t.Context())
		left := make(chan bool)
		go func() {
			ask(ctx, "/forever")
			close(left)
		}()
		begun := e.next(t)
		if len(begun) != 1 || begun[0].Part != accesslog.Started || begun[0].Path != "/forever" || begun[0].Status != 0 {
			t.Fatalf("%+v", begun)
		}
		leave()
		<-left
		ended := e.next(t)
		if len(ended) != 1 || ended[0].Part != accesslog.Ended || ended[0].Request != begun[0].Request {
			t.Fatalf("%+v", ended)
		}
		told{accesslog.Abandoned, 499, 0, 0, 0, true, accesslog.GET, "/forever"}.check(t, ended[0])

		e = start(t, setup{upstream: upstream.URL, timeout: "1s", moving: true})
		ask(t.Context(), "/forever")
		for _, entry := range e.next(t) {
			if entry.Part != accesslog.Started && (entry.Result != accesslog.TimedOut || entry.Status != 504 || entry.Part != accesslog.Ended) {
				t.Errorf("%+v", entry)
			}
		}
	})
}

// Guarantee: an upgrade is told of at once, and at its end with the bytes of both
// directions.
func TestRecordOfATunnel(t *testing.T) {
	e := start(t, setup{upstream: "http://" + switching(t, "first")})
	c := e.dial()
	if h := c.upgrade(e, "early"); h.status() != "101" {
		t.Fatalf("answer\n%s", h.text)
	}
	begun := e.next(t)
	if len(begun) != 1 || begun[0].Part != accesslog.Started {
		t.Fatalf("%+v", begun)
	}
	c.closeWrite()
	got, err := c.rest()
	if err != nil {
		t.Fatal(err)
	}
	ended := e.next(t)
	if len(ended) != 1 || ended[0].Part != accesslog.Ended || ended[0].Request != begun[0].Request {
		t.Fatalf("%+v", ended)
	}
	told{accesslog.Forwarded, 101, 101, 5, int64(len(got)), true, accesslog.GET, ended[0].Path}.check(t, ended[0])
}

// panics is a Decider with a defect.
type panics struct{ proxy.Decider }

func (panics) Decide(*admit.Request, *admit.Verdict) { panic("a defect of the test") }

// Guarantee: a defect gives a 500 and its record.
func TestRecordOfADefect(t *testing.T) {
	over(t, func(t *testing.T, client http.RoundTripper) {
		e := serve(t, panics{}, setup{})
		resp, body := e.do(client, "GET", "/a", nil)
		if resp.StatusCode != 500 || resp.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, `"internal"`) {
			t.Errorf("%+v %s", resp, body)
		}
		entries := e.records()
		if len(entries) != 1 || entries[0].Result != accesslog.Failed || entries[0].Status != 500 || entries[0].Gateway != [16]byte{} {
			t.Errorf("%+v", entries)
		}
	})
}

// Guarantee: what the end of a drain cuts off is told of when Shutdown returns.
func TestRecordsAtTheEnd(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(answering))
	t.Cleanup(upstream.Close)
	over(t, func(t *testing.T, client http.RoundTripper) {
		e := start(t, setup{upstream: upstream.URL})
		done := make(chan bool)
		go func() {
			defer close(done)
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+e.addr+"/forever", nil)
			req.Header.Set("Authorization", "Bearer "+e.key)
			if resp, err := client.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
		if begun := e.next(t); begun[0].Part != accesslog.Started {
			t.Fatalf("%+v", begun)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = e.server.Shutdown(ctx)
		ended := e.records()
		if len(ended) != 1 || ended[0].Part != accesslog.Ended || ended[0].Status != 503 {
			t.Errorf("%+v", ended)
		}
		<-done
	})
}
