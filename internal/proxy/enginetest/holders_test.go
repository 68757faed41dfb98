package enginetest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/proxy"
)

// holderService is a service for holders of keys that a test scripts.
type holderService func(ctx context.Context, r *proxy.HolderRequest) (int, []byte, error)

func (f holderService) Serve(ctx context.Context, r *proxy.HolderRequest) (int, []byte, error) {
	return f(ctx, r)
}

// sayBack responds with what it was asked.
func sayBack(_ context.Context, r *proxy.HolderRequest) (int, []byte, error) {
	return 201, fmt.Appendf(nil, "%d %s %s %s %s", r.Service, r.Method, r.Path, r.KeyID, r.Body), nil
}

// Guarantee: plans.md, 9: over HTTP/1.1 and HTTP/2, a service for holders gets the whole body however it is framed, and its
// response goes out as JSON that nobody stores, with the fields of CORS and of the key's limits, of which it charges nothing.
// Nothing reaches the upstream.
func TestHoldersAreServedOverAll(t *testing.T) {
	t.Parallel()
	const origin = "https://app.test"
	addr, heads := recorder(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	g := start(t, setup{upstream: "http://" + addr, holders: holderService(sayBack), cors: &gateway.CORS{Origins: []string{origin}}, limit: "5/day", errors: fault.FormatProblem})
	for name, transport := range map[string]http.RoundTripper{"HTTP/1.1": http.DefaultTransport, "HTTP/2": h2cClient(t)} {
		// A reader of another type than those of net/http has no length.
		for _, body := range []io.Reader{strings.NewReader(`{"overlap_days": 7}`), io.MultiReader(strings.NewReader(`{"overlap_`), strings.NewReader(`days": 7}`))} {
			resp, text := g.do(transport, "POST", "/.keygate/rotate?a=b", body, "Origin", origin)
			want := fmt.Sprintf(`%d POST /.keygate/rotate %s {"overlap_days": 7}`, admit.Rotate, keyID)
			h := resp.Header
			if resp.StatusCode != 201 || text != want || h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" ||
				h.Get("Access-Control-Allow-Origin") != origin || h.Get("X-Request-Id") == "" || h.Get("X-RateLimit-Limit") != "5" || h.Get("X-RateLimit-Remaining") != "5" {
				t.Errorf("%s: got %d %v %q, want 201 and %q", name, resp.StatusCode, h, text, want)
			}
		}
		resp, text := g.do(transport, "GET", "/.keygate/usage", nil)
		if want := fmt.Sprintf("%d GET /.keygate/usage %s ", admit.Usage, keyID); resp.StatusCode != 201 || text != want {
			t.Errorf("%s: got %d %q, want %q", name, resp.StatusCode, text, want)
		}
		resp, text = g.do(transport, "HEAD", "/.keygate/usage", nil)
		if resp.StatusCode != 201 || text != "" || resp.ContentLength < 20 {
			t.Errorf("%s: HEAD got %d, %q and length %d, want the fields of a GET alone", name, resp.StatusCode, text, resp.ContentLength)
		}
		resp, text = g.do(transport, "GET", "/.keygate/other", nil)
		if resp.StatusCode != 404 || !strings.Contains(text, "route_not_found") || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: got %d %v %s, want a 404 as the gateway's own errors", name, resp.StatusCode, resp.Header, text)
		}
		for i, r := range g.records() {
			want := accesslog.SelfServed
			if i == 4 {
				want = accesslog.NoRoute
			}
			if r.Result != want || r.Route != [16]byte{} || r.Key == [16]byte{} || !r.Authenticated || r.PeriodEnd != 0 || int(r.Status) == 0 {
				t.Errorf("%s: got record %+v, want result %d, with the key and without a route and usage", name, r, want)
			}
		}
	}
	wantNone(t, heads)
}

// Guarantee: a body of a request to a service is bounded to 1 KiB, declared or not, and the service is not asked then. A
// request of HTTP/1.1 that follows on the same connection is served.
func TestBodiesOfHoldersAreBounded(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	begin := func() *harness { // with a key that has not used its ten calls
		return start(t, setup{upstream: "http://127.0.0.1:9", holders: holderService(func(ctx context.Context, r *proxy.HolderRequest) (int, []byte, error) {
			asked <- struct{}{}
			return sayBack(ctx, r)
		})})
	}
	for name, transport := range map[string]http.RoundTripper{"HTTP/1.1": http.DefaultTransport, "HTTP/2": h2cClient(t)} {
		g := begin()
		for length, want := range map[int]int{proxy.MaxHolderBody: 201, proxy.MaxHolderBody + 1: 413, 100 << 10: 413} {
			for _, hides := range []bool{false, true} {
				body := io.Reader(strings.NewReader(strings.Repeat("a", length)))
				if hides {
					body = io.MultiReader(body)
				}
				if resp, text := g.do(transport, "POST", "/.keygate/rotate", body); resp.StatusCode != want {
					t.Errorf("%s: %d bytes (hidden: %v) got %d %s, want %d", name, length, hides, resp.StatusCode, text, want)
				}
			}
		}
	}
	if len(asked) != 4 {
		t.Errorf("the service was asked %d times, want 4", len(asked))
	}
	for _, framed := range []string{
		"Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n" + chunk("a") + chunk("bc") + "0\r\n\r\n",
	} {
		g := begin()
		c := g.dial(t)
		// Two in one piece, and one in several.
		one := "POST /.keygate/rotate HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + g.key + "\r\n" + framed
		c.Send(one + one)
		for range 2 {
			h := c.wantHead("201")
			c.text(length(t, h))
		}
		for i := range len(one) {
			c.Send(one[i : i+1])
		}
		h := c.wantHead("201")
		if text := c.text(length(t, h)); !strings.HasSuffix(text, " abc") {
			t.Errorf("got %q, want the body abc", text)
		}
	}
	g := begin()
	c := g.dial(t)
	c.request(g, "POST /.keygate/rotate HTTP/1.1", "Content-Length: 3", "Expect: 100-continue")
	c.wantHead("100")
	c.Send("abc")
	h := c.wantHead("201")
	c.text(length(t, h))
	c.request(g, "POST /.keygate/rotate HTTP/1.1", "Transfer-Encoding: chunked")
	c.Send("zz\r\n")
	h = c.wantHead("400")
	c.text(length(t, h))
}

