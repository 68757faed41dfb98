package h1

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// BenchmarkExchange measures one small request through the engine over real sockets. Client
// and upstream run in the same process and allocate nothing, so the allocations are the engine's.
// The time includes client and upstream.
func BenchmarkExchange(b *testing.B) {
	addr := upstreamtest.ServeConstant(b, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sat, 21 Nov 2026 16:00:00 GMT\r\nServer: test\r\nContent-Length: 381\r\n\r\n"+strings.Repeat("x", 381))
	g := start(b, setup{upstream: "http://" + addr, limit: "1000000000/s"})
	g.sink.discard = true
	request := []byte("GET /a/b?c=d HTTP/1.1\r\nHost: api.test\r\nUser-Agent: bench\r\nAccept: */*\r\nAuthorization: Bearer " + g.key + "\r\n\r\n")
	proctest.BenchmarkExchanges(b, g.addr, request, 381)
}

// BenchmarkRecord measures what the access record adds to a request: the record is filled and
// emitted while the sink takes batches.
func BenchmarkRecord(b *testing.B) {
	g := start(b, setup{upstream: "http://127.0.0.1:9", limit: "1000000000/s"})
	g.sink.discard = true
	c := newConn(g.engine, &net.TCPConn{}, ConnInfo{Client: netip.MustParseAddrPort("192.0.2.1:1")})
	x := g.engine.exchange(c)
	x.ask = admit.Request{Method: "GET", Target: "/a/b?c=d", Host: "api.test", Authorization: "Bearer " + g.key, Authorizations: 1}
	g.engine.cfg.Admit.Decide(&x.ask, &x.Verdict)
	if x.Verdict.Action != admit.Forward {
		b.Fatal(x.Verdict.Code)
	}
	verdict := x.Verdict
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		x.Exchange = proxy.Exchange{Client: c.client, Verdict: verdict, Method: "GET"}
		x.Begin(&g.engine.cfg.Config, x.Verdict.Now)
		x.MarkResponse(nil, &http1.Response{Status: 200})
		x.Emit(x.endOf(accesslog.Forwarded, 200, 0))
		if n%2000 == 0 {
			g.records()
		}
	}
}
