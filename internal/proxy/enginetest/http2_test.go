package enginetest_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// h2cClient returns a client that speaks HTTP/2 without TLS, by prior knowledge.
func h2cClient(t testing.TB) *http.Transport {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// h2cUpstream starts an upstream that speaks only HTTP/2, without TLS, and returns its URL.
func h2cUpstream(t testing.TB, handler http.HandlerFunc) string {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = &p
	s.Start()
	t.Cleanup(s.Close)
	return "h2c://" + s.Listener.Addr().String()
}

// tlsUpstream starts a TLS upstream that supports HTTP/2 and, over HTTP/1.1, the upgrade of
// switching. To other requests it responds with their protocol.
func tlsUpstream(t testing.TB) (addr, ca string) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo/1" {
			_, _ = io.WriteString(w, r.Proto)
			return
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo/1")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		echo(conn, buffered.Reader)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// Guarantee: a request over HTTP/2 without TLS gets the same treatment as over HTTP/1.1, in both
// directions.
func TestPriorKnowledgeRequest(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-RateLimit-Limit: 0\r\n\r\nok")
	g := start(t, setup{upstream: "http://" + addr})
	resp, body := g.do(h2cClient(t), "GET", "/a%2dB?q=%41", nil, "X-Keygate-Key-Id", "key_0", "Te", "trailers")
	if resp.ProtoMajor != 2 || resp.StatusCode != 200 || body != "ok" {
		t.Errorf("got %s %s with body %q, want HTTP/2, 200 and %q", resp.Proto, resp.Status, body, "ok")
	}
	if limit := resp.Header.Get("X-RateLimit-Limit"); limit == "0" {
		t.Errorf("got the upstream's X-RateLimit-Limit %q, want the gateway's", limit)
	}
	if id := resp.Header.Get("X-Request-Id"); !strings.HasPrefix(id, "req_") {
		t.Errorf("got X-Request-Id %q, want an identifier", id)
	}
	got := receive(t, "the request", heads)
	if got.line != "GET /a%2dB?q=%41 HTTP/1.1" {
		t.Errorf("the upstream received %q, want the target unchanged", got.line)
	}
	got.wantFields(t, map[string]string{"via": "2.0 keygate", "te": "trailers", "x-forwarded-host": g.addr, "x-keygate-key-id": keyID})
}

// Guarantee: a request over HTTP/2 that is refused gets the error body even if it has a
// large body of its own.
func TestPriorKnowledgeRefusal(t *testing.T) {
	t.Parallel()
	addr, _ := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	resp, body := g.do(h2cClient(t), "POST", "/a", strings.NewReader(strings.Repeat("x", 200_000)), "Authorization", "twice")
	if resp.StatusCode < 400 || resp.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, resp.Header.Get("X-Request-Id")) {
		t.Errorf("got %+v with body %q, want an error response in JSON with its request identifier", resp, body)
	}
}

// grpcEcho is the handler of an upstream that sends back the request's body as it
// arrives, and ends with trailers as gRPC does.
func grpcEcho(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" || r.Header.Get("Content-Type") != "application/grpc" {
			t.Errorf("the upstream received %s %v, want HTTP/2, TE: trailers and Content-Type: application/grpc", r.Proto, r.Header)
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		buf := make([]byte, 100)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				break
			}
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		w.Header().Set(http.TrailerPrefix+"X-Digest", r.Trailer.Get("X-Digest"))
	}
}

