package enginetest_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// switching is an upstream that switches to an echo protocol. It sends first after its
// 101, and "bye" when the other side has ended its half.
func switching(t *testing.T, first string) string {
	return upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		text, err := c.ReadHead()
		if err != nil {
			return
		}
		if parse(text).get("upgrade") != "echo/1" {
			c.Send("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n")
			return
		}
		c.Send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\nX-App: 1\r\nX-Request-Id: theirs\r\n\r\n" + first)
		_, _ = io.Copy(c.Conn, c)
		c.Send("bye")
	})
}

// upgrade requests the echo protocol, with the bytes of behind after the head, and checks
// that the response is a 101.
func (c *client) upgrade(g *harness, behind string) head {
	c.t.Helper()
	c.Send("GET /a HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + g.key + "\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\n" + behind)
	return c.wantHead("101")
}

// closeWrite closes the client's sending half.
func (c *client) closeWrite() {
	if err := c.Conn.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		c.t.Error(err)
	}
}

// Guarantee: an upgraded connection is an opaque tunnel. Bytes right after the heads are
// not lost, and one direction may end before the other.
func TestTunnel(t *testing.T) {
	t.Parallel()
	g := start(t, setup{upstream: "http://" + switching(t, "hello")})
	c := g.dial(t)
	h := c.upgrade(g, "early")
	h.wantFields(t, map[string]string{
		"upgrade": "echo/1", "connection": "Upgrade", "x-app": "1", "content-length": "", "content-type": "", "transfer-encoding": "",
	})
	h.wantPresent(t, "x-ratelimit-limit")
	if id := h.get("x-request-id"); !strings.HasPrefix(id, "req_") {
		t.Errorf("got X-Request-Id %q, want the gateway's", id)
	}
	c.wantText("helloearly")
	c.Send("more\x00\xff")
	c.wantText("more\x00\xff")
	c.closeWrite()
	c.wantEnd("bye")
}

// Guarantee: if the upstream declines an upgrade, its response passes and the client's connection
// is reused.
func TestUpgradeDeclined(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
	g := start(t, setup{upstream: "http://" + addr})
	c := g.dial(t)
	for range 2 {
		c.request(g, "GET /a HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket")
		c.wantHead("200")
		c.wantText("no")
		receive(t, "the request", heads).wantFields(t, map[string]string{"upgrade": "websocket"})
	}
}

// Guarantee: when one side of a tunnel closes its connection, the other side's ends.
func TestTunnelEnds(t *testing.T) {
	t.Parallel()
	t.Run("when the client closes", func(t *testing.T) {
		ended := make(chan struct{})
		addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			if _, err := c.ReadHead(); err != nil {
				return
			}
			c.Send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
			close(ended)
		})
		g := start(t, setup{upstream: "http://" + addr})
		c := g.dial(t)
		c.upgrade(g, "")
		_ = c.Close()
		receive(t, "the end of the upstream's connection", ended)
	})
	t.Run("when the upstream closes", func(t *testing.T) {
		addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			if _, err := c.ReadHead(); err == nil {
				c.Send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\nlast")
			}
		})
		g := start(t, setup{upstream: "http://" + addr})
		c := g.dial(t)
		c.upgrade(g, "")
		c.wantEnd("last")
	})
}

// shutdown starts a drain without a deadline and returns a channel with its result.
func (g *harness) shutdown() <-chan error {
	done := make(chan error, 1)
	go func() { done <- g.server.Shutdown(context.Background()) }()
	return done
}

// wantDrained waits for the end of a drain and checks that it returned no error.
func wantDrained(t *testing.T, done <-chan error) {
	t.Helper()
	if err := receive(t, "the end of the drain", done); err != nil {
		t.Errorf("Shutdown: got error %v, want nil", err)
	}
}

// Guarantee: contract 4.4. A drain waits for running requests and tunnels.
func TestDrainWaits(t *testing.T) {
	t.Parallel()
	t.Run("for a tunnel", func(t *testing.T) {
		g := start(t, setup{upstream: "http://" + switching(t, "")})
		c := g.dial(t)
		c.upgrade(g, "")
		done := g.shutdown()
		c.Send("still")
		c.wantText("still")
		select {
		case err := <-done:
			t.Fatalf("Shutdown returned %v while a tunnel was open, want it to wait", err)
		default:
		}
		c.closeWrite()
		if rest, _ := c.rest(); rest != "bye" {
			t.Errorf("got the rest %q, want %q", rest, "bye")
		}
		wantDrained(t, done)
	})
	t.Run("for a request", func(t *testing.T) {
		arrived, release := make(chan struct{}), make(chan struct{})
		addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			if _, err := c.ReadHead(); err != nil {
				return
			}
			close(arrived)
			<-release
			c.Send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
		})
		g := start(t, setup{upstream: "http://" + addr})
		c := g.dial(t)
		c.request(g, "GET /a HTTP/1.1")
		receive(t, "the request", arrived)
		done := g.shutdown()
		close(release)
		c.wantHead("200")
		c.wantText("done")
		_ = c.Close() // the drain lingers for it
		wantDrained(t, done)
	})
}

// Guarantee: contract 4.4. When its context ends, a drain cuts off what still runs, and
// reports no error.
func TestDrainCutsOff(t *testing.T) {
	t.Parallel()
	cutOff := func(t *testing.T, g *harness) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := g.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: got error %v, want nil", err)
		}
	}
	t.Run("a tunnel", func(t *testing.T) {
		g := start(t, setup{upstream: "http://" + switching(t, "")})
		c := g.dial(t)
		c.upgrade(g, "")
		cutOff(t, g)
		c.wantCutOff()
	})
	t.Run("a request", func(t *testing.T) {
		silent, arrived := recorder(t, "")
		g := start(t, setup{upstream: "http://" + silent})
		c := g.dial(t)
		c.request(g, "GET /a HTTP/1.1")
		receive(t, "the request", arrived)
		cutOff(t, g)
		c.wantCutOff()
	})
}

// Guarantee: the upgrade of an https upstream goes over HTTP/1.1, even if the upstream
// supports HTTP/2, as other requests show.
func TestTunnelOverTLS(t *testing.T) {
	t.Parallel()
	addr, ca := tlsUpstream(t)
	g := start(t, setup{upstream: "https://" + addr, ca: ca})
	c := g.dial(t)
	c.upgrade(g, "")
	c.Send("text")
	c.wantText("text")
	c.closeWrite()
	c.wantEnd("bye")
	if _, body := g.get("/a"); body != "HTTP/2.0" {
		t.Errorf("another request: got protocol %s, want HTTP/2.0", body)
	}
}

// echo sends back what it reads from r, then "bye", and closes c.
func echo(c io.ReadWriteCloser, r *bufio.Reader) {
	_, _ = io.Copy(c, r)
	_, _ = io.WriteString(c, "bye")
	_ = c.Close()
}
