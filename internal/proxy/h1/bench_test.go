package h1

import (
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/gateway"
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

// BenchmarkHeaderRules compares the exchanges of BenchmarkExchange on gateways without rules for headers, with one rule, and with 24 of
// all kinds: groups of 64 exchanges in turn, so that other work of the machine slows all. It reports the processor time of the tenth
// percentile of each kind of group, with client and upstream, and the allocations.
func BenchmarkHeaderRules(b *testing.B) {
	addr := upstreamtest.ServeConstant(b, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sat, 21 Nov 2026 16:00:00 GMT\r\nServer: test\r\nX-Powered-By: test\r\nContent-Length: 381\r\n\r\n"+strings.Repeat("x", 381))
	many := [2]*gateway.HeaderRules{
		{Set: map[string]string{"X-A": "a", "X-B": "b", "X-C": "c", "X-D": "d", "X-Real-IP": "${client_ip}", "X-Key": "${key_id}"}, Remove: []string{"X-E", "X-F", "X-G", "X-H", "X-I", "X-Debug"}},
		{Set: map[string]string{"X-K": "k", "X-L": "l", "X-M": "m", "X-N": "n", "X-Request": "${request_id}", "X-Gateway": "${gateway_id}"}, Remove: []string{"X-O", "X-P", "X-Q", "X-R", "Server", "X-Powered-By"}},
	}
	kinds := []struct {
		name    string
		edits   [2]*gateway.HeaderRules
		conn    net.Conn
		request []byte
		took    []time.Duration
		allocs  uint64
	}{{name: "none"}, {name: "one", edits: [2]*gateway.HeaderRules{{Set: map[string]string{"X-A": "a"}}}}, {name: "24", edits: many}}
	for i := range kinds {
		k := &kinds[i]
		g := start(b, setup{upstream: "http://" + addr, limit: "1000000000/s", edits: k.edits})
		g.sink.discard = true
		k.request = []byte("GET /a/b?c=d HTTP/1.1\r\nHost: api.test\r\nUser-Agent: bench\r\nAccept: */*\r\nX-Debug: 1\r\nAuthorization: Bearer " + g.key + "\r\n\r\n")
		conn, err := net.Dial("tcp", g.addr)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		k.conn = conn
	}
	const group = 64
	buf := make([]byte, 4096)
	var memory runtime.MemStats
	groups := 0
	for b.Loop() {
		for i := range kinds {
			k := &kinds[i]
			runtime.ReadMemStats(&memory)
			allocs, before := memory.Mallocs, proctest.CPUTime(b)
			for range group {
				if _, err := k.conn.Write(k.request); err != nil {
					b.Fatal(err)
				}
				if n, err := k.conn.Read(buf); err != nil || n < 381 || string(buf[9:12]) != "200" {
					b.Fatalf("%s: got response %q, error %v; want a whole 200", k.name, buf[:n], err)
				}
			}
			k.took = append(k.took, proctest.CPUTime(b)-before)
			runtime.ReadMemStats(&memory)
			k.allocs += memory.Mallocs - allocs
		}
		groups++
	}
	for i := range kinds {
		k := &kinds[i]
		slices.Sort(k.took)
		b.ReportMetric(float64(k.took[len(k.took)/10])/group, k.name+"-cpu-ns")
		b.ReportMetric(float64(k.allocs)/float64(groups*group), k.name+"-allocs")
	}
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
