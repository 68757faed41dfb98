package enginetest_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/porttest"
)

// targetFault is what a target does with a request in place of a whole response.
type targetFault struct {
	kind   faultKind
	status int // of faultStatus
	after  int // bytes of the body that it reads first
}

type faultKind int

const (
	faultNone   faultKind = iota
	faultReset            // it ends the connection
	faultStatus           // it responds with a status
)

// fleetOfTargets is several targets that follow one script: the n-th request that arrives, at whichever of them, meets
// the n-th fault, and every later one gets a response.
type fleetOfTargets struct {
	urls   []string
	ca     string // of https targets
	faults []targetFault
	failed chan struct{} // receives a value when a target has failed

	mu      sync.Mutex
	arrived []arrivedRequest
}

// arrivedRequest is a request as a target got it.
type arrivedRequest struct {
	target        int
	attempt, host string
	body          []byte
	whole         bool
}

type connKey struct{}

// startTargets starts n targets. Of https targets, those in http1 speak only HTTP/1.1.
func startTargets(t testing.TB, scheme string, n int, faults []targetFault, http1 ...int) *fleetOfTargets {
	t.Helper()
	f := &fleetOfTargets{faults: faults, failed: make(chan struct{}, 16)}
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		protocols := new(http.Protocols)
		protocols.SetHTTP1(scheme != "h2c")
		protocols.SetUnencryptedHTTP2(scheme == "h2c")
		protocols.SetHTTP2(scheme == "https" && !slices.Contains(http1, i))
		s := &http.Server{
			Protocols: protocols, ReadHeaderTimeout: testTimeout,
			Handler:     http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(i, w, r) }),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		}
		var serving sync.WaitGroup
		if scheme == "https" {
			certified := httptest.NewUnstartedServer(nil)
			certified.StartTLS()
			certified.Close()
			f.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw}))
			s.TLSConfig, s.ErrorLog = &tls.Config{Certificates: certified.TLS.Certificates}, log.New(io.Discard, "", 0)
			serving.Go(func() { _ = s.ServeTLS(l, "", "") })
		} else {
			serving.Go(func() { _ = s.Serve(l) })
		}
		t.Cleanup(func() {
			_ = s.Close()
			serving.Wait()
		})
		f.urls = append(f.urls, scheme+"://"+l.Addr().String())
	}
	return f
}

func (f *fleetOfTargets) serve(target int, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/plain" {
		_, _ = io.WriteString(w, "plain")
		return
	}
	f.mu.Lock()
	n := len(f.arrived)
	f.arrived = append(f.arrived, arrivedRequest{target: target, attempt: r.Header.Get("X-Keygate-Attempt"), host: r.Host})
	fault := targetFault{}
	if n < len(f.faults) {
		fault = f.faults[n]
	}
	f.mu.Unlock()
	switch fault.kind {
	case faultReset:
		_, _ = io.ReadFull(r.Body, make([]byte, fault.after))
		c, _ := r.Context().Value(connKey{}).(net.Conn)
		if over, is := c.(*tls.Conn); is {
			c = over.NetConn()
		}
		_ = c.Close()
		f.failed <- struct{}{}
		panic(http.ErrAbortHandler)
	case faultStatus:
		_, _ = io.ReadFull(r.Body, make([]byte, fault.after))
		w.WriteHeader(fault.status)
		f.failed <- struct{}{}
	case faultNone:
		body, err := io.ReadAll(r.Body)
		f.mu.Lock()
		f.arrived[n].body, f.arrived[n].whole = body, err == nil
		f.mu.Unlock()
		_, _ = fmt.Fprint(w, len(body))
	}
}

// config returns a configuration of the targets.
func (f *fleetOfTargets) config(r gateway.Retries) func(*gateway.Upstream) {
	return func(u *gateway.Upstream) {
		u.Retries, u.TLS.CA = &r, cmp.Or(u.TLS.CA, f.ca)
		for _, url := range f.urls {
			u.Targets = append(u.Targets, gateway.Target{URL: url})
		}
	}
}

// wantIdle checks that no attempt remains in flight, and how many there were. The last one may end after its response, if that
// is a head alone.
func (g *harness) wantIdle(t rapid.TB, attempts int) {
	t.Helper()
	awaittest.True(g.t, "no attempt is in flight", func() bool {
		return !slices.ContainsFunc(g.balance.Observe(g.now(), nil), func(s balance.Status) bool { return s.InFlight != 0 || s.Own != 0 })
	})
	all := uint64(0)
	for _, s := range g.balance.Observe(g.now(), nil) {
		all += s.Requests
	}
	if all != uint64(attempts) {
		t.Errorf("got %d attempts, want %d", all, attempts)
	}
}

