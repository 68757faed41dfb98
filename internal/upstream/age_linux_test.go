package upstream

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/dnstest"
	"github.com/keygate/keygate/internal/netguard"
)

// moving is two upstreams, which respond with the addresses that they listen on, and a name
// that first belongs to one and then to the other.
type moving struct {
	origin  Origin
	open    [2]atomic.Int64 // connections
	release chan struct{}   // closed to end the responses to /stream
	addr    atomic.Pointer[netip.Addr]
}

var addrs = [2]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}

func newMoving(t *testing.T, scheme string) *moving {
	t.Helper()
	m := &moving{release: make(chan struct{})}
	m.addr.Store(&addrs[0])
	first, err := net.Listen("tcp", net.JoinHostPort(addrs[0].String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	port := first.Addr().(*net.TCPAddr).Port
	second, err := net.Listen("tcp", netip.AddrPortFrom(addrs[1], uint16(port)).String())
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range []net.Listener{first, second} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/stream" {
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				<-m.release
			}
			_, _ = io.WriteString(w, addrs[i].String())
		}))
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				m.open[i].Add(1)
			case http.StateClosed, http.StateHijacked:
				m.open[i].Add(-1)
			}
		}
		_ = s.Listener.Close()
		s.Listener = l
		m.start(s, scheme)
		t.Cleanup(s.Close)
	}
	m.origin.Host = fmt.Sprintf("example.com:%d", port)
	return m
}

func (m *moving) start(s *httptest.Server, scheme string) {
	m.origin.Scheme = scheme
	switch scheme {
	case "http", "engine":
		m.origin.Scheme = "http"
		s.Start()
	case "h2c":
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	default:
		s.EnableHTTP2 = scheme == "h2"
		s.StartTLS()
		m.origin.Scheme = "https"
		m.origin.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	}
}

