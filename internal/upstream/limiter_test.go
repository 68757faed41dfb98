package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// counter counts the open connections of an upstream, without those that the other side has
// closed but the upstream has not noticed yet.
type counter struct {
	mu     sync.Mutex
	open   map[net.Conn]bool
	most   int
	all    int
	change chan struct{} // closed by the next change
}

func newCounter() *counter {
	return &counter{open: map[net.Conn]bool{}, change: make(chan struct{})}
}

func (c *counter) began(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[conn] = true
	c.all++
	now := 0
	for conn := range c.open {
		if established(conn) {
			now++
		}
	}
	c.most = max(c.most, now)
	c.changed()
}

func (c *counter) ended(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
	c.changed()
}

func (c *counter) changed() {
	close(c.change)
	c.change = make(chan struct{})
}

// await waits until the given number of connections is open.
func (c *counter) await(t *testing.T, open int) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		c.mu.Lock()
		now, change := len(c.open), c.change
		c.mu.Unlock()
		if now == open {
			return
		}
		select {
		case <-change:
		case <-timeout:
			t.Fatalf("%d connections are open, want %d", now, open)
		}
	}
}

func (c *counter) figures() (most, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most, c.all
}

// state is a function for http.Server.ConnState. A hijacked connection counts as open.
func (c *counter) state(conn net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		c.began(conn)
	case http.StateClosed:
		c.ended(conn)
	default:
	}
}

// counted starts an upstream whose connections are counted.
func counted(t *testing.T, scheme string, h http.Handler) (*counter, upstream.Origin) {
	t.Helper()
	c := newCounter()
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = c.state
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 8}
	switch scheme {
	case "http":
		s.Start()
	case "h2c":
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	case "https", "h2":
		s.EnableHTTP2 = scheme == "h2"
		s.StartTLS()
	}
	t.Cleanup(s.Close)
	o := upstream.Origin{Scheme: scheme, Host: s.Listener.Addr().String(), Target: "gw_1"}
	if s.TLS != nil {
		o.Scheme, o.CA = "https", pemOf(s.Certificate())
	}
	return c, o
}

// Guarantee: an upstream never has more connections of a gateway than the limit, whatever
// protocol it speaks, and every waiter is served.
func TestConnectionLimit(t *testing.T) {
	for _, scheme := range []string{"http", "https", "h2", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			count, o := counted(t, scheme, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			}))
			o.MaxConns = 3
			pools := newPools(t, upstream.Config{})
			var all sync.WaitGroup
			for range 40 {
				all.Go(func() {
					for range 10 {
						if _, _, err := send(t, pools, o, request("GET", o.Scheme+"://"+o.Host, "/")); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			if most, _ := count.figures(); most > 3 {
				t.Errorf("%d connections at once, more than the limit", most)
			}
		})
	}
}

// Guarantee: a request with a body is not refused because its connection closes, to free a
// slot, just as the request is assigned to it.
func TestConnectionLimitWithBodies(t *testing.T) {
	for _, scheme := range []string{"https", "h2"} {
		t.Run(scheme, func(t *testing.T) {
			_, o := counted(t, scheme, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			}))
			o.MaxConns = 1
			pools := newPools(t, upstream.Config{})
			const text = "what is to come back"
			ask := func(upgrade bool) {
				req := request("POST", "https://"+o.Host, "/")
				req.Body, req.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
				if upgrade { // which goes over HTTP/1.1, and is not accepted
					req.Header.Set("Upgrade", "test")
				}
				if _, body, err := send(t, pools, o, req); err != nil || body != text {
					t.Errorf("got body %q, %v, want %q", body, err, text)
				}
			}
			var all sync.WaitGroup
			for i := range 14 { // fewer concurrent requests than the upstream allows streams
				all.Go(func() {
					for range 50 {
						ask(i%2 == 0) // the two versions compete for the slot
					}
				})
			}
			all.Wait()
		})
	}
}

