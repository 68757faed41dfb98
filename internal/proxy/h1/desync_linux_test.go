package h1

import (
	"net"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// received returns once the peer's kernel has all that was written to c.
func received(t *testing.T, c *upstreamtest.Conn) {
	t.Helper()
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	for unsent := 1; unsent > 0; runtime.Gosched() {
		if err := raw.Control(func(fd uintptr) { unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil {
			t.Error(err)
			return
		}
	}
}

// Guarantee: bytes that an upstream sends on an idle connection without a request never
// become another client's response, however soon the next request comes: that request is
// sent over another upstream connection, whatever its method. A request counts as the
// same client's only if it comes over the same client connection with the same key, and
// that connection is not a trusted proxy's. Even the same client's request is sent over
// another connection if it could not be retried.
func TestUnsolicitedResponseReachesNoOtherClient(t *testing.T) {
	t.Parallel()
	drivers(t, func(t *testing.T, s setup) {
		const forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
		sent := make(chan bool)
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if !strings.HasPrefix(h, "GET /first") {
				return okResponse
			}
			c.Send(okResponse)
			<-sent
			c.Send(forged)
			received(t, c)
			sent <- true
			if h, err := c.ReadHead(); err == nil {
				t.Errorf("got a request on the connection with the unsolicited response, want none: %s", h)
			}
			return ""
		})
		g := start(t, s)
		s.trusted = true
		proxied := start(t, s)
		get, post := "GET /a HTTP/1.1\r\nKEY\r\n\r\n", "POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 0\r\n\r\n"
		for name, next := range map[string]struct {
			request string
			other   bool   // comes over another connection
			key     string // the key it has
			proxied bool   // comes through a trusted proxy
		}{
			"other connection":                   {get, true, g.key, false},
			"other connection, POST":             {post, true, g.key, false},
			"same connection, POST":              {post, false, g.key, false},
			"same connection, other key":         {get, false, g.other, false},
			"same connection, no key":            {"GET /public/a HTTP/1.1\r\nKEY\r\n\r\n", false, g.key, false},
			"same connection of a trusted proxy": {get, false, proxied.key, true},
		} {
			t.Run(name, func(t *testing.T) {
				g := g
				if next.proxied {
					g = proxied
				}
				first := g.dial(t)
				first.send("GET /first HTTP/1.1\r\nKEY\r\n\r\n")
				first.wantStatus("200")
				first.bytes(2)
				sent <- true
				<-sent
				second := first
				if next.other {
					second = g.dial(t)
				}
				second.key = next.key
				second.send(next.request)
				second.wantStatus("200")
				second.wantBytes("ok")
			})
		}
	})
}
