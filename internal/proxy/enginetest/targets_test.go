package enginetest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
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

// startTargets starts n targets.
func startTargets(t testing.TB, scheme string, n int, faults []targetFault) *fleetOfTargets {
	t.Helper()
	f := &fleetOfTargets{faults: faults, failed: make(chan struct{}, 16)}
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		protocols := new(http.Protocols)
		protocols.SetHTTP1(scheme == "http")
		protocols.SetUnencryptedHTTP2(scheme == "h2c")
		s := &http.Server{
			Protocols: protocols, ReadHeaderTimeout: testTimeout,
			Handler:     http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(i, w, r) }),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		}
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.Serve(l) })
		t.Cleanup(func() {
			_ = s.Close()
			serving.Wait()
		})
		f.urls = append(f.urls, scheme+"://"+l.Addr().String())
	}
	return f
}

func (f *fleetOfTargets) serve(target int, w http.ResponseWriter, r *http.Request) {
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
		u.Retries = &r
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
	method         string
	idempotencyKey bool
	retries        gateway.Retries
	faults         []targetFault
	body           []byte
	sent           int // bytes of the body that are sent before the first fault
}

func drawMovedRequest(t *rapid.T) movedRequest {
	m := movedRequest{
		scheme: rapid.SampledFrom([]string{"http", "h2c"}).Draw(t, "scheme"), client: rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "client"),
		method:         rapid.SampledFrom([]string{"GET", "PUT", "DELETE", "POST", "PATCH"}).Draw(t, "method"),
		idempotencyKey: rapid.Bool().Draw(t, "with Idempotency-Key"),
		retries: gateway.Retries{
			Attempts: rapid.IntRange(0, gateway.MaxRetryAttempts).Draw(t, "attempts"), BudgetPercent: 20, IdempotencyKey: rapid.Bool().Draw(t, "idempotency_key"),
			On: rapid.SampledFrom([][]string{{"connect", "reset"}, {"connect"}, {"connect", "reset", "503"}, {"503"}}).Draw(t, "on"),
		},
	}
	if m.method != "GET" && m.method != "DELETE" {
		m.body = bytes.Repeat([]byte("0123456789"), rapid.SampledFrom([]int{0, 1, 50, 500, 6000, 20_000}).Draw(t, "body"))
		m.sent = rapid.IntRange(0, len(m.body)).Draw(t, "sent")
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
	clients := map[string]http.RoundTripper{"h1": &http.Transport{DisableKeepAlives: true, DisableCompression: true}, "h2": h2cClient(t)}
	rapid.Check(t, func(r *rapid.T) {
		m := drawMovedRequest(r)
		f := startTargets(t, m.scheme, 3, m.faults)
		g := start(t, setup{upstream: f.urls[0], realClock: true, adjust: f.config(m.retries)})
		status, got := m.send(r, g, clients[m.client], f)
		f.mu.Lock()
		n := len(f.arrived)
		f.mu.Unlock()
		g.wantIdle(r, n)
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
	req, err := http.NewRequestWithContext(ctx, m.method, "http://"+g.addr+"/a", sends)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
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
