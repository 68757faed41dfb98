package upstream

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/keygatetest/dnstest"
)

// scripted is a server of HTTP/2 that does what a test says.
type scripted struct {
	*http2.Conn
	t   testing.TB
	net *net.TCPConn
	buf []byte
	req http2.Request
}

// script serves each connection with the next function; when there are no more, with the last.
func script(t testing.TB, conns ...func(s *scripted)) Origin {
	t.Helper()
	p := newPeer(t)
	var done sync.WaitGroup
	t.Cleanup(done.Wait)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	done.Go(func() {
		for i := 0; ; i++ {
			var c *net.TCPConn
			select {
			case c = <-p.conns:
			case <-ctx.Done():
			}
			if c == nil {
				return
			}
			serve := conns[min(i, len(conns)-1)]
			context.AfterFunc(ctx, func() { _ = c.Close() })
			done.Go(func() {
				s := &scripted{Conn: http2.NewConn(http2.Config{Role: http2.Server}), t: t, net: c, buf: make([]byte, 4096)}
				serve(s)
				_ = c.Close()
			})
		}
	})
	return Origin{Scheme: "h2c", Host: p.addr}
}

// flush sends the output.
func (s *scripted) flush() { _, _ = s.net.Write(s.Take(nil)) }

// next returns the next request, or another event that is not about windows or settings. The
// connection has ended if its Kind is 0.
func (s *scripted) next() (ev http2.Event) {
	for {
		for s.Next(&ev) {
			switch ev.Kind {
			case http2.Head:
				_ = s.ReadRequest(&s.req)
				return ev
			case http2.Window, http2.SettingsChanged:
			default:
				return ev
			}
		}
		s.flush()
		n, err := s.net.Read(s.buf)
		if err != nil {
			return http2.Event{}
		}
		s.Feed(0, s.buf[:n])
	}
}

// target returns the target of the last request.
func (s *scripted) target() string { return string(s.req.Target.Of(s.req.Text)) }

// respond sends a response.
func (s *scripted) respond(id uint32, body string) {
	s.BeginHead(id)
	s.FieldString(":status", "200", false)
	s.EndHead(false)
	s.Data(id, []byte(body), true)
	s.Done(id)
	s.flush()
}

// all responds to all requests with their target.
func (s *scripted) all() {
	for ev := s.next(); ev.Kind != 0; ev = s.next() {
		if ev.Kind == http2.Head {
			s.respond(ev.Stream, s.target())
		}
	}
}

// Guarantee: a server that goes away ends the requests that it has accepted. The others fail as
// safe to be sent again, and new requests go to a new connection.
func TestGoAwayMidFlight(t *testing.T) {
	gone, finish := make(chan struct{}), make(chan struct{})
	o := script(t, func(s *scripted) {
		first := s.next()
		s.GoAway(http2.NoError) // the last stream is the first
		s.flush()
		<-gone
		<-finish
		s.respond(first.Stream, "accepted")
		s.next()
	}, (*scripted).all)
	_, pool := newMultiplexed(t, Config{}, o)
	a := newCall("GET", "/a").start(t, pool, true)
	awaitStats(t, pool, func(s H2Stats) bool { return s.Live == 0 && s.Open == 1 })
	close(gone)
	get(t, pool, "/b").want(t, 200, "/b")
	close(finish)
	a.wait(t)
	a.want(t, 200, "accepted")
	awaitStats(t, pool, func(s H2Stats) bool { return s.Open == 1 && s.Live == 1 && s.Dials == 2 })
}

