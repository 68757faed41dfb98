package h1

import (
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// BenchmarkExchange is one small request through the engine and real sockets,
// client and upstream in the same process: what it allocates is the engine's,
// what it costs is all three's.
func BenchmarkExchange(b *testing.B) {
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sat, 21 Nov 2026 16:00:00 GMT\r\nServer: test\r\nContent-Length: 381\r\n\r\n" + strings.Repeat("x", 381))
	addr := upstreamtest.Serve(b, func(c *upstreamtest.Conn) {
		buf := make([]byte, 4096)
		for {
			if _, err := c.Conn.Read(buf); err != nil {
				return
			}
			if _, err := c.Conn.Write(answer); err != nil {
				return
			}
		}
	})
	e := start(b, setup{upstream: "http://" + addr, limit: "1000000000/s"})
	e.told.deaf = true
	request := []byte("GET /a/b?c=d HTTP/1.1\r\nHost: api.test\r\nUser-Agent: bench\r\nAccept: */*\r\nAuthorization: Bearer " + e.key + "\r\n\r\n")
	var before, after syscall.Rusage
	b.ReportAllocs()
	b.SetParallelism(16)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", e.addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		buf := make([]byte, 4096)
		for pb.Next() {
			if _, err := conn.Write(request); err != nil {
				b.Error(err)
				return
			}
			n, err := conn.Read(buf)
			if err != nil || n < 381 || string(buf[9:12]) != "200" {
				b.Errorf("%v: %s", err, buf[:n])
				return
			}
		}
	})
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
}

// BenchmarkRecord is what telling of a request adds to it: the record is filled
// and put, the sinks beside it at work.
func BenchmarkRecord(b *testing.B) {
	e := start(b, setup{upstream: "http://127.0.0.1:9", limit: "1000000000/s"})
	e.told.deaf = true
	c := newConn(e.engine, &net.TCPConn{}, ConnInfo{Client: netip.MustParseAddrPort("192.0.2.1:1")})
	x := e.engine.exchange(c)
	x.ask = admit.Request{Method: "GET", Target: "/a/b?c=d", Host: "api.test", Authorization: "Bearer " + e.key, Authorizations: 1}
	e.engine.cfg.Admit.Decide(&x.ask, &x.Verdict)
	if x.Verdict.Action != admit.Forward {
		b.Fatal(x.Verdict.Code)
	}
	verdict := x.Verdict
	x.relay.resp.Status = 200
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		x.Exchange = proxy.Exchange{Client: c.client, Verdict: verdict, Method: "GET"}
		x.Begin(&e.engine.cfg.Config, x.Verdict.Now)
		x.MarkResponse(200)
		x.emitForwarded()
		if n%2000 == 0 {
			e.records()
		}
	}
}