// Guarantee: idle connections of one version of HTTP make room for the other: for an upgrade over
// HTTP/1.1 after requests over HTTP/2, and for requests after an upgrade.
func TestIdleConnectionsYieldTheirSlots(t *testing.T) {
	for _, scheme := range []string{"https", "h2"} {
		t.Run(scheme, func(t *testing.T) {
			count, o := counted(t, scheme, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Upgrade") == "" {
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}))
			o.MaxConns = 1
			pools := newPools(t, upstream.Config{})
			for range 3 {
				if _, _, err := send(t, pools, o, request("GET", "https://"+o.Host, "/")); err != nil {
					t.Fatal(err)
				}
				req := request("GET", "https://"+o.Host, "/")
				req.Header.Set("Connection", "Upgrade")
				req.Header.Set("Upgrade", "test")
				resp, err := upstream.Start(t.Context(), pools, o, req, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != http.StatusSwitchingProtocols {
					t.Errorf("got status %d, want 101", resp.StatusCode)
				}
				// The upgraded connection holds the only slot.
				_, err = upstream.Start(t.Context(), pools, o, request("GET", "https://"+o.Host, "/"), 50*time.Millisecond)
				if fault.CodeOf(err) != fault.UpstreamTimeout {
					t.Errorf("request beside an upgraded connection: got error %v, want code upstream_timeout", err)
				}
				_, _ = resp.Whole()
			}
			if most, _ := count.figures(); most > 1 {
				t.Errorf("%d connections at once, more than the limit", most)
			}
		})
	}
}

// Guarantee: a waiter that gives up does not block later requests.
func TestWaiterGivesUp(t *testing.T) {
	hold := make(chan struct{})
	count, o := counted(t, "http", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			<-hold
		}
	}))
	o.MaxConns = 1
	pools := newPools(t, upstream.Config{})
	held := make(chan error, 1)
	go func() {
		_, _, err := send(t, pools, o, request("GET", "http://"+o.Host, "/held"))
		held <- err
	}()
	count.await(t, 1)
	_, err := upstream.Start(t.Context(), pools, o, request("GET", "http://"+o.Host, "/"), 20*time.Millisecond)
	if fault.CodeOf(err) != fault.UpstreamTimeout {
		t.Errorf("after the timeout: got error %v, want code upstream_timeout", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = upstream.Start(ctx, pools, o, request("GET", "http://"+o.Host, "/"), time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("after the client hung up: got error %v, want context.Canceled", err)
	}
	plain, err := pools.Plain(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Acquire(t.Context(), time.Now().Add(20*time.Millisecond), nil); fault.CodeOf(err) != fault.UpstreamTimeout {
		t.Errorf("in the engine: got error %v, want code upstream_timeout", err)
	}
	close(hold)
	if err := <-held; err != nil {
		t.Error(err)
	}
	c, err := plain.Acquire(t.Context(), time.Now().Add(time.Minute), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Discard()
	if _, _, err := send(t, pools, o, request("GET", "http://"+o.Host, "/")); err != nil {
		t.Error(err)
	}
}

// Guarantee: a limit belongs to one gateway: another gateway with the same upstream and
// limit does not wait for it. Without a limit they share connections.
func TestLimitIsPerGateway(t *testing.T) {
	base := request("GET", "http://h.test", "/").URL
	of := func(target string, conns int) upstream.Origin {
		return upstream.OriginOf(base, upstream.Origin{Target: target, MaxConns: conns})
	}
	if of("gw_1", 5) == of("gw_2", 5) {
		t.Error("two gateways share one limit")
	}
	if of("gw_1", 0) != of("gw_2", 0) {
		t.Error("two gateways without a limit do not share connections")
	}
}

// Guarantee: when a gateway gets a new limit, its idle connections under the old one are
// closed. Connections of other gateways stay.
func TestChangedLimitClosesIdleConnections(t *testing.T) {
	for _, scheme := range []string{"http", "https", "h2", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			count, o := counted(t, scheme, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			pools := newPools(t, upstream.Config{})
			ask := func(target string, conns int) {
				t.Helper()
				o.Target, o.MaxConns = target, conns
				if _, _, err := send(t, pools, o, request("GET", o.Scheme+"://"+o.Host, "/")); err != nil {
					t.Fatal(err)
				}
			}
			ask("gw_1", 3)
			ask("gw_2", 3)
			count.await(t, 2)
			ask("gw_1", 2)
			count.await(t, 2)
			ask("gw_1", 3) // back to the old limit
			ask("gw_1", 3)
			count.await(t, 2)
		})
	}
}

// Guarantee: two targets with limits of their own keep their connections while requests go to both,
// although one gateway has them.
func TestTargetsDoNotDrainEachOther(t *testing.T) {
	for _, scheme := range []string{"http", "https", "h2", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			pools := newPools(t, upstream.Config{})
			var counts [2]*counter
			var origins [2]upstream.Origin
			for i := range origins {
				counts[i], origins[i] = counted(t, scheme, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				origins[i].Target, origins[i].MaxConns = fmt.Sprintf("gw_1/%d", i), 3
			}
			for range 5 {
				for _, o := range origins {
					if _, _, err := send(t, pools, o, request("GET", o.Scheme+"://"+o.Host, "/")); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i, count := range counts {
				if _, all := count.figures(); all != 1 {
					t.Errorf("target %d had %d connections for 5 requests in turn, want 1", i, all)
				}
			}
		})
	}
}

// Guarantee: a connection that carries a request when its gateway gets a new limit is
// closed with the request.
func TestChangedLimitClosesBusyConnections(t *testing.T) {
	for _, scheme := range []string{"http", "https", "h2", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			came, hold := make(chan struct{}), make(chan struct{})
			count, o := counted(t, scheme, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/held" {
					close(came)
					<-hold
				}
			}))
			o.MaxConns = 3
			pools := newPools(t, upstream.Config{})
			ask := func(o upstream.Origin, path string) {
				if _, _, err := send(t, pools, o, request("GET", o.Scheme+"://"+o.Host, path)); err != nil {
					t.Error(err)
				}
			}
			var held sync.WaitGroup
			before := o
			held.Go(func() { ask(before, "/held") })
			<-came
			o.MaxConns = 2
			ask(o, "/")
			count.await(t, 2)
			close(hold)
			held.Wait()
			count.await(t, 1)
			ask(o, "/")
			if _, all := count.figures(); all != 2 {
				t.Errorf("%d connections were made, want 2", all)
			}
		})
	}
}