func length(t *testing.T, h head) int {
	t.Helper()
	n, err := strconv.Atoi(h.get("content-length"))
	if err != nil {
		t.Fatalf("got %+v, want a Content-Length", h)
	}
	return n
}

// Guarantee: a large response of a service goes out whole over HTTP/1.1 and HTTP/2, beside other requests that are served while
// a service waits; and what a service refuses is a refusal, with the fields and the record of its error.
func TestResponsesToHolders(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789", 50_000)
	release := make(chan struct{})
	next := make(chan error, 1)
	service := holderService(func(ctx context.Context, r *proxy.HolderRequest) (int, []byte, error) {
		switch {
		case r.Method == "HEAD":
			select {
			case <-release:
			case <-ctx.Done():
				return 0, nil, ctx.Err()
			}
		case r.Service == admit.Rotate:
			return 0, nil, <-next
		}
		return 200, []byte(large), nil
	})
	for name, transport := range map[string]http.RoundTripper{"HTTP/1.1": http.DefaultTransport, "HTTP/2": h2cClient(t)} {
		g := start(t, setup{upstream: "http://127.0.0.1:9", holders: service})
		waited := make(chan int, 1)
		go func() {
			resp, _ := g.do(transport, "HEAD", "/.keygate/usage", nil)
			waited <- resp.StatusCode
		}()
		if resp, text := g.do(transport, "GET", "/.keygate/usage", nil); resp.StatusCode != 200 || text != large {
			t.Errorf("%s: got %d and %d bytes, want 200 and %d", name, resp.StatusCode, len(text), len(large))
		}
		release <- struct{}{}
		if got := receive(t, "the response that was held back", waited); got != 200 {
			t.Errorf("%s: got %d, want 200", name, got)
		}
		g.records()
		for _, c := range []struct {
			err     error
			status  int
			result  accesslog.Result
			field   string // a field and its value
			value   string
			payload string
		}{
			{fault.New(fault.Conflict, "twice"), 409, accesslog.SelfServed, "Retry-After", "", `"twice"`},
			{fault.Invalid("overlap_days", "bad"), 422, accesslog.SelfServed, "Cache-Control", "no-store", `"field":"overlap_days"`},
			{&fault.Error{Code: fault.Unauthorized, Auth: fault.KeyInvalid, Message: "gone"}, 401, accesslog.KeyInvalid, "Www-Authenticate", "Bearer", `"code":"key_invalid"`},
			{&fault.Error{Code: fault.RateLimitExceeded, Message: "full", Limit: &fault.Limit{Limit: 3, ResetAt: 1 << 33, Scope: "self_service", Window: 60}}, 429, accesslog.Limited, "X-Ratelimit-Limit", "3", `"limit_scope":"self_service"`},
			{io.ErrUnexpectedEOF, 500, accesslog.Failed, "Retry-After", "", `"internal"`},
		} {
			next <- c.err
			resp, text := g.do(transport, "POST", "/.keygate/rotate", nil)
			if resp.StatusCode != c.status || !strings.Contains(text, c.payload) || resp.Header.Get(c.field) != c.value || strings.Contains(text, "EOF") {
				t.Errorf("%s: %v got %d %v %s, want %d with %s and %s: %q", name, c.err, resp.StatusCode, resp.Header, text, c.status, c.payload, c.field, c.value)
			}
			if c.status == 429 && (resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-Ratelimit-Reset") != strconv.Itoa(1<<33)) {
				t.Errorf("%s: got %v, want a Retry-After and the time of the reset", name, resp.Header)
			}
			records := g.records()
			if len(records) != 1 || records[0].Result != c.result || int(records[0].Status) != c.status {
				t.Errorf("%s: %v got records %+v, want one with the result %d", name, c.err, records, c.result)
			}
		}
	}
}

// Guarantee: a client that hangs up while a service waits ends the wait.
func TestHoldersHangUp(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}, 2), make(chan error, 2)
	g := start(t, setup{upstream: "http://127.0.0.1:9", realClock: true, holders: holderService(func(ctx context.Context, _ *proxy.HolderRequest) (int, []byte, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return 0, nil, ctx.Err()
	})})
	for _, transport := range []http.RoundTripper{&http.Transport{}, h2cClient(t)} {
		ctx, cancel := context.WithCancel(context.Background())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			req, err := http.NewRequestWithContext(ctx, "GET", "http://"+g.addr+"/.keygate/usage", http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+g.key)
			if resp, err := transport.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
				t.Errorf("got %d, want no response", resp.StatusCode)
			}
		}()
		receive(t, "the service", began)
		cancel()
		receive(t, "the end of the request", gone)
		receive(t, "the end of the service", ended)
	}
}
