package upstream_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func newPools(t *testing.T, cfg upstream.Config) *upstream.Pools {
	t.Helper()
	if cfg.Guard == nil {
		cfg.Guard = netguard.New()
	}
	p, err := upstream.NewPools(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// send sends a request and returns the whole response.
func send(t *testing.T, pools *upstream.Pools, o upstream.Origin, req *http.Request) (*http.Response, string, error) {
	t.Helper()
	pool, err := pools.Get(o)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := pool.Send(t.Context(), &upstream.Exchange{Request: req, Retry: proxy.Retryable(req.Method, req.Body != nil), HeadTimeout: time.Minute})
	if err != nil {
		return nil, "", err
	}
	defer resp.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.Response, string(body), err
}

func request(method, base, target string) *http.Request {
	u, err := url.Parse(base)
	if err != nil {
		panic(err)
	}
	return &http.Request{
		Method: method, URL: upstream.Target(u, target), Host: u.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"User-Agent": {""}},
	}
}

// retryUpstream is an upstream that closes its first connection after it has read a second
// request on it, without a response.
type retryUpstream struct {
	addr string

	mu    sync.Mutex
	heads []string // of all requests
}

func newRetryUpstream(t *testing.T) *retryUpstream {
	t.Helper()
	u := &retryUpstream{}
	u.addr = upstreamtest.Serve(t, func(conn *upstreamtest.Conn) {
		for n := 1; ; n++ {
			head, err := conn.ReadHead()
			if err != nil {
				return
			}
			u.mu.Lock()
			u.heads = append(u.heads, head)
			u.mu.Unlock()
			if conn.Number == 1 && n == 2 {
				return
			}
			conn.Send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	return u
}

// received returns the heads of all requests so far.
func (u *retryUpstream) received() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.heads
}

// Guarantee: exactly the requests that contract 4.4 names are sent a second time when a
// kept connection fails before the first byte of a response, whatever idempotency header
// the client sends.
func TestRetry(t *testing.T) {
	for _, c := range []struct {
		method  string
		field   string
		body    string
		retried bool
	}{
		{method: "GET", retried: true},
		{method: "HEAD", retried: true},
		{method: "OPTIONS", retried: true},
		{method: "PUT", retried: true},
		{method: "DELETE", retried: true},
		{method: "DELETE", field: "X-Idempotency-Key", retried: true},
		{method: "PUT", body: "text"},
		{method: "DELETE", body: "text"},
		{method: "POST"},
		{method: "POST", body: "text"},
		{method: "POST", field: "Idempotency-Key"},
		{method: "POST", field: "X-Idempotency-Key"},
		{method: "PATCH", field: "Idempotency-Key"},
		{method: "PURGE"},
	} {
		t.Run(c.method+" "+c.field+" "+c.body, func(t *testing.T) {
			u := newRetryUpstream(t)
			pools, origin := newPools(t, upstream.Config{}), upstream.Origin{Scheme: "http", Host: u.addr}
			if _, _, err := send(t, pools, origin, request("GET", "http://"+u.addr, "/first")); err != nil {
				t.Fatal(err)
			}
			req := request(c.method, "http://"+u.addr, "/second")
			if c.field != "" {
				req.Header[c.field] = []string{"k"}
			}
			if c.body != "" {
				req.Body, req.ContentLength = io.NopCloser(strings.NewReader(c.body)), int64(len(c.body))
			}
			_, _, err := send(t, pools, origin, req)
			want := 2 // the first request, and the second once
			if c.retried {
				want = 3
			}
			heads := u.received()
			if len(heads) != want {
				t.Errorf("%d requests arrived, want %d", len(heads), want)
			}
			if c.retried && err != nil {
				t.Errorf("got error %v, want a response to the retry", err)
			}
			if !c.retried && fault.CodeOf(err) != fault.UpstreamUnreachable {
				t.Errorf("got error %v, want code upstream_unreachable", err)
			}
			checkIdempotencyFields(t, heads[len(heads)-1], c.field != "")
		})
	}
}

// checkIdempotencyFields fails the test unless head has exactly the client's own header, if
// it sent one.
func checkIdempotencyFields(t *testing.T, head string, sent bool) {
	t.Helper()
	want := 0
	if sent {
		want = 1
	}
	head = strings.ToLower(head)
	if got := strings.Count(head, "idempotency-key: k"); got != want {
		t.Errorf("the client's header was sent %d times, want %d:\n%s", got, want, head)
	}
	if got := strings.Count(head, "idempotency-key"); got > want {
		t.Errorf("%d idempotency headers were sent, want %d:\n%s", got, want, head)
	}
}

// Guarantee: targets reach the wire byte for byte, appended to the base path (contract,
// 4.2).
func TestTargetBytes(t *testing.T) {
	lines := make(chan string, 1)
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			head, err := c.ReadHead()
			if err != nil {
				return
			}
			line, _, _ := strings.Cut(head, "\r\n")
			lines <- line
			c.Send("HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	pools := newPools(t, upstream.Config{})
	rapid.Check(t, func(rt *rapid.T) {
		const pathBytes = "abcXYZ019-._~!$&'()*+,;=:@/%"
		base := rapid.SampledFrom([]string{"", "/", "/base", "/base/", "/b%41se/x"}).Draw(rt, "base")
		path := "/a" + rapid.StringOfN(rapid.SampledFrom([]rune(pathBytes)), 0, 40, -1).Draw(rt, "path")
		query := rapid.SampledFrom([]string{"", "?"}).Draw(rt, "mark")
		if query != "" {
			query += rapid.StringOfN(rapid.SampledFrom([]rune(pathBytes+"?\"[]{}|^`<>\\#")), 0, 40, -1).Draw(rt, "query")
		}
		if _, _, err := send(t, pools, upstream.Origin{Scheme: "http", Host: addr}, request("GET", "http://"+addr+base, path+query)); err != nil {
			rt.Fatal(err)
		}
		want := "GET " + strings.TrimSuffix(base, "/") + path + query + " HTTP/1.1"
		if got := <-lines; got != want {
			rt.Fatalf("arrived as\n%q, sent as\n%q", got, want)
		}
	})
}

// Guarantee: the failures of an upstream have different errors: no listener, refused by the guard,
// closed before the head, no head in time.
func TestFailures(t *testing.T) {
	silent := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = io.Copy(io.Discard, c) })
	broken := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		_, _ = c.ReadHead()
		c.Send("HTTP/1.1 200 OK\r\nContent-")
	})
	const closedPort = "127.0.0.1:9" // the discard port, on which nothing listens
	guard := netguard.New()
	guard.SetListeners(netip.MustParseAddrPort("127.0.0.1:1"))
	pools := newPools(t, upstream.Config{Guard: guard})
	for name, c := range map[string]struct {
		origin  upstream.Origin
		code    fault.Code
		refused bool
	}{
		"closed":  {origin: upstream.Origin{Scheme: "http", Host: closedPort}, code: fault.UpstreamUnreachable},
		"broken":  {origin: upstream.Origin{Scheme: "http", Host: broken}, code: fault.UpstreamUnreachable},
		"silent":  {origin: upstream.Origin{Scheme: "http", Host: silent}, code: fault.UpstreamTimeout},
		"own":     {origin: upstream.Origin{Scheme: "http", Host: "127.0.0.1:1"}, code: fault.UpstreamUnreachable, refused: true},
		"private": {origin: upstream.Origin{Scheme: "http", Host: silent, PublicOnly: true}, code: fault.UpstreamUnreachable, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			pool, err := pools.Get(c.origin)
			if err != nil {
				t.Fatal(err)
			}
			req := request("GET", c.origin.Scheme+"://"+c.origin.Host, "/")
			patience := time.Minute
			if c.code == fault.UpstreamTimeout {
				patience = 200 * time.Millisecond
			}
			_, err = pool.Send(t.Context(), &upstream.Exchange{Request: req, HeadTimeout: patience})
			var refused *netguard.RefusedError
			if fault.CodeOf(err) != c.code || errors.As(err, &refused) != c.refused {
				t.Errorf("got %v, want %s, refused by the guard %v", err, c.code, c.refused)
			}
			if status, body := fault.Response(err, "req_1"); status < 502 || strings.Contains(string(body), "127.0.0.1") {
				t.Errorf("the client gets %d %s, want a 502 or 504 without the address", status, body)
			}
		})
	}
}

