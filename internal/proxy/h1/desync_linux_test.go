package h1

import (
	"net"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// received returns once the other side's system has all that was written to c.
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

// Guarantee: what an upstream says on a kept connection without being asked
// answers nobody else's request, however soon the next one comes, and that is sent
// on another connection, whatever its method. Nobody else is who comes over the
// same connection with the same key, unless that is of a trusted proxy; only of
// theirs, what could not be sent again is kept from it too.
func TestUnasked(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		const forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
		said := make(chan bool)
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if !strings.HasPrefix(h, "GET /first") {
				return okAnswer
			}
			c.Send(okAnswer)
			<-said
			c.Send(forged)
			received(t, c)
			said <- true
			if h, err := c.ReadHead(); err == nil {
				t.Errorf("a request came behind what was not asked for: %s", h)
			}
			return ""
		})
		e := start(t, s)
		s.trusted = true
		proxied := start(t, s)
		get, post := "GET /a HTTP/1.1\r\nKEY\r\n\r\n", "POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 0\r\n\r\n"
		for name, next := range map[string]struct {
			request string
			other   bool   // over another connection
			key     string // instead of the first's
			proxied bool   // through a trusted proxy
		}{
			"other connection":                   {get, true, e.key, false},
			"other connection, POST":             {post, true, e.key, false},
			"same connection, POST":              {post, false, e.key, false},
			"same connection, other key":         {get, false, e.other, false},
			"same connection, no key":            {"GET /public/a HTTP/1.1\r\nKEY\r\n\r\n", false, e.key, false},
			"same connection of a trusted proxy": {get, false, proxied.key, true},
		} {
			t.Run(name, func(t *testing.T) {
				e := e
				if next.proxied {
					e = proxied
				}
				first := e.dial()
				first.say("GET /first HTTP/1.1\r\nKEY\r\n\r\n")
				first.wantStatus("200")
				first.bytes(2)
				said <- true
				<-said
				second := first
				if next.other {
					second = e.dial()
				}
				second.key = next.key
				second.say(next.request)
				second.wantStatus("200")
				if got := second.bytes(2); got != "ok" {
					t.Errorf("the answer is another's: %q", got)
				}
			})
		}
	})
}
