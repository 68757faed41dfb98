package nethttp_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// switching is an upstream that changes to a protocol that echoes, and says bye
// when the other side has ended.
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

func (c *client) upgrade(e *edge, behind string) head {
	c.t.Helper()
	c.Send("GET /a HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + e.key + "\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\n" + behind)
	h := c.head()
	if h.status() != "101" {
		c.t.Fatalf("answer\n%s", h.text)
	}
	return h
}

// closeWrite ends what the client sends, and nothing else.
func (c *client) closeWrite() {
	if err := c.Conn.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		c.t.Error(err)
	}
}

// An upgraded connection is an opaque tunnel: what stood behind the heads is not
// lost, and one direction may end before the other.
func TestTunnel(t *testing.T) {
	e := start(t, setup{upstream: "http://" + switching(t, "hello")})
	c := e.dial()
	h := c.upgrade(e, "early")
	if h.get("upgrade") != "echo/1" || h.get("connection") != "Upgrade" || h.get("x-app") != "1" || !strings.HasPrefix(h.get("x-request-id"), "req_") ||
		h.get("x-ratelimit-limit") == "" || h.get("content-length") != "" || h.get("content-type") != "" || h.get("transfer-encoding") != "" {
		t.Errorf("head\n%s", h.text)
	}
	if got := c.text(len("helloearly")); got != "helloearly" {
		t.Fatalf("got %q", got)
	}
	c.Send("more\x00\xff")
	if got := c.text(6); got != "more\x00\xff" {
		t.Fatalf("got %q", got)
	}
	c.closeWrite()
	if rest, err := c.rest(); rest != "bye" || err != nil {
		t.Errorf("after the half-close: %q, %v", rest, err)
	}
}

// An upstream that declines is answered through, and the connection goes on.
func TestUpgradeDeclined(t *testing.T) {
	addr, heads := recorder(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
	e := start(t, setup{upstream: "http://" + addr})
	c := e.dial()
	for range 2 {
		c.request(e, "GET /a HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket")
		if h := c.head(); h.status() != "200" || c.text(2) != "no" || within(t, "the request", heads).get("upgrade") != "websocket" {
			t.Fatalf("answer\n%s", h.text)
		}
	}
}

// Either side's break ends the other.
func TestTunnelBreaks(t *testing.T) {
	ended := make(chan struct{})
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		c.Send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
		close(ended)
	})
	e := start(t, setup{upstream: "http://" + addr})
	c := e.dial()
	c.upgrade(e, "")
	_ = c.Close()
	within(t, "the end of the upstream's connection", ended)

	addr = upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err == nil {
			c.Send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\nlast")
		}
	})
	e = start(t, setup{upstream: "http://" + addr})
	c = e.dial()
	c.upgrade(e, "")
	if rest, err := c.rest(); rest != "last" || err != nil {
		t.Errorf("after the upstream's end: %q, %v", rest, err)
	}
}

// A drain waits for requests and then for tunnels; at its end it cuts what is
// left, and is no error (contract, 4.4).
func TestDrain(t *testing.T) {
	t.Run("tunnel ends", func(t *testing.T) {
		e := start(t, setup{upstream: "http://" + switching(t, "")})
		c := e.dial()
		c.upgrade(e, "")
		done := make(chan error, 1)
		go func() { done <- e.server.Shutdown(context.Background()) }()
		c.Send("still")
		if got := c.text(5); got != "still" {
			t.Fatalf("got %q", got)
		}
		select {
		case err := <-done:
			t.Fatalf("the drain did not wait for the tunnel: %v", err)
		default:
		}
		c.closeWrite()
		if rest, _ := c.rest(); rest != "bye" {
			t.Errorf("got %q", rest)
		}
		if err := within(t, "the drain", done); err != nil {
			t.Error(err)
		}
	})
	t.Run("tunnel is cut", func(t *testing.T) {
		e := start(t, setup{upstream: "http://" + switching(t, "")})
		c := e.dial()
		c.upgrade(e, "")
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := e.server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if rest, _ := c.rest(); rest != "" {
			t.Errorf("got %q", rest)
		}
	})
	t.Run("request ends", func(t *testing.T) {
		arrived, answer := make(chan struct{}), make(chan struct{})
		addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			if _, err := c.ReadHead(); err != nil {
				return
			}
			close(arrived)
			<-answer
			c.Send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
		})
		e := start(t, setup{upstream: "http://" + addr})
		c := e.dial()
		c.request(e, "GET /a HTTP/1.1")
		within(t, "the request", arrived)
		done := make(chan error, 1)
		go func() { done <- e.server.Shutdown(context.Background()) }()
		close(answer)
		if h := c.head(); h.status() != "200" || c.text(4) != "done" {
			t.Errorf("answer\n%s", h.text)
		}
		_ = c.Close() // for which the drain waits a while
		if err := within(t, "the drain", done); err != nil {
			t.Error(err)
		}
	})
	t.Run("request is cut", func(t *testing.T) {
		silent, arrived := recorder(t, "")
		e := start(t, setup{upstream: "http://" + silent})
		c := e.dial()
		c.request(e, "GET /a HTTP/1.1")
		within(t, "the request", arrived)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := e.server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if rest, _ := c.rest(); rest != "" {
			t.Errorf("got %q", rest)
		}
	})
}

// An https upstream is upgraded over HTTP/1.1, also if it offers HTTP/2.
func TestTunnelTLS(t *testing.T) {
	addr, ca := tlsUpstream(t)
	e := start(t, setup{upstream: "https://" + addr, ca: ca})
	c := e.dial()
	c.upgrade(e, "")
	c.Send("text")
	if got := c.text(4); got != "text" {
		t.Fatalf("got %q", got)
	}
	c.closeWrite()
	if rest, err := c.rest(); rest != "bye" || err != nil {
		t.Errorf("after the half-close: %q, %v", rest, err)
	}
	if _, body := e.get("/a"); body != "HTTP/2.0" {
		t.Errorf("another request went over %s", body)
	}
}

func echo(c io.ReadWriteCloser, r *bufio.Reader) {
	_, _ = io.Copy(c, r)
	_, _ = io.WriteString(c, "bye")
	_ = c.Close()
}