// movedRequest is a request to several targets, and how they fail.
type movedRequest struct {
	scheme, client string
	http1          []int  // targets that speak only HTTP/1.1
	method, path   string // "" for /a
	idempotencyKey bool
	expects        bool // the client waits for a 100 before it sends the body
	retries        gateway.Retries
	faults         []targetFault
	body           []byte
	sent           int // bytes of the body that are sent before the first fault
}

func drawMovedRequest(t *rapid.T) movedRequest {
	m := movedRequest{
		scheme: rapid.SampledFrom([]string{"http", "h2c", "https"}).Draw(t, "scheme"), client: rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "client"),
		method:         rapid.SampledFrom([]string{"GET", "PUT", "DELETE", "POST", "PATCH"}).Draw(t, "method"),
		idempotencyKey: rapid.Bool().Draw(t, "with Idempotency-Key"),
		retries: gateway.Retries{
			Attempts: rapid.IntRange(0, gateway.MaxRetryAttempts).Draw(t, "attempts"), BudgetPercent: 20, IdempotencyKey: rapid.Bool().Draw(t, "idempotency_key"),
			On: rapid.SampledFrom([][]string{{"connect", "reset"}, {"connect"}, {"connect", "reset", "503"}, {"503"}}).Draw(t, "on"),
		},
	}
	if m.scheme == "https" {
		m.http1 = rapid.SliceOfNDistinct(rapid.IntRange(0, 2), 0, 3, rapid.ID[int]).Draw(t, "HTTP/1.1 only")
	}
	if m.method != "GET" && m.method != "DELETE" {
		m.body = bytes.Repeat([]byte("0123456789"), rapid.SampledFrom([]int{0, 1, 50, 500, 6000, 20_000}).Draw(t, "body"))
		m.sent = rapid.IntRange(0, len(m.body)).Draw(t, "sent")
		m.expects = rapid.Bool().Draw(t, "Expect: 100-continue")
	}
	for range rapid.IntRange(0, 4).Draw(t, "faults") {
		f := targetFault{kind: faultReset, status: 503}
		if rapid.Bool().Draw(t, "status") {
			f.kind = faultStatus
		}
		f.after = rapid.IntRange(0, m.sent).Draw(t, "after")
		m.faults = append(m.faults, f)
	}
	return m
}

// repeatable reports whether sending the request again does no harm.
func (m *movedRequest) repeatable() bool {
	return m.method != "POST" && m.method != "PATCH" || m.idempotencyKey && m.retries.IdempotencyKey
}

// outcomes returns the possible numbers of attempts of the request. A response with a status leads to another attempt only if
// the whole request was sent at once, which a test cannot know of a request with a body. After a reset, that depends on how
// much of a body beyond 64 KiB was sent.
func (m *movedRequest) outcomes() (counts []int) {
	for n := 1; ; n++ {
		if n > len(m.faults) {
			return append(counts, n)
		}
		f := m.faults[n-1]
		on := "reset"
		if f.kind == faultStatus {
			on = "503"
		}
		switch {
		case n > m.retries.Attempts, !m.repeatable(), !slices.Contains(m.retries.On, on), f.after > 64<<10:
			return append(counts, n)
		case f.kind == faultStatus && len(m.body) > 0, len(m.body) > 64<<10:
			counts = append(counts, n)
		}
	}
}

