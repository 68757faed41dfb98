package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/dnstest"
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
	"github.com/keygate/keygate/internal/netguard"
)

// peer is an upstream that only accepts connections.
type peer struct {
	t     testing.TB
	addr  string
	conns chan *net.TCPConn
}

func newPeer(t testing.TB) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, addr: l.Addr().String(), conns: make(chan *net.TCPConn, 4096)}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(p.conns)
				return
			}
			p.conns <- c.(*net.TCPConn)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		done.Wait()
		for c := range p.conns {
			_ = c.Close()
		}
	})
	return p
}

// next returns the upstream's end of the next connection.
func (p *peer) next() *net.TCPConn {
	p.t.Helper()
	c := <-p.conns
	p.t.Cleanup(func() { _ = c.Close() })
	return c
}

func newPlain(t testing.TB, cfg Config, host string) (*Pools, *H1Pool) {
	t.Helper()
	if cfg.Guard == nil {
		cfg.Guard = netguard.New()
	}
	pools, err := NewPools(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	pool, err := pools.Plain(Origin{Scheme: "http", Host: host})
	if err != nil {
		t.Fatal(err)
	}
	return pools, pool
}

func acquire(t testing.TB, p *H1Pool, hint *H1Conn) *H1Conn {
	t.Helper()
	c, err := p.Acquire(t.Context(), time.Now().Add(time.Minute), hint)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func isFault(err error, code fault.Code) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == code
}

// waitStale waits until the effect of the upstream's action has arrived at the connection's socket.
func waitStale(t testing.TB, c *H1Conn) {
	t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(time.Minute))
	if err := c.raw.Read(func(uintptr) bool { return c.Stale() }); err != nil {
		t.Fatal(err)
	}
	_ = c.conn.SetReadDeadline(time.Time{})
}

// Guarantee: a client gets its last connection again, another client the connection that
// was released last, and a new connection is made only if none is idle.
func TestPlainReuse(t *testing.T) {
	p := newPeer(t)
	_, pool := newPlain(t, Config{}, p.addr)
	a, b := acquire(t, pool, nil), acquire(t, pool, nil)
	if a == b || a.Reused() || b.Reused() {
		t.Fatal("a connection in use was given out")
	}
	a.Release()
	b.Release()
	if got := acquire(t, pool, a); got != a || !a.Reused() {
		t.Error("the hint was not taken")
	}
	if got := acquire(t, pool, a); got != b {
		t.Error("an idle connection was left for a busy hint")
	}
	if pool.Take(nil) != nil {
		t.Error("Take returned a connection although none is idle")
	}
	a.Release()
	if got := acquire(t, pool, nil); got != a {
		t.Error("a connection taken by hint was lost")
	}
	if s := pool.Stats(); s.Open != 2 || s.Idle != 0 || s.Dials != 2 || s.Failures != 0 {
		t.Errorf("unexpected statistics %+v", s)
	}
	a.Release()
	a.Discard() // by a caller that no longer owns it: it is only closed
	a.Discard()
	b.Discard()
	if s := pool.Stats(); s.Open != 0 {
		t.Errorf("unexpected statistics %+v", s)
	}
	if c := acquire(t, pool, a); c == a {
		t.Error("a closed connection was given out")
	}
}

// Guarantee: a hint of another origin is not used.
func TestPlainHintOfAnotherOrigin(t *testing.T) {
	p, q := newPeer(t), newPeer(t)
	pools, pool := newPlain(t, Config{}, p.addr)
	other, err := pools.Plain(Origin{Scheme: "http", Host: q.addr})
	if err != nil {
		t.Fatal(err)
	}
	a := acquire(t, pool, nil)
	a.Release()
	if b := acquire(t, other, a); b == a || b.NetConn().RemoteAddr().String() != q.addr {
		t.Error("a hint led to another origin")
	}
	if _, err := pools.Plain(Origin{Scheme: "https", Host: q.addr}); err == nil {
		t.Error("Plain succeeded for scheme https, want an error")
	}
}

