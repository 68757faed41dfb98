package enginetest_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// BenchmarkForward measures one small request of an HTTP/1.1 client through the engine over persistent
// connections, including the client and the upstream, for each kind of upstream.
func BenchmarkForward(b *testing.B) {
	handler := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 381))
	}
	for name, prepare := range map[string]func(s *setup){
		"HTTP/1.1":          func(s *setup) { s.upstream = plainUpstream(b, handler) },
		"HTTP/1.1 over TLS": func(s *setup) { s.upstream, s.ca = tlsUpstreamOf(b, false, handler) },
		"HTTP/2 over TLS":   func(s *setup) { s.upstream, s.ca = tlsUpstreamOf(b, true, handler) },
		"h2c":               func(s *setup) { s.upstream = h2cUpstream(b, handler) },
	} {
		b.Run(name, func(b *testing.B) {
			s := setup{limit: "1000000000/s"}
			prepare(&s)
			g := start(b, s)
			request := "GET /a HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + g.key + "\r\n\r\n"
			b.ReportAllocs()
			b.SetParallelism(16)
			before := proctest.CPUTime(b)
			b.RunParallel(func(pb *testing.PB) {
				conn, err := net.Dial("tcp", g.addr)
				if err != nil {
					b.Error(err)
					return
				}
				defer func() { _ = conn.Close() }()
				c := &upstreamtest.Conn{Conn: conn, Reader: bufio.NewReader(conn)}
				body := make([]byte, 381)
				for pb.Next() {
					c.Send(request)
					text, err := c.ReadHead()
					if err != nil || parse(text).status() != "200" {
						b.Errorf("got response\n%s\n%v, want a 200", text, err)
						return
					}
					if _, err := io.ReadFull(c, body); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(proctest.CPUTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