// Guarantee: every account can reach a network that the operator allows.
func TestAllowedNetwork(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	pools := newPools(t, upstream.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	origin := upstream.Origin{Scheme: "http", Host: s.Listener.Addr().String(), PublicOnly: true}
	if _, _, err := send(t, pools, origin, request("GET", s.URL, "/")); err != nil {
		t.Error(err)
	}
}

// Guarantee: an https upstream is verified against upstream_ca alone if that is set, and
// spoken to over HTTP/2 if it offers that.
func TestTLS(t *testing.T) {
	for _, offers := range []bool{true, false} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Proto+" "+r.RequestURI)
		}))
		s.EnableHTTP2 = offers
		s.StartTLS()
		host := s.Listener.Addr().String()
		ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
		want := "HTTP/1.1 /base/a%2fb?q"
		if offers {
			want = "HTTP/2.0 /base/a%2fb?q"
		}
		pools := newPools(t, upstream.Config{})
		_, body, err := send(t, pools, upstream.Origin{Scheme: "https", Host: host, CA: ca}, request("GET", s.URL+"/base", "/a%2fb?q"))
		if err != nil || body != want {
			t.Errorf("with the CA: %q %v, want %q", body, err, want)
		}
		_, _, err = send(t, pools, upstream.Origin{Scheme: "https", Host: host}, request("GET", s.URL, "/"))
		var unknown x509.UnknownAuthorityError
		if !errors.As(err, &unknown) {
			t.Errorf("with the system's roots: got error %v, want x509.UnknownAuthorityError", err)
		}
		if _, err := pools.Get(upstream.Origin{Scheme: "https", Host: host, CA: "no PEM"}); err == nil {
			t.Error("Get succeeded with a CA that is not PEM, want an error")
		}
		pools.Close()
		s.Close()
	}
}

