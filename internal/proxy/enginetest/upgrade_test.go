package enginetest_test

import (
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// declining is an upstream that responds to each head at once: with 404 if the head asks for an
// upgrade, and otherwise with 200. It then reads the body that the head has declared, and keeps the
// connection. It reports the heads, and adds the number of the connection to each as the field x-conn.
func declining(t *testing.T) (addr string, heads <-chan head) {
	seen := make(chan head, 100)
	return upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			text, err := c.ReadHead()
			if err != nil {
				return
			}
			h := parse(text)
			h.fields["x-conn"] = []string{strconv.Itoa(c.Number)}
			seen <- h
			if h.get("upgrade") != "" {
				c.Send("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")
			} else {
				c.Send(empty)
			}
			declared, _ := strconv.ParseInt(h.get("content-length"), 10, 64)
			if _, err := io.CopyN(io.Discard, c, declared); err != nil {
				return
			}
		}
	}), seen
}

// Guarantee: an extended CONNECT declares no body to the upstream, whatever its content-length says, so
// that the upstream cannot take the next caller's request for that body.
func TestConnectSwallowsNoRequest(t *testing.T) {
	t.Parallel()
	addr, heads := declining(t)
	g := start(t, setup{upstream: "http://" + addr})
	for _, length := range []string{"", "0", "320"} {
		var fields [][2]string
		want := "404"
		if length != "" {
			fields, want = append(fields, [2]string{"content-length", length}), "400"
		}
		got := g.webSocket("websocket", "", fields...).answer(t)[":status"]
		if got != want {
			t.Errorf("content-length %q: got %s, want %s", length, got, want)
		}
		if got == "404" {
			receive(t, "the upgrade", heads).wantFields(t, map[string]string{"upgrade": "websocket", "content-length": "", "transfer-encoding": ""})
		}
		for _, client := range []http.RoundTripper{&http.Transport{DisableKeepAlives: true}, h2cClient(t)} {
			if resp, _ := g.do(client, "GET", "/next", nil); resp.StatusCode != http.StatusOK {
				t.Errorf("the next request got %d, want 200", resp.StatusCode)
			}
			if h := receive(t, "the next request", heads); h.line != "GET /next HTTP/1.1" {
				t.Errorf("the upstream got %q, want the next request", h.line)
			}
		}
	}
}

// Guarantee: a connection over which an upgrade was requested and not accepted carries no other request,
// and the head that requests it declares no body.
func TestDeclinedUpgradeEndsItsConnection(t *testing.T) {
	t.Parallel()
	upgrades := map[string]func(t *testing.T, g *harness) (status string){
		"HTTP/1.1": func(t *testing.T, g *harness) string {
			c := g.dial(t)
			c.request(g, "GET /a HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 0")
			return c.head().status()
		},
		"HTTP/2": func(t *testing.T, g *harness) string { return g.webSocket("websocket", "early").answer(t)[":status"] },
	}
	for name, upgrade := range upgrades {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, heads := declining(t)
			g := start(t, setup{upstream: "http://" + addr})
			for range 3 {
				if got := upgrade(t, g); got != "404" {
					t.Fatalf("got %s, want the upstream's 404", got)
				}
				asked := receive(t, "the upgrade", heads)
				asked.wantFields(t, map[string]string{"upgrade": "websocket", "connection": "Upgrade", "content-length": "", "transfer-encoding": ""})
				if _, body := g.get("/next"); body != "" {
					t.Errorf("got %q, want the next request's own response", body)
				}
				if next := receive(t, "the next request", heads); next.get("x-conn") == asked.get("x-conn") {
					t.Errorf("%s came over connection %s, whose upgrade was declined", next.line, asked.get("x-conn"))
				}
			}
		})
	}
}