// Guarantee: a gRPC call streams in both directions, over HTTP/2 on both sides, and the
// trailers of both follow.
func TestGRPCStream(t *testing.T) {
	t.Parallel()
	g := start(t, setup{upstream: h2cUpstream(t, grpcEcho(t))})
	pr, pw := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.addr+"/a.Service/Call", pr)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + g.key}, "Te": {"trailers"}, "Content-Type": {"application/grpc"}}
	req.Trailer = http.Header{"X-Digest": nil}
	resp, err := h2cClient(t).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for _, s := range []string{"one", "three"} {
		_, _ = io.WriteString(pw, s)
		got := make([]byte, len(s))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != s {
			t.Fatalf("got %q, error %v; want %q", got, err, s)
		}
	}
	req.Trailer.Set("X-Digest", "d")
	_ = pw.Close()
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
		t.Errorf("got the rest %q, error %v; want the end of the body", rest, err)
	}
	if resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("X-Digest") != "d" {
		t.Errorf("got trailers %v, want Grpc-Status: 0 and X-Digest: d", resp.Trailer)
	}
}

// Guarantee: a gRPC response without a body (Trailers-Only) stays a single HEADERS frame
// that ends the stream. Clients treat any other form as a failed call.
func TestTrailersOnlyStaysOneFrame(t *testing.T) {
	t.Parallel()
	g := start(t, setup{upstream: h2cUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "12")
	})})
	head := g.stream([][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/a.Service/Call"},
		{"authorization", "Bearer " + g.key}, {"te", "trailers"}, {"content-type", "application/grpc"}}, []byte("\x00\x00\x00\x00\x00"))
	fields := map[string]string{}
	for _, f := range head.Fields {
		fields[f.Name] = f.Value
	}
	if !head.StreamEnded() || fields["grpc-status"] != "12" || fields["x-ratelimit-limit"] == "" {
		t.Errorf("got stream ended %v, fields %v; want the end, grpc-status 12 and rate limit fields", head.StreamEnded(), fields)
	}
}

// framer is an HTTP/2 connection over which a test sends the frames itself.
type framer struct {
	*http2.Framer
	conn  net.Conn
	block bytes.Buffer // the output of enc
	enc   *hpack.Encoder
}

func (g *harness) dialHTTP2() *framer {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	return newFramer(conn)
}

// newFramer begins an HTTP/2 connection of a client.
func newFramer(conn net.Conn) *framer {
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	_, _ = io.WriteString(conn, http2.ClientPreface)
	f := &framer{Framer: http2.NewFramer(conn, conn), conn: conn}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.enc = hpack.NewEncoder(&f.block)
	_ = f.WriteSettings()
	return f
}

// request sends a HEADERS frame with the given names and values.
func (f *framer) request(stream uint32, end bool, fields [][2]string) {
	f.block.Reset()
	for _, field := range fields {
		_ = f.enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.block.Bytes(), EndHeaders: true, EndStream: end})
}

// stream sends one HTTP/2 request with the fields as given and returns the head of the
// response.
func (g *harness) stream(fields [][2]string, body []byte) *http2.MetaHeadersFrame {
	g.t.Helper()
	framer := g.dialHTTP2()
	framer.request(1, false, fields)
	_ = framer.WriteData(1, true, body)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			g.t.Fatal(err)
		}
		if head, ok := frame.(*http2.MetaHeadersFrame); ok {
			return head
		}
	}
}

