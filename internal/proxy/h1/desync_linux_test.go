package h1

import (
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

const (
	forgedResponse = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"

	getA  = "GET /a HTTP/1.1\r\nKEY\r\n\r\n"
	headA = "HEAD /a HTTP/1.1\r\nKEY\r\n\r\n"
	postA = "POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 0\r\n\r\n"
)

// exchangesBefore are the exchanges after which an upstream sends bytes that nobody asked for.
var exchangesBefore = map[string]struct{ method, response string }{
	"after-GET":  {"GET", okResponse},
	"after-POST": {"POST", okResponse},
	"after-HEAD": {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n"},
	"after-204":  {"GET", "HTTP/1.1 204 No Content\r\n\r\n"},
	"after-304":  {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 55\r\n\r\n"},
}

// upstreamThatForges runs an upstream that responds to /first?NAME with the response of
// exchangesBefore, and then sends a forged response when it gets a value from sent. It puts a value
// into sent once the gateway's kernel has the forged response.
func upstreamThatForges(t *testing.T, sent chan bool) (url string) {
	url, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
		method, rest, _ := strings.Cut(h, " /")
		target, _, _ := strings.Cut(rest, " ")
		before, ok := exchangesBefore[strings.TrimPrefix(target, "first?")]
		switch {
		case !ok && method == "HEAD":
			return strings.TrimSuffix(okResponse, "ok")
		case !ok:
			return okResponse
		}
		c.Send(before.response)
		<-sent
		c.Send(forgedResponse)
		awaittest.Received(t, proxy.TCPOf(c.Conn))
		sent <- true
		if h, err := c.ReadHead(); err == nil {
			t.Errorf("got a request on the connection with the unsolicited response, want none: %s", h)
		}
		return ""
	})
	return url
}

// Guarantee: bytes that an upstream sends on an idle connection without a request never become a
// response, not even to the client and key that used the connection last, and however soon the next
// request comes: it is sent over another upstream connection, whatever its method. The same holds
// for a body after a response that must have none.
func TestUnsolicitedResponseReachesNobody(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		sent := make(chan bool)
		s.upstream = upstreamThatForges(t, sent)
		g := start(t, s)
		s.trusted = true
		proxied := start(t, s)
		nexts := map[string]struct {
			on      *harness
			request string
			other   bool   // comes over another connection
			key     string // the key it has
		}{
			"same connection and key":            {g, getA, false, g.key},
			"same connection and key, HEAD":      {g, headA, false, g.key},
			"same connection and key, POST":      {g, postA, false, g.key},
			"same connection, other key":         {g, getA, false, g.other},
			"same connection, no key":            {g, "GET /public/a HTTP/1.1\r\nKEY\r\n\r\n", false, g.key},
			"same connection of a trusted proxy": {proxied, getA, false, proxied.key},
			"other connection":                   {g, getA, true, g.key},
			"other connection, POST":             {g, postA, true, g.key},
		}
		for name, next := range nexts {
			for of, before := range exchangesBefore {
				t.Run(name+" "+of, func(t *testing.T) {
					first := next.on.dial(t)
					first.send(before.method + " /first?" + of + " HTTP/1.1\r\nKEY\r\nContent-Length: 0\r\n\r\n")
					first.wantStatus(before.response[9:12])
					if before.response == okResponse {
						first.wantBytes("ok")
					}
					sent <- true
					<-sent
					second := first
					if next.other {
						second = next.on.dial(t)
					}
					second.key = next.key
					second.send(next.request)
					second.wantStatus("200")
					if next.request != headA {
						second.wantBytes("ok")
					}
				})
			}
		}
	})
}