// Guarantee: a request fails as safe to be sent again if and only if the server has certainly
// not processed it: it refused the stream, or went away before it, or nothing of the request
// has left.
func TestSafeFailures(t *testing.T) {
	for name, c := range map[string]struct {
		serve  func(s *scripted)
		safe   bool
		reason accesslog.Reason
	}{
		"refused":        {func(s *scripted) { s.Reset(s.next().Stream, http2.RefusedStream) }, true, accesslog.ClosedEarly},
		"canceled":       {func(s *scripted) { s.Reset(s.next().Stream, http2.Cancel) }, false, accesslog.ClosedEarly},
		"internal error": {func(s *scripted) { s.Reset(s.next().Stream, http2.InternalError) }, false, accesslog.ClosedEarly},
		"gone before": {func(s *scripted) {
			s.next()
			s.flush()
			_, _ = s.net.Write(http2.AppendGoAway(nil, 0, http2.NoError, ""))
		}, true, accesslog.ClosedEarly},
		"gone after": {func(s *scripted) {
			ev := s.next()
			_, _ = s.net.Write(http2.AppendGoAway(nil, ev.Stream, http2.InternalError, ""))
			_ = s.net.CloseWrite()
		}, false, accesslog.ClosedEarly},
		"closed": {func(s *scripted) { s.next(); _ = s.net.CloseWrite() }, false, accesslog.ClosedEarly},
		"reset":  {func(s *scripted) { s.next(); _ = s.net.SetLinger(0); _ = s.net.Close() }, false, accesslog.ClosedEarly},
		"refused after the head": {func(s *scripted) {
			ev := s.next()
			s.BeginHead(ev.Stream)
			s.FieldString(":status", "200", false)
			s.EndHead(false)
			s.Reset(ev.Stream, http2.RefusedStream)
		}, false, accesslog.ClosedEarly},
		"malformed": {func(s *scripted) {
			ev := s.next()
			s.BeginHead(ev.Stream)
			s.FieldString("x", "no status", false)
			s.EndHead(false)
		}, false, accesslog.MalformedResponse},
		"invalid frame": {func(s *scripted) {
			s.next()
			s.flush()
			_, _ = s.net.Write(http2.AppendWindowUpdate(nil, 0, 0))
		}, false, accesslog.MalformedResponse},
	} {
		t.Run(name, func(t *testing.T) {
			o := script(t, func(s *scripted) {
				c.serve(s)
				s.flush()
				for s.next().Kind != 0 {
				}
			})
			_, pool := newMultiplexed(t, Config{}, o)
			got := get(t, pool, "/")
			if got.err == nil || got.safe != c.safe || ReasonOf(got.err) != c.reason {
				t.Errorf("got error %v (%v), safe %v; want %v, %v", got.err, ReasonOf(got.err), got.safe, c.reason, c.safe)
			}
			if n := pool.Stats().Streams; n != 0 {
				t.Errorf("%d streams are left", n)
			}
		})
	}
}

// Guarantee: output that is appended when the connection cannot send any more counts as not sent.
func TestUnsentRequestIsSafe(t *testing.T) {
	block := make(chan struct{})
	o := script(t, func(s *scripted) {
		s.respond(s.next().Stream, "/")
		<-block // does not notice that the connection has ended
	}, (*scripted).all)
	_, pool := newMultiplexed(t, Config{}, o)
	get(t, pool, "/").want(t, 200, "/")
	conn := pool.all()[0]
	_ = conn.slot.conn.CloseWrite() // the next send fails
	c := newCall("GET", "/").start(t, pool, true)
	close(block)
	c.wait(t)
	if c.err == nil || !c.safe {
		t.Errorf("got error %v, safe %v; want safe", c.err, c.safe)
	}
	get(t, pool, "/again").want(t, 200, "/again")
}

// Guarantee: the end of the response stands, even if the server then refuses the rest of the
// request, and nobody waits to send it.
func TestEarlyResponse(t *testing.T) {
	o := script(t, func(s *scripted) {
		ev := s.next()
		s.respond(ev.Stream, "early") // resets the stream with NO_ERROR behind it
		for s.next().Kind != 0 {
		}
	})
	_, pool := newMultiplexed(t, Config{}, o)
	c := newCall("POST", "/").start(t, pool, false)
	if err := c.Send(t.Context(), make([]byte, 1<<20), true); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want io.ErrClosedPipe", err)
	}
	c.wait(t)
	c.want(t, 200, "early")
}

