package enginetest_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// BenchmarkForward measures one small request through the HTTP/1.1 engine over persistent
// connections, including the client and the upstream.
func BenchmarkForward(b *testing.B) {
	response := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 381\r\n\r\n" + strings.Repeat("x", 381)
	addr := upstreamtest.Serve(b, func(c *upstreamtest.Conn) {
		for {
			if _, err := c.ReadHead(); err != nil {
				return
			}
			c.Send(response)
		}
	})
	g := start(b, setup{upstream: "http://" + addr, limit: "1000000000/s"})
	request := "GET /a HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + g.key + "\r\n\r\n"
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", g.addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		c := &upstreamtest.Conn{Conn: conn, Reader: bufio.NewReader(conn)}
		for pb.Next() {
			c.Send(request)
			text, err := c.ReadHead()
			if err != nil {
				b.Error(err)
				return
			}
			h := parse(text)
			n, err := strconv.ParseInt(h.get("content-length"), 10, 64)
			if err != nil || h.status() != "200" {
				b.Errorf("got response\n%s\nwant a 200 with Content-Length", text)
				return
			}
			if _, err := io.CopyN(io.Discard, c, n); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