func (m *moving) pools(t *testing.T, age time.Duration) *Pools {
	t.Helper()
	pools, err := NewPools(Config{Guard: netguard.New(), MaxConnAge: age, IdleTimeout: time.Hour, Resolver: dnstest.Resolver(func(string) []netip.Addr {
		return []netip.Addr{*m.addr.Load()}
	})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	goByTicks(pools)
	return pools
}

// goByTicks makes the ages of connections go by the ticks of the pools, which a test can advance.
func goByTicks(pools *Pools) {
	pools.now = func() time.Duration { return time.Duration(pools.tick.Load()) * tickTime }
}

// send sends a request.
func (m *moving) send(t *testing.T, pools *Pools, target string) *Reply {
	t.Helper()
	base := &url.URL{Scheme: m.origin.Scheme, Host: m.origin.Host}
	req := &http.Request{Method: "GET", URL: &url.URL{Path: target}, Host: base.Host, Header: http.Header{}}
	resp, err := Start(t.Context(), pools, m.origin, req, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// ask returns the address of the upstream that a request reaches.
func (m *moving) ask(t *testing.T, pools *Pools) string {
	t.Helper()
	body, err := m.send(t, pools, "/").Whole()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// askPlain is ask over a connection of the HTTP/1.1 engine.
func (m *moving) askPlain(t *testing.T, pools *Pools, hint **H1Conn) string {
	t.Helper()
	pool, err := pools.Plain(m.origin)
	if err != nil {
		t.Fatal(err)
	}
	c := acquire(t, pool, *hint)
	*hint = c
	if _, err := io.WriteString(c.NetConn(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c.NetConn()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	c.Release()
	return string(body)
}

// awaitClosed waits until no connection to the first address is open.
func (m *moving) awaitClosed(t *testing.T, pools *Pools) {
	t.Helper()
	awaittest.True(t, "no connection to the old address is open", func() bool {
		pools.sweep()
		return m.open[0].Load() == 0
	})
}

// Guarantee: contract 3.3, under steady traffic, requests reach the new address of a name
// that has moved at the latest when the connections have reached their greatest age,
// whatever protocol the upstream speaks. Until then they are not replaced for each request.
func TestNameThatMovesIsFollowed(t *testing.T) {
	const age = 30 * time.Second
	for _, scheme := range []string{"engine", "http", "https", "h2", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			m := newMoving(t, scheme)
			pools := m.pools(t, age)
			var hint *H1Conn
			ask := func() string {
				if scheme == "engine" {
					return m.askPlain(t, pools, &hint)
				}
				return m.ask(t, pools)
			}
			if got := ask(); got != addrs[0].String() {
				t.Fatalf("got a response of %s, want %s", got, addrs[0])
			}
			m.addr.Store(&addrs[1])
			if got := ask(); got != addrs[0].String() {
				t.Fatalf("got a response of %s, want %s: a young connection was not kept", got, addrs[0])
			}
			for range age / tickTime {
				pools.tick.Add(1)
				ask()
			}
			for range 20 {
				if got := ask(); got != addrs[1].String() {
					t.Fatalf("after %s, got a response of %s, want %s, where the name has moved", age, got, addrs[1])
				}
			}
			m.awaitClosed(t, pools)
		})
	}
}

// Guarantee: a response that is running when its connection reaches the greatest age is not
// cut, and the connection closes after it.
func TestOldConnectionEndsItsExchanges(t *testing.T) {
	for _, scheme := range []string{"http", "https", "h2", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			m := newMoving(t, scheme)
			pools := m.pools(t, time.Minute)
			resp := m.send(t, pools, "/stream")
			m.addr.Store(&addrs[1])
			pools.tick.Add(int64(time.Minute / tickTime))
			pools.sweep()
			if got := m.ask(t, pools); got != addrs[1].String() {
				t.Errorf("got a response of %s, want %s", got, addrs[1])
			}
			close(m.release)
			if body, err := resp.Whole(); err != nil || body != addrs[0].String() {
				t.Errorf("got %q, %v; want the whole response of %s", body, err, addrs[0])
			}
			m.awaitClosed(t, pools)
		})
	}
}

// Guarantee: no connection of the engine is used for a new request once it is old: not by a
// hint, nor from the stack, nor by a waiter. Busy connections close when they are released, and
// idle connections close without a request too.
func TestPlainAge(t *testing.T) {
	p := newPeer(t)
	pools, pool := newPlain(t, Config{MaxConnAge: time.Minute, IdleTimeout: time.Hour}, p.addr)
	goByTicks(pools)
	grow := func() { pools.tick.Add(int64(time.Minute / tickTime)) }
	c := acquire(t, pool, nil)
	c.Release()
	grow()
	if pool.Take(c) != nil || pool.Take(nil) != nil {
		t.Error("got an old connection, want none")
	}
	c = acquire(t, pool, nil)
	grow()
	c.Release()
	if s := pool.Stats(); s.Open != 0 {
		t.Errorf("%d connections are open after an old one was released, want none", s.Open)
	}
	c = acquire(t, pool, nil)
	c.Release()
	grow()
	pools.sweep()
	if s := pool.Stats(); s.Open != 0 {
		t.Errorf("%d connections are open after an old one was idle, want none", s.Open)
	}
	c = acquire(t, pool, nil)
	grow()
	if got, err := pool.given(t.Context(), time.Time{}, c); err != nil || got == c {
		t.Errorf("a waiter got %p, %v; want a new connection instead of %p", got, err, c)
	}
}

// Guarantee: a lifetime is at most the age that it is made from, and at least nine tenths of it, also for the
// shortest age. It differs from connection to connection.
func TestLifetime(t *testing.T) {
	for _, age := range []time.Duration{time.Second, 1499 * time.Millisecond, 10 * time.Second, 5 * time.Minute, 24 * time.Hour} {
		seen := map[time.Duration]bool{}
		for range 1000 {
			n := lifetime(age)
			seen[n] = true
			if n > age || n < age*9/10 {
				t.Fatalf("age %s: got a lifetime of %s", age, n)
			}
		}
		if len(seen) < 2 {
			t.Errorf("age %s: all lifetimes are equal", age)
		}
	}
}

// Guarantee: a connection is used for new requests for at least nine tenths of its greatest age, and never
// after it, however late the ticks of the pools are.
func TestAgeIsExact(t *testing.T) {
	p := newPeer(t)
	pools, pool := newPlain(t, Config{MaxConnAge: time.Second, IdleTimeout: time.Hour}, p.addr)
	now := 700 * time.Millisecond
	pools.now = func() time.Duration { return now }
	for range 20 {
		made := now
		c := acquire(t, pool, nil)
		for _, age := range []time.Duration{0, 500 * time.Millisecond, 899 * time.Millisecond} {
			now = made + age
			c.Release()
			if pool.Take(c) != c {
				t.Fatalf("a connection of %s was not used again", age)
			}
		}
		c.Release()
		now = made + time.Second
		if pool.Take(c) != nil {
			t.Fatal("a connection was used after a second")
		}
	}
}
