package enginetest_test

import (
	"io"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: an upstream that sends only interim responses, without a pause, gets no more time than an upstream
// that sends nothing.
func TestEndlessInterimResponses(t *testing.T) {
	t.Parallel()
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		_, err := c.ReadHead()
		for interim := strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1000); err == nil; {
			_, err = io.WriteString(c.Conn, interim)
		}
	})
	g := start(t, setup{upstream: "http://" + addr, timeout: "1s", realClock: true})

	c := g.dial(t)
	c.Send("GET /public/a HTTP/1.1\r\nHost: api.test\r\n\r\n")
	h := c.head()
	for h.status() == "103" {
		h = c.head()
	}
	if h.status() != "504" {
		t.Errorf("HTTP/1.1: got status %s, want 504", h.status())
	}

	f := g.dialHTTP2()
	f.request(1, true, [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/public/a"}})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		head, ok := frame.(*http2.MetaHeadersFrame)
		if !ok || head.PseudoValue("status") == "103" {
			continue
		}
		if got := head.PseudoValue("status"); got != "504" {
			t.Errorf("HTTP/2: got status %s, want 504", got)
		}
		return
	}
}
