package h1

import (
	"io"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: contract, 4.4. The response to a request whose body is refused reaches a client that sends the
// whole body of 8 MB before it reads; then the connection ends.
func TestRefusalDuringAnUploadIsRead(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	chunk := "10000\r\n" + strings.Repeat("x", 1<<16) + "\r\n"
	whole, chunked := "Content-Length: 8388608\r\n\r\n"+strings.Repeat("x", size), "Transfer-Encoding: chunked\r\n\r\n"+strings.Repeat(chunk, size>>16)+"0\r\n\r\n"
	modes(t, func(t *testing.T, s setup) {
		s.maxBody = 1 << 20
		s.upstream, _ = upstreamOf(t, func(_ string, u *upstreamtest.Conn) string {
			_, _ = io.Copy(io.Discard, u.Reader) // until the gateway closes the connection
			return okResponse
		})
		g := start(t, s)
		for name, test := range map[string]struct{ request, status string }{
			"without a key":           {"POST /a HTTP/1.1\r\nHost: a\r\n" + whole, "401"},
			"without a key, chunked":  {"POST /a HTTP/1.1\r\nHost: a\r\n" + chunked, "401"},
			"too large":               {"POST /a HTTP/1.1\r\nKEY\r\n" + whole, "413"},
			"too large, chunked":      {"POST /a HTTP/1.1\r\nKEY\r\n" + chunked, "413"},
			"malformed":               {"POST /a HTTP/1.1\r\nKEY\r\nX y: z\r\n" + whole, "400"},
			"a method that none has":  {"TRACE /a HTTP/1.1\r\nKEY\r\n" + whole, "405"},
			"a path that is not safe": {"POST /a/../b HTTP/1.1\r\nKEY\r\n" + whole, "400"},
		} {
			t.Run(name, func(t *testing.T) {
				c := g.dial(t)
				c.send(test.request)
				c.body(c.wantStatus(test.status))
				if rest, err := c.rest(); rest != "" || err != nil {
					t.Errorf("after the response: got %q and the error %v, want the end", rest, err)
				}
			})
		}
	})
}