// Guarantee: an idle connection that the upstream has closed, reset or written to is not
// reused, with or without a hint, however short a time it was idle.
func TestPlainStale(t *testing.T) {
	for name, spoil := range map[string]func(*net.TCPConn){
		"FIN":  func(c *net.TCPConn) { _ = c.CloseWrite() },
		"RST":  func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
		"data": func(c *net.TCPConn) { _, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\n\r\n") },
	} {
		for _, hinted := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				p := newPeer(t)
				_, pool := newPlain(t, Config{}, p.addr)
				c := acquire(t, pool, nil)
				far := p.next()
				if c.Stale() {
					t.Fatal("a usable connection is reported as stale")
				}
				c.Release()
				spoil(far)
				waitStale(t, c)
				var hint *H1Conn
				if hinted {
					hint = c
				}
				if again := acquire(t, pool, hint); again == c || again.Reused() {
					t.Error("a stale connection was given out")
				}
				if s := pool.Stats(); s.Open != 1 {
					t.Errorf("unexpected statistics %+v", s)
				}
				if _, err := c.NetConn().Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
					t.Errorf("write to the stale connection: got %v, want net.ErrClosed", err)
				}
			})
		}
	}
}

// Guarantee: a usable connection is kept after it was checked.
func TestPlainFresh(t *testing.T) {
	p := newPeer(t)
	pools, pool := newPlain(t, Config{}, p.addr)
	c := acquire(t, pool, nil)
	for range 3 {
		c.Release()
		pools.tick.Add(3)
		if acquire(t, pool, nil) != c {
			t.Fatal("a usable connection was not reused")
		}
	}
}