// Guarantee: interim responses that an HTTP/2 client does not read hold up their upstreams, so that they take little
// memory, however many an upstream sends.
func TestInterimResponsesThatAreNotRead(t *testing.T) {
	t.Parallel()
	const streams, most = 3, 24 << 20
	results := make(chan int, streams)
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		for n, sent := 0, 0; ; n++ {
			// Each has another name and value, which compression does not shorten.
			head := fmt.Sprintf("HTTP/1.1 103 Early Hints\r\nX-%d: %s\r\n\r\n", n, strings.Repeat(string(rune('a'+n%26)), 8000))
			_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
			k, err := io.WriteString(c.Conn, head)
			if sent += k; err != nil || sent > most {
				results <- sent
				return
			}
		}
	})
	g := start(t, setup{upstream: "http://" + addr})
	framer := g.dialHTTP2()
	for n := range uint32(streams) {
		framer.request(2*n+1, true, [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/public/a"}})
	}
	for range streams {
		if sent := receive(t, "an upstream that is held up", results); sent > most {
			t.Errorf("the upstream could send %d bytes of interim responses, which the client has not read", sent)
		}
	}
}

// Guarantee: a client that resets its streams while interim responses are being written
// does no harm to the other streams of its connection.
func TestResetDuringInterimResponses(t *testing.T) {
	t.Parallel()
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			if _, err := c.ReadHead(); err != nil {
				return
			}
			c.Send(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-A: b\r\nX-C: d\r\n\r\n", 3) + empty)
		}
	})
	g := start(t, setup{upstream: "http://" + addr})
	framer := g.dialHTTP2()
	for n := range uint32(150) { // more would be too many resets
		id := 2*n + 1
		framer.request(id, true, [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/a"}, {"authorization", "Bearer " + g.key}})
		for { // until the first interim response
			frame, err := framer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if head, ok := frame.(*http2.MetaHeadersFrame); ok && head.StreamID == id {
				break
			}
		}
		_ = framer.WriteRSTStream(id, http2.ErrCodeCancel)
	}
}

// Guarantee: a request with an upgrade to an upstream that speaks only HTTP/2 is served
// without the upgrade.
func TestNoUpgradeToHTTP2Upstream(t *testing.T) {
	t.Parallel()
	g := start(t, setup{upstream: h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "upgrade "+r.Header.Get("Upgrade"))
	})})
	c := g.dial(t)
	c.request(g, "GET /a HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket")
	c.wantHead("200")
}

// Guarantee: over HTTP/2, a body that the upstream breaks off resets the stream; the
// connection serves further streams.
func TestBrokenBodyResetsStream(t *testing.T) {
	t.Parallel()
	addr, _ := recorder(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("part")+"zz\r\n")
	g := start(t, setup{upstream: "http://" + addr})
	tr := h2cClient(t)
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+g.addr+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+g.key)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != "part" || err == nil {
			t.Errorf("got body %q, error %v; want %q and an error", body, err, "part")
		}
	}
}

// Guarantee: a drain waits for a running HTTP/2 stream.
func TestDrainWaitsForStream(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	g := start(t, setup{upstream: h2cUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		_, _ = io.WriteString(w, "done")
	})})
	bodies := make(chan string, 1)
	go func() {
		_, body := g.do(h2cClient(t), "GET", "/a", nil)
		bodies <- body
	}()
	receive(t, "the request", arrived)
	done := g.shutdown()
	close(release)
	if got := receive(t, "the response", bodies); got != "done" {
		t.Errorf("got body %q, want %q", got, "done")
	}
	wantDrained(t, done)
}

// Guarantee: over HTTP/2, an error response is sent before the request's body has arrived,
// and after a small body the stream ends without a reset. curl discards a response that is
// followed by a reset.
func TestRefusalEndsStreamWithoutReset(t *testing.T) {
	t.Parallel()
	g := start(t, setup{upstream: "http://127.0.0.1:1"})
	framer := g.dialHTTP2()
	framer.request(1, false, [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/a"}})
	var status, body string
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("got status %q, body %q, then error %v; want the end of the stream", status, body, err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			status = f.PseudoValue("status")
		case *http2.DataFrame:
			if body == "" { // the response has arrived before the request's body is sent
				_ = framer.WriteData(1, true, []byte("0123456789"))
			}
			body += string(f.Data())
			if f.StreamEnded() {
				_ = framer.WritePing(false, [8]byte{}) // anything that follows the end arrives before the acknowledgement
			}
		case *http2.PingFrame:
			if status != "401" || !strings.Contains(body, `"key_invalid"`) {
				t.Errorf("got status %s, body %s; want 401 and code key_invalid", status, body)
			}
			return
		case *http2.RSTStreamFrame:
			t.Fatalf("got status %q, body %q, then a reset with %v; want no reset", status, body, f.ErrCode)
		}
	}
}