// Guarantee: targets.md, 4. A request whose target fails is sent to another one exactly when that may be: never a POST that was
// written, unless it has an Idempotency-Key and the upstream says so; never more often than `attempts` says; never for what
// `on` does not name. The target that responds gets the whole body, once, whatever was sent of it before; the client gets one
// response; and nothing remains in flight.
func TestRequestsMoveToAnotherTarget(t *testing.T) {
	clients := map[string]http.RoundTripper{"h1": &http.Transport{DisableCompression: true, ExpectContinueTimeout: testTimeout}, "h2": h2cClient(t)}
	rapid.Check(t, func(r *rapid.T) {
		m := drawMovedRequest(r)
		f := startTargets(t, m.scheme, 3, m.faults, m.http1...)
		g := start(t, setup{upstream: f.urls[0], realClock: true, adjust: f.config(m.retries)})
		status, got := m.send(r, g, clients[m.client], f)
		f.mu.Lock()
		n := len(f.arrived)
		f.mu.Unlock()
		g.wantIdle(r, n)
		if n > len(m.faults) {
			if rec := final(t, g.records()); rec.BytesIn != int64(len(m.body)) || rec.Status != http.StatusOK {
				r.Errorf("the record says %d bytes in and status %d, want %d and 200", rec.BytesIn, rec.Status, len(m.body))
			}
		}
		next := movedRequest{method: "GET", path: "/plain"} // perhaps over the same connection
		if status, got := next.send(r, g, clients[m.client], f); status != http.StatusOK || got != "plain" {
			r.Errorf("the client's next request got %d, %q; want 200, plain", status, got)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if !slices.Contains(m.outcomes(), n) {
			r.Fatalf("the request was sent %d times, want one of %v", n, m.outcomes())
		}
		for i, a := range f.arrived {
			want := ""
			if i > 0 {
				want = strconv.Itoa(i + 1)
			}
			if a.attempt != want {
				r.Errorf("attempt %d says X-Keygate-Attempt: %q, want %q", i+1, a.attempt, want)
			}
			if i > 0 && i < 3 && slices.ContainsFunc(f.arrived[:i], func(b arrivedRequest) bool { return b.target == a.target }) {
				r.Errorf("attempt %d went to a target that had failed before", i+1)
			}
		}
		if n > len(m.faults) {
			last := f.arrived[n-1]
			if status != http.StatusOK || got != strconv.Itoa(len(m.body)) || !last.whole || !bytes.Equal(last.body, m.body) {
				r.Fatalf("got %d, %q, and the target a body of %d bytes, whole: %t; want 200 and %d bytes", status, got, len(last.body), last.whole, len(m.body))
			}
			return
		}
		want := http.StatusBadGateway
		if m.faults[n-1].kind == faultStatus {
			want = m.faults[n-1].status
		}
		if status != want {
			r.Fatalf("got %d, want %d", status, want)
		}
	})
}

// send sends the request, its first bytes before the first fault and the rest afterwards.
func (m *movedRequest) send(t rapid.TB, g *harness, client http.RoundTripper, f *fleetOfTargets) (status int, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var sends io.Reader
	if len(m.body) > 0 {
		sends = bytes.NewReader(m.body)
		if len(m.faults) > 0 && m.sent < len(m.body) {
			sends = io.MultiReader(bytes.NewReader(m.body[:m.sent]), gate(f.failed), bytes.NewReader(m.body[m.sent:]))
		}
	}
	req, err := http.NewRequestWithContext(ctx, m.method, "http://"+g.addr+cmp.Or(m.path, "/a"), sends)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
	if m.expects {
		req.Header.Set("Expect", "100-continue")
	}
	if m.idempotencyKey {
		req.Header.Set("Idempotency-Key", "1")
	}
	resp, err := client.RoundTrip(req)
	if err != nil {
		t.Fatalf("got error %v, want a response", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("got error %v after the head of the response", err)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// Guarantee: targets.md, 4. A request whose connection could not be made goes to another target, whatever its method, and a
// target that refuses connections is left alone after five of them.
func TestRefusedConnectionsCostNoRequest(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		f := startTargets(t, "http", 1, nil)
		for range 2 {
			f.urls = append(f.urls, "http://"+porttest.Reserve(t))
		}
		g := start(t, setup{upstream: f.urls[0], realClock: true, adjust: f.config(gateway.Retries{Attempts: 2, BudgetPercent: 100, On: []string{"connect"}})})
		const requests = 100
		for i := range requests {
			m := movedRequest{method: "POST", body: []byte("0123456789")}
			if status, got := m.send(t, g, client, f); status != http.StatusOK || got != "10" {
				t.Fatalf("request %d: got %d, %q; want 200 and 10 bytes", i, status, got)
			}
		}
		for _, s := range g.balance.Observe(g.now(), nil) {
			if s.Target.URL() == f.urls[0] {
				if s.Requests != requests || s.Failures != 0 {
					t.Errorf("got %d attempts, %d failed, at the target that serves; want %d and none", s.Requests, s.Failures, requests)
				}
				continue
			}
			if s.Requests > 5+s.Ejections || s.Failures != s.Requests { // one more for each time that it is half-open
				t.Errorf("got %d attempts, %d failed, at a target that refuses; want at most 5 before it is out, and all failed", s.Requests, s.Failures)
			}
		}
	})
}

// Guarantee: targets.md, 1. The host of an upstream with several https targets is the name that the certificate of each must
// have, whatever its URL says, and what its handshake asks for. A target without such a certificate gets nothing of a request.
func TestHostIsProvenByCertificates(t *testing.T) {
	for _, c := range []struct {
		host string
		want int
	}{{"example.com", http.StatusOK}, {"other.test", http.StatusBadGateway}} { // httptest has a certificate for example.com
		t.Run(c.host, func(t *testing.T) {
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				var got, asked atomic.Int64
				f := &fleetOfTargets{}
				ca := ""
				for range 2 {
					s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						got.Add(1)
						if r.TLS.ServerName != c.host || r.Host != c.host || r.Header.Get("X-Secret") != "s3cret" {
							t.Errorf("got a request for %q over a connection for %q", r.Host, r.TLS.ServerName)
						}
						_, _ = io.Copy(w, r.Body)
					}))
					s.EnableHTTP2, s.Config.ErrorLog = true, log.New(io.Discard, "", 0)
					s.TLS = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
						if h.ServerName == c.host {
							asked.Add(1)
						}
						return nil, nil
					}}
					s.StartTLS()
					t.Cleanup(s.Close)
					f.urls = append(f.urls, s.URL)
					ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
				}
				configure := f.config(gateway.DefaultRetries())
				g := start(t, setup{upstream: f.urls[0], realClock: true, ca: ca, host: c.host, headers: map[string]string{"X-Secret": "s3cret"}, adjust: configure})
				m := movedRequest{method: "PUT", body: []byte("hello")}
				if status, _ := m.send(t, g, client, f); status != c.want {
					t.Errorf("got %d, want %d", status, c.want)
				}
				if asked.Load() == 0 || got.Load() > 0 != (c.want == http.StatusOK) {
					t.Errorf("got %d requests over %d connections for the host", got.Load(), asked.Load())
				}
			})
		})
	}
}

