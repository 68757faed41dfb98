package h1

import (
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// next reads an answer whole, which must be a 502 that keeps the connection.
func (c *client) next502() {
	c.t.Helper()
	h := c.wantStatus("502")
	if strings.Contains(h, "Connection: close") {
		c.t.Fatalf("the connection ends:\n%s", h)
	}
	_, rest, _ := strings.Cut(h, "Content-Length: ")
	text, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.Atoi(text)
	if err != nil {
		c.t.Fatal(err)
	}
	c.bytes(n)
}

// Guarantee: what follows a request whose upstream broke off is read as the next
// request, even if the broken one had a body: no byte of it is taken twice, and none
// of the next for its own.
func TestBrokenRequestsEndWhereTheyEnd(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream = "http://" + upstreamtest.Serve(t, func(c *upstreamtest.Conn) { _, _ = c.ReadHead() })
		e := start(t, s)
		c := e.dial()
		for range 3 {
			c.say("POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello")
			c.next502()
			c.say("POST /a HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
			c.next502()
			c.say("GET /b HTTP/1.1\r\nKEY\r\n\r\n")
			c.next502()
		}
	})
}

// Guarantee: a connection whose request could not be forwarded because nobody is
// there serves the next ones, and each is told of once. If its body had begun to be
// taken, it ends.
func TestUnreachableKeepsTheConnection(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream = "http://127.0.0.1:9" // no port that the system gives to anybody
		e := start(t, s)
		c := e.dial()
		requests := []string{
			"GET /a HTTP/1.1\r\nKEY\r\n\r\n", "POST /b HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\n\r\nhello", "DELETE /c HTTP/1.1\r\nKEY\r\n\r\n",
			"GET /d HTTP/1.1\r\nKEY\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n", "GET /e HTTP/1.1\r\nKEY\r\n\r\n",
		}
		for _, request := range requests {
			c.say(request)
			c.next502()
		}
		c.say(strings.Join(requests, ""))
		for range requests {
			c.next502()
		}
		if n := len(e.records()); n != 2*len(requests) {
			t.Errorf("%d records of %d requests", n, 2*len(requests))
		}
		c.say("POST /begun HTTP/1.1\r\nKEY\r\nContent-Length: 10\r\n\r\nhello")
		if h := c.wantStatus("502"); !strings.Contains(h, "Connection: close") {
			t.Errorf("half of a body was taken, and the connection goes on:\n%s", h)
		}
	})
}