// Guarantee: a connection is closed after it was idle for the origin's idle timeout, and
// reused before that.
func TestIdleTimeout(t *testing.T) {
	for _, scheme := range []string{"http", "https", "h2", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			count, o := counted(t, scheme, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			o.IdleTimeout = time.Second
			pools := newPools(t, upstream.Config{})
			for range 2 {
				if _, _, err := send(t, pools, o, request("GET", o.Scheme+"://"+o.Host, "/")); err != nil {
					t.Fatal(err)
				}
			}
			count.await(t, 0)
			if most, all := count.figures(); most != 1 || all > 2 { // two only if the first request took a second
				t.Errorf("%d connections, %d at once, want 1 and 1", all, most)
			}
		})
	}
}

// Guarantee: the origin's connect timeout applies to the TCP connection and the TLS
// handshake; reaching it means that the upstream is unreachable.
func TestConnectTimeout(t *testing.T) {
	silent := upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = io.Copy(io.Discard, c) })
	full := fullListener(t)
	pools := newPools(t, upstream.Config{})
	for name, o := range map[string]upstream.Origin{
		"no handshake":          {Scheme: "https", Host: silent},
		"no handshake, bounded": {Scheme: "https", Host: silent, MaxConns: 1},
		"no accept":             {Scheme: "http", Host: full},
		"no accept, bounded":    {Scheme: "http", Host: full, MaxConns: 1},
		"no accept, h2c":        {Scheme: "h2c", Host: full},
	} {
		o.ConnectTimeout = 100 * time.Millisecond
		_, _, err := send(t, pools, o, request("GET", o.Scheme+"://"+o.Host, "/"))
		if fault.CodeOf(err) != fault.UpstreamUnreachable {
			t.Errorf("%s: got error %v, want code upstream_unreachable", name, err)
		}
		if o.Scheme != "http" {
			continue
		}
		plain, err := pools.Plain(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = plain.Acquire(t.Context(), time.Now().Add(time.Minute), nil); fault.CodeOf(err) != fault.UpstreamUnreachable {
			t.Errorf("%s, in the engine: got error %v, want code upstream_unreachable", name, err)
		}
	}
}
