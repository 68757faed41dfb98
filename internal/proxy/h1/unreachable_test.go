package h1

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// want502 reads a whole response, which must be a 502 that keeps the connection.
func (c *client) want502() {
	c.t.Helper()
	h := c.wantStatus("502")
	if strings.Contains(h, "Connection: close") {
		c.t.Fatalf("got response\n%s\nwant the connection kept", h)
	}
	c.body(h)
}

// Guarantee: after a request whose upstream failed, the connection continues exactly at the next
// request, even if the failed request had a body: no byte is read twice or skipped.
func TestFailedRequestKeepsItsBoundary(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream = "http://" + upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = c.ReadHead() })
		g := start(t, s)
		c := g.dial(t)
		for range 3 {
			c.send("POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello")
			c.want502()
			c.send("POST /a HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
			c.want502()
			c.send("GET /b HTTP/1.1\r\nKEY\r\n\r\n")
			c.want502()
		}
	})
}

// Guarantee: after a request whose upstream could not be reached, the connection serves
// further requests, and each is recorded once. It ends if a part of the body has been
// read.
func TestUnreachableUpstreamKeepsConnection(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream = "http://127.0.0.1:9" // a privileged port on which nothing listens
		g := start(t, s)
		c := g.dial(t)
		requests := []string{
			"GET /a HTTP/1.1\r\nKEY\r\n\r\n", "POST /b HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello", "DELETE /c HTTP/1.1\r\nKEY\r\n\r\n",
			"GET /d HTTP/1.1\r\nKEY\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n", "GET /e HTTP/1.1\r\nKEY\r\n\r\n",
		}
		for _, request := range requests {
			c.send(request)
			c.want502()
		}
		c.send(strings.Join(requests, ""))
		for range requests {
			c.want502()
		}
		if n := len(g.records()); n != 2*len(requests) {
			t.Errorf("got %d access records, want %d", n, 2*len(requests))
		}
		c.send("POST /begun HTTP/1.1\r\nKEY\r\nContent-Length: 10\r\n\r\nhello")
		wantIn(t, c.wantStatus("502"), "Connection: close")
	})
}

// Guarantee: a body that arrives after the 502 of a request whose upstream could not be reached is neither a request nor
// answered: each request gets one response, and the next request is read behind that body. Behind a body of unknown length none
// is read, which the response says.
func TestBodyAfterTheRefusalIsNoRequest(t *testing.T) {
	t.Parallel()
	const inner = "GET /smuggled HTTP/1.1\r\nKEY\r\n\r\n"
	for _, scheme := range []string{"http", "h2c", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			modes(t, func(t *testing.T, s setup) {
				s.upstream = scheme + "://127.0.0.1:9" // a privileged port on which nothing listens
				g := start(t, s)
				c := g.dial(t)
				body := strings.ReplaceAll(inner, "KEY", "Host: api.test\r\nAuthorization: Bearer "+c.key)
				c.send(fmt.Sprintf("POST /first HTTP/1.1\r\nKEY\r\nContent-Length: %d\r\n\r\n", len(body)))
				c.want502()
				c.send(body + "GET /second HTTP/1.1\r\nKEY\r\n\r\n")
				c.want502()
				c.send("POST /last HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n")
				last := c.wantStatus("502")
				wantIn(t, last, "Connection: close")
				c.body(last)
				c.send(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) + "GET /lost HTTP/1.1\r\nKEY\r\n\r\n")
				if rest, _ := io.ReadAll(c.Reader); len(rest) > 0 {
					t.Errorf("got %q behind the last response, want nothing", rest)
				}
				var paths []string
				for _, r := range g.records() {
					paths = append(paths, r.Path)
				}
				if got := strings.Join(paths, " "); got != "/first /second /last" {
					t.Errorf("the requests were %s, want /first /second /last", got)
				}
			})
		})
	}
}