// Guarantee: a request that is given up frees its stream at once, and the server learns of it.
func TestCanceledExchange(t *testing.T) {
	codes := make(chan http2.Code, 10)
	o := script(t, func(s *scripted) {
		for ev := s.next(); ev.Kind != 0; ev = s.next() {
			if ev.Kind == http2.Reset {
				codes <- ev.Code
				s.Done(ev.Stream)
			}
		}
	})
	_, pool := newMultiplexed(t, Config{}, o)
	newCall("GET", "/").start(t, pool, true).Close()
	newCall("POST", "/").start(t, pool, false).Reset(http2.InternalError)
	if a, b := <-codes, <-codes; a != http2.Cancel || b != http2.InternalError {
		t.Errorf("the server got %v and %v", a, b)
	}
	if s := pool.Stats(); s.Streams != 0 || s.Open != 1 {
		t.Errorf("unexpected statistics %+v", s)
	}
}

// Guarantee: a connection that is in use but silent is pinged. It stays if the server replies,
// and its requests fail if it does not. An idle connection is not pinged.
func TestSilentServer(t *testing.T) {
	for _, replies := range []bool{true, false} {
		block, seen := make(chan struct{}), make(chan struct{})
		o := script(t, func(s *scripted) {
			first := s.next()
			s.flush()
			close(seen)
			if !replies {
				<-block
				return
			}
			for { // until there is a reply to a PING
				for s.Next(new(http2.Event)) {
				}
				if s.Pending() > 0 {
					break
				}
				n, err := s.net.Read(s.buf)
				if err != nil {
					return
				}
				s.Feed(0, s.buf[:n])
			}
			s.respond(first.Stream, "late")
			<-block
		})
		_, pool := newMultiplexed(t, Config{}, o)
		c := newCall("GET", "/").start(t, pool, true)
		<-seen
		now := pool.owner.tick.Load()
		pool.sweep(now + pingAfterTicks)
		if replies {
			c.wait(t)
			c.want(t, 200, "late")
		} else {
			pool.sweep(now + pingAfterTicks + pingTimeoutTicks)
			c.wait(t)
			if !errors.Is(c.err, errSilent) || c.safe {
				t.Errorf("got error %v, safe %v", c.err, c.safe)
			}
			awaitStats(t, pool, func(s H2Stats) bool { return s.Open == 0 })
		}
		close(block)
	}
}

// Guarantee: a connection that is idle for too long or too old closes, the latter after its
// last exchange, and no request uses it meanwhile.
func TestMultiplexedIdleAndOld(t *testing.T) {
	block := make(chan struct{})
	o := script(t, func(s *scripted) {
		first := s.next()
		<-block
		s.respond(first.Stream, "first")
		s.next()
	}, (*scripted).all)
	_, pool := newMultiplexed(t, Config{}, o)
	a := newCall("GET", "/").start(t, pool, true)
	old := pool.all()[0]
	old.slot.end = 0
	get(t, pool, "/b").want(t, 200, "/b")
	if s := pool.Stats(); s.Open != 2 || s.Live != 1 {
		t.Errorf("unexpected statistics %+v", s)
	}
	close(block)
	a.wait(t)
	a.want(t, 200, "first")
	awaitStats(t, pool, func(s H2Stats) bool { return s.Open == 1 && s.Streams == 0 })
	pool.sweep(pool.owner.tick.Load() + pool.idle)
	// The reader closes a connection that is still delivering the end of an exchange.
	awaitStats(t, pool, func(s H2Stats) bool { return s.Open == 0 && s.Live == 0 })
}

// Guarantee: a server that chooses HTTP/1.1 in the handshake gets no request over HTTP/2, and
// is not asked again for a while.
func TestServerChoosesHTTP1(t *testing.T) {
	var conns atomic.Int64
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	_, pool := newMultiplexed(t, Config{}, Origin{Scheme: "https", Host: s.Listener.Addr().String(), CA: caOf(s)})
	for range 3 {
		c := newCall("GET", "/")
		if err := pool.Open(t.Context(), time.Time{}, &c.H2Stream, H2Request{Exchange: c, End: true}); !errors.Is(err, ErrNoHTTP2) {
			t.Errorf("got %v, want ErrNoHTTP2", err)
		}
	}
	if n := conns.Load(); n != 1 || !pool.OnlyHTTP1() {
		t.Errorf("the server was asked %d times", n)
	}
	pool.http1.Store(0) // as after a while
	c := newCall("GET", "/")
	if err := pool.Open(t.Context(), time.Time{}, &c.H2Stream, H2Request{Exchange: c, End: true}); !errors.Is(err, ErrNoHTTP2) || conns.Load() != 2 {
		t.Errorf("got %v after %d connections", err, conns.Load())
	}
}