// Guarantee: gateways with the same origin share connections, others do not.
func TestPoolsByOrigin(t *testing.T) {
	pools := newPools(t, upstream.Config{})
	get := func(o upstream.Origin) *upstream.Pool {
		p, err := pools.Get(o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a := upstream.Origin{Scheme: "http", Host: "a.test"}
	if first := get(a); first != get(a) {
		t.Error("one origin has two pools")
	}
	for _, other := range []upstream.Origin{
		{Scheme: "h2c", Host: "a.test"}, {Scheme: "http", Host: "a.test:81"}, {Scheme: "http", Host: "a.test", PublicOnly: true},
	} {
		if get(a) == get(other) {
			t.Errorf("%+v shares the pool of %+v", other, a)
		}
	}
	if _, err := pools.Get(upstream.Origin{Scheme: "ftp", Host: "a.test"}); err == nil {
		t.Error("Get succeeded with scheme ftp, want an error")
	}
}

// Guarantee: the end of Send's context ends the exchange, with the context's error.
func TestSendEndsWithContext(t *testing.T) {
	arrived := make(chan struct{})
	ended := make(chan struct{})
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		_, _ = c.ReadHead()
		close(arrived)
		_, _ = io.Copy(io.Discard, c)
		close(ended)
	})
	pool, err := newPools(t, upstream.Config{}).Get(upstream.Origin{Scheme: "http", Host: addr})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err = pool.Send(ctx, &upstream.Exchange{Request: request("GET", "http://"+addr, "/"), HeadTimeout: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
	<-ended
}
