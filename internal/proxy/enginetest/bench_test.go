package enginetest_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/gateway"
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

// BenchmarkTargets measures one small request through the engine to an upstream with one target and with three, which it
// balances and ejects (targets.md, section 10). Client and upstream allocate nothing.
func BenchmarkTargets(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			f := &fleetOfTargets{}
			for range n {
				f.urls = append(f.urls, "http://"+upstreamtest.ServeConstant(b, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 381\r\n\r\n"+strings.Repeat("x", 381)))
			}
			s := setup{upstream: f.urls[0], limit: "1000000000/s"}
			if n > 1 {
				s.adjust = f.config(gateway.DefaultRetries())
			}
			g := start(b, s)
			g.sink.discard = true
			request := []byte("GET /a/b?c=d HTTP/1.1\r\nHost: api.test\r\nUser-Agent: bench\r\nAccept: */*\r\nAuthorization: Bearer " + g.key + "\r\n\r\n")
			proctest.BenchmarkExchanges(b, g.addr, request, 381)
		})
	}
}
