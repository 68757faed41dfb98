package h1

import (
	"io"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: when an upstream closes its connection before the whole body of a request has arrived, the
// client gets a 502 whatever its connection is, and the record says so. That holds for a body that is
// moved from socket to socket as well.
func TestBrokenOffUploadIs502(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300<<10)
	modes(t, func(t *testing.T, s setup) {
		for _, c := range []struct {
			name, head string
			first      string // sent behind the head
			then       string // sent when the upstream has the head
			read       int    // how much of both the upstream reads before it closes
		}{
			{"nothing", "Content-Length: 10", "", "", 0},
			{"nothing of chunks", "Transfer-Encoding: chunked", "", "", 0},
			{"a client that waits for 100", "Content-Length: 10\r\nExpect: 100-continue", "", "", 0},
			{"a part behind the head", "Content-Length: 10", "hello", "", 0},
			{"a part that was read", "Content-Length: 10", "hello", "", 5},
			{"a part later", "Content-Length: 10", "", "hello", 5},
			{"a chunk later", "Transfer-Encoding: chunked", "", "5\r\nhello\r\n", 5},
			{"a large part", "Content-Length: 10000000", "", long, len(long)},
			{"a large part that was not read", "Content-Length: 10000000", "", long[:64<<10], 10},
		} {
			t.Run(c.name, func(t *testing.T) {
				headed := make(chan bool, 1)
				s := s
				s.upstream = "http://" + upstreamtest.Serve(t, func(up *upstreamtest.Conn) {
					if _, err := up.ReadHead(); err == nil {
						headed <- true
						_, _ = io.CopyN(io.Discard, up, int64(c.read))
					}
				})
				g := start(t, s)
				client := g.dial(t)
				client.send("POST /a HTTP/1.1\r\nKEY\r\n" + c.head + "\r\n\r\n" + c.first)
				<-headed
				client.send(c.then)
				wantIn(t, client.body(client.wantStatus("502")), `"upstream_unreachable"`)
				for _, r := range g.records() {
					if r.Part != accesslog.Started && (r.Result != accesslog.Unreachable || r.Status != 502) {
						t.Errorf("got result %v, status %d; want Unreachable and 502", r.Result, r.Status)
					}
				}
			})
		}
	})
}