// Guarantee: failures to connect and timeouts are the faults that an H1Pool gives.
func TestMultiplexedFaults(t *testing.T) {
	full := script(t, func(s *scripted) {
		for s.next().Kind != 0 {
		}
	})
	silent := newPeer(t).addr
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	far, cancel := context.WithCancel(t.Context())
	cancel()
	public := full
	public.PublicOnly = true
	slow := Origin{Scheme: "h2c", Host: silent, ConnectTimeout: 100 * time.Millisecond}
	for name, c := range map[string]struct {
		origin  Origin
		ctx     context.Context
		timeout time.Duration
		code    fault.Code
		reason  accesslog.Reason
	}{
		"refused":           {Origin{Scheme: "h2c", Host: "127.0.0.1:1"}, t.Context(), 0, fault.UpstreamUnreachable, accesslog.ConnectionRefused},
		"not allowed":       {public, t.Context(), 0, fault.UpstreamUnreachable, accesslog.AddressNotAllowed},
		"unknown authority": {serveTLS(t), t.Context(), 0, fault.UpstreamUnreachable, accesslog.CertificateRejected},
		"not TLS":           {Origin{Scheme: "https", Host: plain.Listener.Addr().String()}, t.Context(), 0, fault.UpstreamUnreachable, accesslog.TLSFailed},
		"no settings":       {slow, t.Context(), 0, fault.UpstreamUnreachable, accesslog.ConnectTimeout},
		"HTTP/1.1 only":     {Origin{Scheme: "h2c", Host: plain.Listener.Addr().String()}, t.Context(), 0, fault.UpstreamUnreachable, accesslog.MalformedResponse},
		"deadline":          {Origin{Scheme: "h2c", Host: silent}, t.Context(), 500 * time.Millisecond, fault.UpstreamTimeout, accesslog.ResponseTimeout},
		"canceled":          {Origin{Scheme: "h2c", Host: silent}, far, 0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			pools, pool := newMultiplexed(t, Config{MaxDescriptors: 100}, c.origin)
			var deadline time.Time
			if c.timeout > 0 {
				deadline = time.Now().Add(c.timeout)
			}
			x := newCall("GET", "/")
			err := pool.Open(c.ctx, deadline, &x.H2Stream, H2Request{Exchange: x, End: true})
			if c.code == "" {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			} else if !isFault(err, c.code) || ReasonOf(err) != c.reason {
				t.Errorf("got %v (%v), want %v (%v)", err, ReasonOf(err), c.code, c.reason)
			}
			await(t, func() bool { return pools.budget.inUse() == 0 && pool.unused() }, func() any { return pools.budget.inUse() })
		})
	}
	t.Run("no stream", func(t *testing.T) {
		_, pool := newMultiplexed(t, Config{MaxConns: 1}, full)
		for range http2.MaxStreams {
			newCall("GET", "/").start(t, pool, true)
		}
		x := newCall("GET", "/")
		err := pool.Open(t.Context(), time.Now().Add(50*time.Millisecond), &x.H2Stream, H2Request{Exchange: x, End: true})
		if !isFault(err, fault.UpstreamTimeout) || ReasonOf(err) != accesslog.NoFreeConnection {
			t.Errorf("got %v", err)
		}
		if s := pool.Stats(); s.Waiting != 0 || s.Open != 1 {
			t.Errorf("unexpected statistics %+v", s)
		}
	})
}

func serveTLS(t *testing.T) Origin {
	o := serve(t, "net/http TLS", 100, http.NotFoundHandler())
	o.CA = ""
	return o
}

