package enginetest_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// tearingUpstream starts an upstream that sends a body without a length until the gateway takes no more of it, which
// it reports on stalled. At the next value of tear it resets the connection, and reports that on torn.
func tearingUpstream(t *testing.T) (url string, stalled, tear, torn chan bool) {
	t.Helper()
	stalled, tear, torn = make(chan bool), make(chan bool), make(chan bool)
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		c.Send("HTTP/1.1 200 OK\r\n\r\n")
		part := []byte(strings.Repeat("a", 64<<10))
		for {
			_ = c.Conn.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := c.Conn.Write(part); errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
		}
		stalled <- true
		<-tear
		_ = c.Conn.(interface{ SetLinger(int) error }).SetLinger(0)
		_ = c.Conn.Close()
		torn <- true
	})
	return "http://" + addr, stalled, tear, torn
}

// Guarantee: a response without a length whose upstream resets the connection is not passed on as if it were whole,
// even if the request's body, which is still being forwarded, meets the reset first.
func TestTornResponse(t *testing.T) {
	url, stalled, tear, torn := tearingUpstream(t)
	g := start(t, setup{upstream: url})
	await := func(step string, from chan bool) {
		t.Helper()
		receive(t, step, from)
	}
	for range 5 {
		c := g.dial(t)
		c.Send("POST /public/a HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("first"))
		c.wantHead("200")
		await("a response that stalls", stalled)
		tear <- true
		await("a reset", torn)
		for range 10 {
			c.Send(chunk("more"))
		}
		rest, err := io.ReadAll(c)
		if err == nil && strings.HasSuffix(string(rest), "\r\n0\r\n\r\n") {
			t.Errorf("HTTP/1.1: got %d bytes that end as if they were whole", len(rest))
		}
		_ = c.Close()

		f := g.dialHTTP2()
		f.request(1, false, [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/public/a"}})
		_ = f.WriteData(1, false, []byte("first"))
		f.answer(t)
		await("a response that stalls", stalled)
		tear <- true
		await("a reset", torn)
		for range 10 {
			_ = f.WriteData(1, false, []byte("more"))
		}
		_ = f.WriteWindowUpdate(0, 1<<30)
		_ = f.WriteWindowUpdate(1, 1<<30)
		if !f.ends(t) {
			t.Error("HTTP/2: got END_STREAM, want a reset")
		}
	}
}
