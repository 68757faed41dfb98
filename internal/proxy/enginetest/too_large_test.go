package enginetest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Guarantee: a request behind a body that is too large is never lost without notice: after a length that is
// too large it gets its response, and the 413 to a chunked body says that the connection is closed.
func TestRequestBehindATooLargeBody(t *testing.T) {
	t.Parallel()
	handler := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	bodies := map[string]string{
		"one chunk": "Transfer-Encoding: chunked\r\n\r\n" + chunk(strings.Repeat("a", 40)) + "0\r\n\r\n",
		"chunks":    "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk("abcd"), 10) + "0\r\nX-T: 1\r\n\r\n",
		"long":      "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk(strings.Repeat("a", 1000)), 100) + "0\r\n\r\n",
		"a length":  "Content-Length: 40\r\n\r\n" + strings.Repeat("a", 40),
	}
	for name, upstream := range map[string]string{"HTTP/1.1": plainUpstream(t, handler), "HTTP/2": h2cUpstream(t, handler)} {
		g := start(t, setup{upstream: upstream, maxBody: 10})
		for kind, body := range bodies {
			text := "POST /public/a HTTP/1.1\r\nHost: api.test\r\n" + body + "GET /public/b HTTP/1.1\r\nHost: api.test\r\n\r\n"
			for at := strings.Index(text, "\r\n\r\n") + 4; at < len(text); at += 1 + len(text)/20 {
				c := g.dial(t)
				c.Send(text[:at])
				c.Send(text[at:])
				closes := c.wantRefusal("413", "body_too_large").get("connection") == "close"
				switch {
				case kind == "a length":
					c.wantHead("200")
				case !closes:
					t.Errorf("%s, %s, split at %d: the 413 does not say that the connection is closed", name, kind, at)
				}
				_ = c.Close()
			}
		}
	}
}

// Guarantee: the same holds if the upstream has the head already when the rest of the body arrives, together with
// the next request.
func TestRequestBehindATooLargeRestOfABody(t *testing.T) {
	t.Parallel()
	begun := make(chan bool, 1)
	handler := func(_ http.ResponseWriter, r *http.Request) {
		begun <- true
		_, _ = io.Copy(io.Discard, r.Body)
	}
	for name, upstream := range map[string]string{"HTTP/1.1": plainUpstream(t, handler), "HTTP/2": h2cUpstream(t, handler)} {
		g := start(t, setup{upstream: upstream, maxBody: 10})
		for _, first := range []string{"", chunk("abcd")} {
			c := g.dial(t)
			c.Send("POST /public/a HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n" + first)
			<-begun
			c.Send(chunk("abcdefghijklmn") + "0\r\n\r\nGET /public/b HTTP/1.1\r\nHost: api.test\r\n\r\n")
			if c.wantRefusal("413", "body_too_large").get("connection") != "close" {
				t.Errorf("%s, %q first: the 413 does not say that the connection is closed", name, first)
			}
			_ = c.Close()
		}
	}
}