// Guarantee: connections hold descriptors of the account's budget while they are open, and
// idle ones give way to others.
func TestMultiplexedBudget(t *testing.T) {
	o := script(t, (*scripted).all)
	pools, pool := newMultiplexed(t, Config{MaxDescriptors: 3}, o)
	get(t, pool, "/").want(t, 200, "/")
	if n := pools.budget.inUse(); n != 1 {
		t.Errorf("%d descriptors are in use, want 1", n)
	}
	other := script(t, (*scripted).all)
	for range 5 {
		next, err := pools.Multiplexed(other)
		if err != nil {
			t.Fatal(err)
		}
		get(t, next, "/").want(t, 200, "/")
		get(t, pool, "/").want(t, 200, "/")
	}
	pools.Close()
	await(t, func() bool { return pools.budget.inUse() == 0 }, func() any { return pools.budget.inUse() })
}

// Guarantee: connections over HTTP/1.1 and over HTTP/2 to one origin keep to one limit, and an idle
// connection of one version gives way to the other.
func TestLimitIsSharedByVersions(t *testing.T) {
	o := serve(t, "net/http TLS", 100, http.HandlerFunc(echo))
	o.MaxConns, o.Target = 1, "g"
	_, pool := newMultiplexed(t, Config{}, o)
	for range 3 {
		c := newCall("GET", "/").start(t, pool, true)
		c.wait(t)
		if c.status != 200 {
			t.Fatalf("got %d, %v", c.status, c.err)
		}
		conn, err := pool.HTTP1().Acquire(t.Context(), time.Now().Add(time.Minute), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := pool.own.open.Load(); n != 1 {
			t.Errorf("%d connections are open, want 1", n)
		}
		conn.Release()
	}
}

// Guarantee: a gateway whose upstream has changed drains the connections to the previous upstream,
// and a forgotten pool passes requests on.
func TestMultiplexedDrain(t *testing.T) {
	block := make(chan struct{})
	o := script(t, func(s *scripted) {
		first := s.next()
		<-block
		s.respond(first.Stream, "first")
		s.all()
	}, (*scripted).all)
	o.MaxConns, o.Target = 2, "g"
	pools, pool := newMultiplexed(t, Config{}, o)
	a := newCall("GET", "/").start(t, pool, true)
	changed := o
	changed.MaxConns = 3
	next, err := pools.Multiplexed(changed)
	if err != nil {
		t.Fatal(err)
	}
	get(t, next, "/").want(t, 200, "/")
	close(block)
	a.wait(t)
	a.want(t, 200, "first")
	awaitStats(t, pool, func(s H2Stats) bool { return s.Open == 0 })
	c := newCall("GET", "/late").start(t, pool, true)
	c.wait(t)
	c.want(t, 200, "/late")
	if again, err := pools.Multiplexed(o); err != nil || again == pool || again.Stats().Dials != 1 || pool.Stats().Dials != 1 {
		t.Errorf("the forgotten pool has served a request itself (%v)", err)
	}
	pools.Close()
	for _, p := range []*H2Pool{pool, next} {
		awaitStats(t, p, func(s H2Stats) bool { return s.Open == 0 })
	}
}

// Guarantee: a connection that a drained pool still makes for a request that waited leaves the
// gateway's current connections alone.
func TestDrainedPoolLeavesItsSuccessorAlone(t *testing.T) {
	o := script(t, (*scripted).all)
	o.MaxConns, o.Target = 1, "g"
	pools, pool := newMultiplexed(t, Config{}, o)
	changed := o
	changed.MaxConns = 2
	next, err := pools.Multiplexed(changed)
	if err != nil {
		t.Fatal(err)
	}
	x := newCall("GET", "/waited")
	if err := pool.wait(t.Context(), time.Time{}, &x.H2Stream, H2Request{Exchange: x, End: true}); err != nil {
		t.Fatal(err)
	}
	x.wait(t)
	x.want(t, 200, "/waited")
	if next.draining.Load() {
		t.Error("the gateway's current pool was drained")
	}
	awaitStats(t, pool, func(s H2Stats) bool { return s.Open == 0 })
}

// Guarantee: a dial that no request waits for any more is given up.
func TestMultiplexedDialIsGivenUp(t *testing.T) {
	asked := make(chan struct{})
	var once sync.Once
	resolver := dnstest.Resolver(func(string) []netip.Addr {
		once.Do(func() { close(asked) })
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})
	p := newPeer(t) // accepts, and says nothing
	_, port, _ := net.SplitHostPort(p.addr)
	pools, pool := newMultiplexed(t, Config{MaxDescriptors: 10, ConnectTimeout: time.Hour, Resolver: resolver}, Origin{Scheme: "h2c", Host: "up.example:" + port})
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		x := newCall("GET", "/")
		if err := pool.Open(ctx, time.Time{}, &x.H2Stream, H2Request{Exchange: x, End: true}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	<-asked
	p.next()
	cancel()
	waiting.Wait()
	await(t, func() bool { return pools.budget.inUse() == 0 && pool.unused() }, func() any { return pool.Stats() })
}

// Guarantee: a server that reads nothing cannot make a connection hold more than its bound,
// and its reader goes on meanwhile. The held output arrives whole once the server reads again.
func TestServerThatDoesNotRead(t *testing.T) {
	release := make(chan struct{})
	got := make(chan int, 1)
	o := script(t, func(s *scripted) {
		s.Conn = http2.NewConn(http2.Config{Role: http2.Server, StreamWindow: http2.MaxWindow, ConnWindow: http2.MaxWindow})
		s.flush()
		<-release
		total := 0
		for ev := s.next(); ev.Kind != 0; ev = s.next() {
			s.Consumed(ev.Stream, len(ev.Data))
			if total += len(ev.Data); ev.End && ev.Kind == http2.Data {
				got <- total
			}
		}
	})
	_, pool := newMultiplexed(t, Config{}, o)
	c := newCall("POST", "/")
	sent := 0
	const size = 16 << 20
	chunk := make([]byte, 1<<20)
	ready := make(chan struct{}, 1)
	c.refill = func() { ready <- struct{}{} }
	c.start(t, pool, false)
	for {
		n, ok := c.SendData(chunk, false)
		if sent += n; !ok {
			t.Fatal("the stream has failed")
		}
		if n < len(chunk) {
			break
		}
	}
	conn := pool.all()[0]
	conn.mu.Lock()
	held, pending := conn.flushing, conn.http.Pending()
	conn.mu.Unlock()
	if !held || pending > maxOutput+1024 { // headers of frames
		t.Errorf("%d bytes wait, want at most about %d; sending: %v", pending, maxOutput, held)
	}
	if x := newCall("GET", "/"); pool.TryOpen(&x.H2Stream, H2Request{Exchange: x, End: true}) {
		x.Close() // there was room for a head
	}
	close(release)
	for sent < size {
		<-ready
		b := chunk[:min(len(chunk), size-sent)]
		n, ok := c.SendData(b, sent+len(b) == size)
		if sent += n; !ok {
			t.Fatal("the stream has failed")
		}
		for n == len(b) && sent < size {
			b = chunk[:min(len(chunk), size-sent)]
			n, _ = c.SendData(b, sent+len(b) == size)
			sent += n
		}
	}
	select {
	case n := <-got:
		if n != size {
			t.Errorf("the server got %d bytes, want %d", n, size)
		}
	case <-t.Context().Done():
	}
	c.Close()
}

// Guarantee: if a server does not read for too long, the exchanges fail and the connection closes.
func TestServerThatNeverReads(t *testing.T) {
	block := make(chan struct{})
	o := script(t, func(s *scripted) {
		s.Conn = http2.NewConn(http2.Config{Role: http2.Server, StreamWindow: http2.MaxWindow, ConnWindow: http2.MaxWindow})
		s.flush()
		<-block
	})
	_, pool := newMultiplexed(t, Config{}, o)
	pool.sendTimeout = 10 * time.Millisecond
	c := newCall("POST", "/").start(t, pool, false)
	if err := c.Send(t.Context(), make([]byte, 64<<20), true); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want io.ErrClosedPipe", err)
	}
	c.wait(t)
	if !errors.Is(c.err, errSendTimeout) || c.safe || ReasonOf(c.err) != accesslog.ClosedEarly {
		t.Errorf("got error %v, safe %v", c.err, c.safe)
	}
	awaitStats(t, pool, func(s H2Stats) bool { return s.Open == 0 })
	close(block)
}

// Guarantee: if uploads that a server does not read use up the window of their connection, new
// requests use another connection within seconds. A connection whose server reads something in the
// meantime stays in use.
func TestStuckConnectionIsLeft(t *testing.T) {
	block := make(chan struct{})
	o := script(t, func(s *scripted) {
		s.Conn = http2.NewConn(http2.Config{Role: http2.Server, StreamWindow: http2.MaxWindow})
		for n := 0; n < http2.ConnWindow; { // Consumed is not called
			ev := s.next()
			n += len(ev.Data)
		}
		<-block
	}, (*scripted).all)
	_, pool := newMultiplexed(t, Config{}, o)
	pool.most = 1
	hog := newCall("POST", "/hog").start(t, pool, false)
	sent := make(chan error, 1)
	go func() { sent <- hog.Send(t.Context(), make([]byte, http2.ConnWindow+1), true) }()
	stuckConn := pool.all()[0]
	await(t, func() bool {
		stuckConn.mu.Lock()
		defer stuckConn.mu.Unlock()
		_, exhausted := stuckConn.http.Exhausted()
		return exhausted
	}, func() any { return pool.Stats() })
	now := pool.owner.tick.Load() + 1
	pool.sweep(now)
	pool.sweep(now + stuckTicks - 1)
	if s := pool.Stats(); s.Live != 1 {
		t.Errorf("the connection was left at once: %+v", s)
	}
	pool.sweep(now + stuckTicks)
	get(t, pool, "/b").want(t, 200, "/b")
	if s := pool.Stats(); s.Live != 1 || s.Open != 2 {
		t.Errorf("unexpected statistics %+v", s)
	}
	close(block)
	if err := <-sent; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want io.ErrClosedPipe", err)
	}
	hog.wait(t)

	var s stuck
	if s.at(5, 1, true) || s.at(8, 2, true) || s.at(11, 2, true) || !s.at(12, 2, true) || s.at(13, 2, false) || s.at(20, 2, true) {
		t.Error("stuck must report a connection on which the server has read nothing, and no other")
	}
}