// Guarantee: a connection that becomes unusable after it was given to a waiter, but before the
// waiter runs, is replaced.
func TestPlainSpoiledOnTheWayToAWaiter(t *testing.T) {
	p := newPeer(t)
	_, pool := newPlain(t, Config{MaxConns: 1}, p.addr)
	c := acquire(t, pool, nil)
	if got, err := pool.given(context.Background(), time.Time{}, c); err != nil || got != c {
		t.Fatalf("got %p, %v; want the usable connection %p", got, err, c)
	}
	_, _ = io.WriteString(p.next(), "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
	waitStale(t, c)
	got, err := pool.given(context.Background(), time.Time{}, c)
	if err != nil || got == c || got.Reused() {
		t.Errorf("got %p, %v; want a new connection instead of %p", got, err, c)
	}
	if s := pool.Stats(); s.Open != 1 {
		t.Errorf("%d connections are open, want 1", s.Open)
	}
}

// Guarantee: at the limit, waiters are served in FIFO order, with a connection that is released, or
// with a new connection after another was closed.
func TestPlainLimit(t *testing.T) {
	p := newPeer(t)
	_, pool := newPlain(t, Config{MaxConns: 2}, p.addr)
	a, b := acquire(t, pool, nil), acquire(t, pool, nil)
	type result struct {
		who int
		c   *H1Conn
	}
	served := make(chan result)
	for i := range 3 {
		go func() {
			c, err := pool.Acquire(context.Background(), time.Time{}, nil)
			if err != nil {
				t.Error(err)
			}
			served <- result{i, c}
		}()
		awaittest.True(t, fmt.Sprint(i+1, " callers wait"), func() bool { return pool.Stats().Waiting == i+1 })
	}
	if pool.Take(nil) != nil {
		t.Error("Take overtook the waiters")
	}
	a.Release()
	if r := <-served; r.who != 0 || r.c != a {
		t.Errorf("served first: waiter %d, by the released connection %v; want waiter 0, true", r.who, r.c == a)
	}
	b.Discard()
	if r := <-served; r.who != 1 || r.c.Reused() {
		t.Errorf("served second: waiter %d, by a new connection %v; want waiter 1, true", r.who, !r.c.Reused())
	}
	if s := pool.Stats(); s.Open != 2 || s.Waiting != 1 {
		t.Errorf("unexpected statistics %+v", s)
	}
	a.Release()
	if r := <-served; r.who != 2 || r.c != a {
		t.Errorf("served last: waiter %d, by the released connection %v; want waiter 2, true", r.who, r.c == a)
	}
}

// Guarantee: at the limit, the deadline and the end of the context end the wait, each with
// its own error, and leave the slot to others.
func TestPlainLimitGivesUp(t *testing.T) {
	p := newPeer(t)
	_, pool := newPlain(t, Config{MaxConns: 1}, p.addr)
	c := acquire(t, pool, nil)
	if _, err := pool.Acquire(t.Context(), time.Now().Add(time.Millisecond), nil); !isFault(err, fault.UpstreamTimeout) {
		t.Errorf("at the deadline: got %v, want code upstream_timeout", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pool.Acquire(ctx, time.Time{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("at the end of the context: got %v, want context.Canceled", err)
	}
	if s := pool.Stats(); s.Waiting != 0 || s.Open != 1 {
		t.Errorf("unexpected statistics %+v", s)
	}
	c.Release()
	if acquire(t, pool, nil) != c {
		t.Error("the connection went to a waiter that had given up")
	}
}

// Guarantee: Connect makes a new connection even if one is idle, and respects the limit.
func TestPlainConnect(t *testing.T) {
	p := newPeer(t)
	_, pool := newPlain(t, Config{MaxConns: 2}, p.addr)
	a := acquire(t, pool, nil)
	a.Release()
	b, err := pool.Connect(t.Context(), time.Time{})
	if err != nil || b == a || b.Reused() {
		t.Fatalf("got error %v, the idle connection %v; want a new connection", err, b == a)
	}
	c, err := pool.Connect(t.Context(), time.Now().Add(time.Minute))
	if err != nil || c == a || c.Reused() {
		t.Fatalf("got error %v, the idle connection %v; want a new connection", err, c == a)
	}
	if s := pool.Stats(); s.Open != 2 {
		t.Errorf("unexpected statistics %+v", s)
	}
}

// Guarantee: the guard is asked at every attempt to connect, and a refusal means that the
// upstream is unreachable (contract, 4.6).
func TestPlainGuard(t *testing.T) {
	p := newPeer(t)
	guard := netguard.New()
	_, pool := newPlain(t, Config{Guard: guard}, p.addr)
	acquire(t, pool, nil).Discard()
	guard.SetListeners(netip.MustParseAddrPort(p.addr))
	for range 2 {
		_, err := pool.Acquire(t.Context(), time.Time{}, nil)
		var refused *netguard.RefusedError
		if !isFault(err, fault.UpstreamUnreachable) || !errors.As(err, &refused) {
			t.Errorf("refused address: got %v, want code upstream_unreachable and a RefusedError", err)
		}
	}
	if s := pool.Stats(); s.Open != 0 || s.Dials != 3 || s.Failures != 2 {
		t.Errorf("unexpected statistics %+v", s)
	}
	guard.SetListeners()
	acquire(t, pool, nil).Discard()
	_ = p.next()
	_ = p.next()
	select {
	case <-p.conns:
		t.Error("connected to a refused address")
	default:
	}
}

// Guarantee: an origin with PublicOnly connects only to public addresses.
func TestPlainPublicOnly(t *testing.T) {
	p := newPeer(t)
	pools, _ := newPlain(t, Config{}, p.addr)
	tenant, err := pools.Plain(Origin{Scheme: "http", Host: p.addr, PublicOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tenant.Acquire(t.Context(), time.Time{}, nil); !isFault(err, fault.UpstreamUnreachable) {
		t.Errorf("loopback address: got %v, want code upstream_unreachable", err)
	}
}

// Guarantee: connections of an origin with an address go there alone, whatever its name resolves to, and only if the guard allows
// it; each address has a pool of its own. SRV records are taken in their order until a host takes the connection.
func TestPlainAtAnAddress(t *testing.T) {
	p := newPeer(t)
	var z dnstest.Zone
	z.SetHost("up.test", "127.0.0.1")
	z.SetHost("down.test", "0.0.0.0") // refused
	port, err := strconv.ParseUint(p.addr[strings.LastIndexByte(p.addr, ':')+1:], 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	z.SetServices("services.test", net.SRV{Target: "down.test.", Port: uint16(port)}, net.SRV{Target: "up.test.", Port: uint16(port), Priority: 1})
	pools, _ := newPlain(t, Config{Resolver: z.Resolver()}, p.addr)
	seen := map[*H1Pool]bool{}
	for _, c := range []struct {
		origin Origin
		code   fault.Code
	}{
		{Origin{Scheme: "http", Host: "nowhere.test", Address: p.addr}, ""},
		{Origin{Scheme: "http", Host: "nowhere.test"}, fault.UpstreamUnreachable},
		{Origin{Scheme: "http", Host: "up.test:9", Address: p.addr}, ""},
		{Origin{Scheme: "http", Host: "up.test", Address: p.addr, PublicOnly: true}, fault.UpstreamUnreachable},
		{Origin{Scheme: "http", Host: "services.test", SRV: true}, ""},
		{Origin{Scheme: "http", Host: "services.test", SRV: true, PublicOnly: true}, fault.UpstreamUnreachable},
		{Origin{Scheme: "http", Host: "up.test", SRV: true}, fault.UpstreamUnreachable},
		{Origin{Scheme: "http", Host: "services.test", SRV: true, Address: "127.0.0.1:9"}, fault.UpstreamUnreachable},
	} {
		pool, err := pools.Plain(c.origin)
		if err != nil {
			t.Fatal(err)
		}
		seen[pool] = true
		conn, err := pool.Acquire(t.Context(), time.Time{}, nil)
		switch {
		case c.code != "" && !isFault(err, c.code):
			t.Errorf("%+v: got %v, want code %s", c.origin, err, c.code)
		case c.code == "" && err != nil:
			t.Errorf("%+v: got %v, want a connection", c.origin, err)
		case err == nil:
			conn.Release()
		}
	}
	if len(seen) != 8 {
		t.Errorf("got %d pools; want one for each origin", len(seen))
	}
}

// Guarantee: docs/limits.md. For one connection, 32 addresses of a name or of the hosts of its SRV records are tried at most, and as
// many hosts are looked up. Then the upstream is unreachable.
func TestFewAddressesAreTried(t *testing.T) {
	var z dnstest.Zone
	var services, missing []net.SRV
	var many []string
	for i := range 200 {
		host, addr := fmt.Sprintf("h%d.test", i), fmt.Sprintf("127.1.0.%d", i) // on which nothing listens
		z.SetHost(host, addr, "127.2.0.1")
		services = append(services, net.SRV{Target: host + ".", Port: 9})
		missing = append(missing, net.SRV{Target: fmt.Sprintf("gone%d.test.", i), Port: 9})
		many = append(many, addr)
	}
	z.SetHost("many.test", many...)
	z.SetServices("services.test", services...)
	z.SetServices("missing.test", missing...)
	pools, _ := newPlain(t, Config{Resolver: z.Resolver()}, "127.0.0.1:9")
	for _, o := range []Origin{{Scheme: "http", Host: "many.test:9"}, {Scheme: "http", Host: "services.test", SRV: true}, {Scheme: "http", Host: "missing.test", SRV: true}} {
		pool, err := pools.Plain(o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = pool.Acquire(t.Context(), time.Time{}, nil)
		if r := ReasonOf(err); !isFault(err, fault.UpstreamUnreachable) || r != accesslog.HostUnreachable && r != accesslog.NameNotFound {
			t.Errorf("%s: got %v for the reason %v, want that no host is reached", o.Host, err, r)
		}
	}
	for prefix, most := range map[string]int{"h": 17, "gone": 32} {
		hosts := 0
		for i := range 200 {
			if z.Asked(fmt.Sprintf("%s%d.test", prefix, i)) > 0 {
				hosts++
			}
		}
		if hosts == 0 || hosts > most {
			t.Errorf("%d hosts %s… were looked up, want %d at most", hosts, prefix, most)
		}
	}
}

// Guarantee: a host that refuses the connection is unreachable, one that does not respond
// until the deadline is a timeout, and a canceled request is neither.
func TestPlainDialErrors(t *testing.T) {
	_, pool := newPlain(t, Config{}, "127.0.0.1:9") // the discard port, on which nothing listens
	if _, err := pool.Acquire(t.Context(), time.Now().Add(time.Minute), nil); !isFault(err, fault.UpstreamUnreachable) {
		t.Errorf("closed port: got %v, want code upstream_unreachable", err)
	}
	if _, err := pool.Acquire(t.Context(), time.Now().Add(-time.Second), nil); !isFault(err, fault.UpstreamTimeout) {
		t.Errorf("deadline in the past: got %v, want code upstream_timeout", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pool.Acquire(ctx, time.Time{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled request: got %v, want context.Canceled", err)
	}
	if s := pool.Stats(); s.Open != 0 || s.Failures != 3 {
		t.Errorf("unexpected statistics %+v", s)
	}
}

// Guarantee: a connection that is idle for too long is closed; a connection that is used now and
// then stays.
func TestPlainIdleTimeout(t *testing.T) {
	p := newPeer(t)
	pools, pool := newPlain(t, Config{IdleTimeout: 10 * tickTime}, p.addr)
	a, b := acquire(t, pool, nil), acquire(t, pool, nil)
	a.Release()
	b.Release()
	for range 20 {
		pools.sweep()
		if c := acquire(t, pool, a); c != a {
			t.Fatal("a connection in use was closed")
		}
		a.Release()
	}
	if s := pool.Stats(); s.Open != 1 || s.Idle != 1 {
		t.Errorf("unexpected statistics %+v", s)
	}
	if _, err := b.NetConn().Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write to the idle connection: got %v, want net.ErrClosed", err)
	}
}

// Guarantee: an unused pool is forgotten, and passes the requests of callers that kept it
// on to its successor.
func TestPlainForget(t *testing.T) {
	p := newPeer(t)
	pools, pool := newPlain(t, Config{Retain: 4 * tickTime}, p.addr)
	c := acquire(t, pool, nil)
	for range 10 {
		pools.sweep()
	}
	if same, _ := pools.Plain(pool.origin); same != pool {
		t.Fatal("a pool with a connection in use was forgotten")
	}
	c.Discard()
	for range 10 {
		pools.sweep()
	}
	next, err := pools.Plain(pool.origin)
	if err != nil || next == pool {
		t.Fatalf("an unused pool was kept (%v)", err)
	}
	if c := acquire(t, pool, nil); c.pool != next {
		t.Error("the forgotten pool made a connection")
	}
}

// Guarantee: after Close no connection stays idle and no goroutine is left, but requests
// are still served.
func TestPlainClose(t *testing.T) {
	before := goleak.IgnoreCurrent()
	p := newPeer(t)
	listening := goleak.IgnoreCurrent()
	pools, pool := newPlain(t, Config{}, p.addr)
	a, b := acquire(t, pool, nil), acquire(t, pool, nil)
	a.Release()
	pools.Close()
	pools.Close()
	if err := leaktest.Find(before, listening); err != nil {
		t.Error(err)
	}
	if s := pool.Stats(); s.Open != 1 {
		t.Errorf("after Close: %+v", s)
	}
	b.Release()
	acquire(t, pool, nil).Release()
	late, err := pools.Plain(Origin{Scheme: "http", Host: p.addr, MaxConns: 3})
	if err != nil {
		t.Fatal(err)
	}
	acquire(t, late, nil).Release()
	pools.EachPlain(func(o Origin, s H1Stats) {
		if s.Open != 0 || s.Idle != 0 {
			t.Errorf("after Close: pool of %+v has statistics %+v, want no connections", o, s)
		}
	})
}

// Guarantee: however many callers come and go, no connection has two owners, the limit
// holds, every waiter is served and no slot is lost.
func TestPlainConcurrency(t *testing.T) {
	p := newPeer(t)
	pools, pool := newPlain(t, Config{MaxConns: 8}, p.addr)
	var group sync.WaitGroup
	var waited atomic.Int64
	var holders sync.Map // *H1Conn to *atomic.Int32
	var held []*H1Conn   // all slots, until every goroutine waits
	for range 8 {
		held = append(held, acquire(t, pool, nil))
	}
	for i := range 32 {
		group.Go(func() {
			var last *H1Conn
			for j := range 300 {
				c, err := pool.Acquire(context.Background(), time.Now().Add(time.Minute), last)
				if err != nil {
					t.Error(err)
					return
				}
				found, _ := holders.LoadOrStore(c, new(atomic.Int32))
				mine := found.(*atomic.Int32)
				if mine.Add(1) != 1 {
					t.Error("a connection has two owners")
				}
				if n := pool.open.Load(); n > 8 {
					t.Errorf("%d connections, want at most 8", n)
				}
				if pool.queue.waiting() {
					waited.Add(1)
				}
				mine.Add(-1)
				last = c
				if (i+j)%17 == 0 {
					c.Discard()
				} else {
					c.Release()
				}
				if j%50 == 0 {
					pools.sweep()
				}
			}
		})
	}
	awaittest.True(t, "32 callers wait", func() bool { return pool.Stats().Waiting == 32 })
	for _, c := range held {
		c.Release()
	}
	group.Wait()
	if s := pool.Stats(); s.Waiting != 0 || s.Open != s.Idle || s.Open > 8 {
		t.Errorf("unexpected statistics %+v", s)
	}
	if waited.Load() == 0 {
		t.Error("no goroutine ever waited, so the test shows nothing")
	}
}

// Guarantee: the default port is used if the URL has none.
func TestWithPort(t *testing.T) {
	for host, want := range map[string]string{
		"a.test": "a.test:80", "a.test:8080": "a.test:8080", "[::1]": "[::1]:80", "[::1]:8080": "[::1]:8080", "10.0.0.1": "10.0.0.1:80",
	} {
		if got := withPort(host, "80"); got != want {
			t.Errorf("withPort(%s) = %s, want %s", host, got, want)
		}
	}
}

// Guarantee: a client that gets its last connection again costs no allocation.
func TestPlainAllocations(t *testing.T) {
	p := newPeer(t)
	_, pool := newPlain(t, Config{}, p.addr)
	c := acquire(t, pool, nil)
	c.Release()
	if n := testing.AllocsPerRun(100, func() {
		c = pool.Take(c)
		c.Release()
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// BenchmarkPlain measures what an exchange pays for its connection, with and without the client's
// last connection as a hint.
func BenchmarkPlain(b *testing.B) {
	bench := func(hinted bool) func(*testing.B) {
		return func(b *testing.B) {
			p := newPeer(b)
			_, pool := newPlain(b, Config{}, p.addr)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				c, err := pool.Acquire(context.Background(), time.Time{}, nil)
				if err != nil {
					b.Error(err)
					return
				}
				c.Release()
				for pb.Next() {
					var hint *H1Conn
					if hinted {
						hint = c
					}
					if c = pool.Take(hint); c == nil {
						b.Error("nothing idle")
						return
					}
					c.Release()
				}
			})
		}
	}
	b.Run("hint", bench(true))
	b.Run("stack", bench(false))
}
