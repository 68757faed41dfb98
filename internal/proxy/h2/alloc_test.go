package h2

import (
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/keygatetest/cputest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// requester sends one request after another on a connection, with bytes that were made once:
// of each request only the identifier of its stream changes.
type requester struct {
	t      testing.TB
	conn   net.Conn
	later  []byte
	stream uint32
	buf    []byte
}

// newRequester starts an engine in front of an upstream of that scheme that allocates nothing.
func newRequester(t testing.TB, scheme string) *requester {
	t.Helper()
	body, addr := strings.Repeat("x", 381), ""
	switch scheme {
	case "http":
		addr = upstreamtest.ServeConstant(t, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sat, 21 Nov 2026 16:00:00 GMT\r\nServer: test\r\nContent-Length: 381\r\n\r\n"+body)
	case "h2c":
		addr = upstreamtest.ServeConstantHTTP2(t, "\x88\x0f\x10\x10application/json", body, "")
	}
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	gateway := &snapshot.Gateway{ID: "gw_1", Upstream: snapshot.Upstream{Base: &url.URL{Scheme: scheme, Host: addr, Path: "/x"}, Timeout: time.Minute}}
	l := serve(t, Config{Config: proxy.Config{Admit: forwarder{gateway}, Pools: pools}, Forward: notCalled})
	_, conn := dial(t, l)
	r := &requester{t: t, conn: conn, stream: 1, buf: make([]byte, 16<<10)}
	// :method GET, :scheme https, :path /, :authority and accept with indexing
	block := "\x82\x87\x84\x41\x08api.test\x53\x03*/*"
	first := append([]byte{0, 0, byte(len(block)), byte(http2.FrameHeaders), 5, 0, 0, 0, 1}, block...)
	r.send(first)
	block = "\x82\x87\x84\xbf\xbe"
	r.later = append([]byte{0, 0, byte(len(block)), byte(http2.FrameHeaders), 5, 0, 0, 0, 0}, block...)
	return r
}

// next sends the next request and reads its response.
func (r *requester) next() {
	r.stream += 2
	r.later[5], r.later[6], r.later[7], r.later[8] = byte(r.stream>>24), byte(r.stream>>16), byte(r.stream>>8), byte(r.stream)
	r.send(r.later)
	if r.stream%64 == 1 { // what the client has read
		_, _ = r.conn.Write([]byte{0, 0, 4, byte(http2.FrameWindowUpdate), 0, 0, 0, 0, 0, 0, 0, 0x80, 0})
	}
}

// send sends a request and reads until its stream has ended.
func (r *requester) send(b []byte) {
	if _, err := r.conn.Write(b); err != nil {
		r.t.Fatal(err)
	}
	for {
		if _, err := io.ReadFull(r.conn, r.buf[:9]); err != nil {
			r.t.Fatal(err)
		}
		kind, flags, length := r.buf[3], r.buf[4], int(r.buf[1])<<8|int(r.buf[2])
		if _, err := io.ReadFull(r.conn, r.buf[:length]); err != nil {
			r.t.Fatal(err)
		}
		if http2.FrameType(kind) == http2.FrameData && flags&1 != 0 {
			if length != 381 {
				r.t.Fatalf("got %d bytes of data, want 381", length)
			}
			return
		}
	}
}

// Guarantee: a request over a connection that has served others allocates at most once, over
// either version of HTTP to the upstream.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("not measured: the race detector makes sync.Pool drop objects at random; make test-memory measures it")
		return
	}
	for _, scheme := range []string{"http", "h2c"} {
		r := newRequester(t, scheme)
		for range 200 {
			r.next()
		}
		if n := testing.AllocsPerRun(2000, r.next); n > 1 {
			t.Errorf("%s: got %v allocations per request, want at most 1", scheme, n)
		}
	}
}

// BenchmarkRequest measures one small request after another over a cleartext connection, with an
// upstream of either version of HTTP. Client and upstream run in the same process and allocate
// nothing; the time is that of all three.
func BenchmarkRequest(b *testing.B) {
	for _, scheme := range []string{"http", "h2c"} {
		b.Run(scheme, func(b *testing.B) {
			r := newRequester(b, scheme)
			b.ReportAllocs()
			before := cputest.Used(b)
			for b.Loop() {
				r.next()
			}
			b.ReportMetric(float64(cputest.Used(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