// Guarantee: a server that floods a connection with frames that must be replied to, and reads
// nothing, does not make it hold more than its bound.
func TestFloodIsBounded(t *testing.T) {
	o := script(t, func(s *scripted) {
		s.flush()
		_, _ = s.net.Read(s.buf)
		ping := http2.AppendPing(nil, false, [8]byte{})
		var b []byte
		for range 500 {
			b = append(b, ping...)
		}
		for range 1000 {
			if _, err := s.net.Write(b); err != nil {
				return
			}
		}
	})
	_, pool := newMultiplexed(t, Config{}, o)
	c := newCall("GET", "/").start(t, pool, true)
	c.wait(t)
	var broken *http2.ConnError
	if !errors.As(c.err, &broken) || broken.Code != http2.EnhanceYourCalm {
		if !errors.Is(c.err, os.ErrDeadlineExceeded) && ReasonOf(c.err) != accesslog.ClosedEarly {
			t.Errorf("got %v", c.err)
		}
	}
	awaitStats(t, pool, func(s H2Stats) bool { return s.Open == 0 })
}

// Guarantee: an extended CONNECT is opened only on a server that takes it.
func TestExtendedConnect(t *testing.T) {
	for _, takes := range []bool{true, false} {
		o := script(t, func(s *scripted) {
			s.Conn = http2.NewConn(http2.Config{Role: http2.Server, ExtendedConnect: takes})
			s.all()
		})
		_, pool := newMultiplexed(t, Config{}, o)
		c := newCall("CONNECT", "/chat", ":protocol", "websocket")
		err := pool.Open(t.Context(), time.Time{}, &c.H2Stream, H2Request{Exchange: c, Connect: true})
		switch {
		case takes && err != nil, !takes && !errors.Is(err, ErrNoConnect):
			t.Errorf("got %v", err)
		case takes:
			c.wait(t)
			c.want(t, 200, "/chat")
		}
	}
}