// Guarantee: contract, 4.4, and targets.md, 2. A client whose connection to an upstream has authenticated it goes on with the
// target that the connection leads to, and each other client with its own.
func TestBoundConnectionChoosesItsTarget(t *testing.T) {
	for _, isHTTP2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("over HTTP/2 %v", isHTTP2), func(t *testing.T) {
			t.Parallel()
			s, _ := authenticating(t, false)
			other, _ := authenticating(t, false)
			f := &fleetOfTargets{urls: []string{s.upstream, other.upstream}}
			s.adjust = f.config(gateway.DefaultRetries())
			g := start(t, s)
			for n := range 6 {
				client := &http.Transport{MaxConnsPerHost: 1}
				if isHTTP2 {
					client = h2cClient(t)
				}
				t.Cleanup(client.CloseIdleConnections)
				name := fmt.Sprint("user", n)
				if status, _, user := g.as(t, client, "/public/a", "NTLM "+name); status != http.StatusOK || user != name {
					t.Fatalf("got %d as %q, want 200 as %s", status, user, name)
				}
				for range 10 {
					if status, _, user := g.as(t, client, "/public/a", ""); status != http.StatusOK || user != name {
						t.Fatalf("a later request got %d as %q, want 200 as %s", status, user, name)
					}
				}
			}
		})
	}
}

// Guarantee: targets.md, 2. With the policy hash, requests of one address go to one target for as long as it takes part, and
// to another one while it does not; requests whose header has no value are shared out.
func TestHashKeepsCallersAtTheirTarget(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		for _, on := range []string{gateway.HashPrincipal, gateway.HashAddress, gateway.HashHeader + "X-Session"} {
			f := startTargets(t, "http", 3, nil)
			configure := f.config(gateway.DefaultRetries())
			g := start(t, setup{upstream: f.urls[0], realClock: true, adjust: func(u *gateway.Upstream) {
				configure(u)
				u.Balance = gateway.Balance{Policy: gateway.Hash, HashOn: on}
			}})
			m := movedRequest{method: "GET"}
			for range 30 {
				if status, _ := m.send(t, g, client, f); status != http.StatusOK {
					t.Fatalf("got %d, want 200", status)
				}
			}
			targets := map[int]bool{}
			for _, a := range f.arrived {
				targets[a.target] = true
			}
			if want := 1; on == gateway.HashHeader+"X-Session" {
				if len(targets) < 2 {
					t.Errorf("hash_on %s: requests without the header went to %d of 3 targets", on, len(targets))
				}
			} else if len(targets) != want {
				t.Errorf("hash_on %s: requests of one caller went to %d targets, want 1", on, len(targets))
			}
		}
	})
}

// Guarantee: targets.md, 2. While every target drains, no request is sent, and the response says why.
func TestNoTargetIsLeft(t *testing.T) {
	overBoth(t, func(t *testing.T, client http.RoundTripper) {
		f := startTargets(t, "http", 2, nil)
		configure := f.config(gateway.DefaultRetries())
		g := start(t, setup{upstream: f.urls[0], realClock: true, adjust: func(u *gateway.Upstream) {
			configure(u)
			for i := range u.Targets {
				u.Targets[i].Drain = true
			}
		}})
		m := movedRequest{method: "POST", body: []byte("hello")}
		if status, got := m.send(t, g, client, f); status != http.StatusBadGateway || !strings.Contains(got, "being drained") || len(f.arrived) > 0 {
			t.Errorf("got %d, %q, and %d requests reached a target; want 502 and none", status, got, len(f.arrived))
		}
	})
}
