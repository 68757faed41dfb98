package h2

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/keygatetest/proctest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// requester sends one request after another on a connection, with bytes that are encoded once: only
// the identifier of the stream changes from request to request.
type requester struct {
	t      testing.TB
	conn   net.Conn
	later  []byte
	stream uint32
	buf    []byte
}

// shapes are the requests of a requester, by the scheme of the upstream; for a gRPC server it is a
// unary call.
var shapes = []string{"http", "h2c", "gRPC"}

// newRequester starts an engine in front of an upstream for requests of a shape that allocates
// nothing.
func newRequester(t testing.TB, shape string) *requester {
	t.Helper()
	body, addr, scheme := strings.Repeat("x", 381), "", "h2c"
	switch shape {
	case "http":
		scheme = "http"
		addr = upstreamtest.ServeConstant(t, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sat, 21 Nov 2026 16:00:00 GMT\r\nServer: test\r\nContent-Length: 381\r\n\r\n"+body)
	case "h2c":
		addr = upstreamtest.ServeConstantHTTP2(t, "\x88\x0f\x10\x10application/json", body, "")
	case "gRPC":
		addr = upstreamtest.ServeConstantHTTP2(t, "\x88\x0f\x10\x10application/grpc", body, "\x00\x0bgrpc-status\x010")
	}
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	gateway := &snapshot.Settings{ID: "gw_1", Upstream: &snapshot.Upstream{Targets: []*snapshot.Target{{Base: &url.URL{Scheme: scheme, Host: addr, Path: "/x"}}}, Timeout: time.Minute}}
	l := serve(t, Config{Config: proxy.Config{Admit: forwarder{gateway}, Pools: pools}})
	_, conn := dial(t, l)
	r := &requester{t: t, conn: conn, stream: 1, buf: make([]byte, 16<<10)}
	// :method GET, :scheme https, :path /, :authority and accept with indexing
	first, later, message := "\x82\x87\x84\x41\x08api.test\x53\x03*/*", "\x82\x87\x84\xbf\xbe", ""
	if shape == "gRPC" { // :method POST, and te and content-type with indexing
		first = "\x83\x87\x84\x41\x08api.test\x40\x02te\x08trailers\x5f\x10application/grpc"
		later, message = "\x83\x87\x84\xc0\xbf\xbe", strings.Repeat("m", 45)
	}
	r.send(frames(1, first, message))
	r.later = frames(0, later, message)
	return r
}

// frames returns the frames of a request, of which message is the body.
func frames(stream uint32, block, message string) []byte {
	if message == "" {
		return upstreamtest.AppendFrame(nil, byte(http2.FrameHeaders), 5, stream, block)
	}
	b := upstreamtest.AppendFrame(nil, byte(http2.FrameHeaders), 4, stream, block)
	return upstreamtest.AppendFrame(b, byte(http2.FrameData), 1, stream, message)
}

// next sends the next request and reads its response.
func (r *requester) next() {
	r.stream += 2
	for at := 0; at < len(r.later); at += 9 + int(r.later[at+2]) {
		binary.BigEndian.PutUint32(r.later[at+5:], r.stream)
	}
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
		isData := http2.FrameType(kind) == http2.FrameData
		if isData && length != 381 {
			r.t.Fatalf("got %d bytes of data, want 381", length)
		}
		if flags&1 != 0 && (isData || http2.FrameType(kind) == http2.FrameHeaders) {
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
	for _, shape := range shapes {
		r := newRequester(t, shape)
		for range 200 {
			r.next()
		}
		if n := testing.AllocsPerRun(2000, r.next); n > 1 {
			t.Errorf("%s: got %v allocations per request, want at most 1", shape, n)
		}
	}
}

// BenchmarkRequest measures one small request after another over a cleartext connection, with an
// upstream of either version of HTTP. Client and upstream run in the same process and allocate
// nothing; the time includes client and upstream.
func BenchmarkRequest(b *testing.B) {
	for _, shape := range shapes {
		b.Run(shape, func(b *testing.B) {
			r := newRequester(b, shape)
			b.ReportAllocs()
			before := proctest.CPUTime(b)
			for b.Loop() {
				r.next()
			}
			b.ReportMetric(float64(proctest.CPUTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
