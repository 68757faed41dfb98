package nethttp_test

import (
	"bytes"
	"context"
	"encoding/pem"
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

// h2cClient speaks HTTP/2 in clear with prior knowledge.
func h2cClient(t testing.TB) *http.Transport {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// h2cUpstream serves HTTP/2 in clear alone.
func h2cUpstream(t testing.TB, handler http.HandlerFunc) string {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = &p
	s.Start()
	t.Cleanup(s.Close)
	return "h2c://" + s.Listener.Addr().String()
}

// tlsUpstream offers HTTP/2 and, over HTTP/1.1, the upgrade of switching.
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

// A client of HTTP/2 in clear gets what one of HTTP/1.1 gets.
func TestH2CIn(t *testing.T) {
	addr, heads := recorder(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-RateLimit-Limit: 0\r\n\r\nok")
	e := start(t, setup{upstream: "http://" + addr})
	resp, body := e.do(h2cClient(t), "GET", "/a%2dB?q=%41", nil, "X-Keygate-Key-Id", "key_0", "Te", "trailers")
	if resp.ProtoMajor != 2 || resp.StatusCode != 200 || body != "ok" || resp.Header.Get("X-RateLimit-Limit") == "0" || !strings.HasPrefix(resp.Header.Get("X-Request-Id"), "req_") {
		t.Errorf("%+v %q", resp, body)
	}
	got := within(t, "the request", heads)
	if got.line != "GET /a%2dB?q=%41 HTTP/1.1" || got.get("via") != "2.0 keygate" || got.get("te") != "trailers" || got.get("x-forwarded-host") != e.addr || got.get("x-keygate-key-id") == "key_0" {
		t.Errorf("arrived as\n%s", got.text)
	}
	resp, body = e.do(h2cClient(t), "POST", "/a", strings.NewReader(strings.Repeat("x", 200_000)), "Authorization", "twice")
	if resp.StatusCode < 400 || resp.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, resp.Header.Get("X-Request-Id")) {
		t.Errorf("refusal: %+v %q", resp, body)
	}
}

// A gRPC call streams both ways over HTTP/2 on both sides, its trailers behind.
func TestStreamH2C(t *testing.T) {
	e := start(t, setup{upstream: h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" || r.Header.Get("Content-Type") != "application/grpc" {
			t.Errorf("arrived as %s %v", r.Proto, r.Header)
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
	})})
	pr, pw := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+e.addr+"/a.Service/Call", pr)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + e.key}, "Te": {"trailers"}, "Content-Type": {"application/grpc"}}
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
			t.Fatalf("got %q, %v", got, err)
		}
	}
	req.Trailer.Set("X-Digest", "d")
	_ = pw.Close()
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
		t.Errorf("the end is %q, %v", rest, err)
	}
	if resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("X-Digest") != "d" {
		t.Errorf("trailers %v", resp.Trailer)
	}
}

// A gRPC answer that is trailers alone stays one frame that ends the stream:
// clients read another shape as a broken call.
func TestTrailersOnly(t *testing.T) {
	e := start(t, setup{upstream: h2cUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "12")
	})})
	head := e.stream([][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/a.Service/Call"},
		{"authorization", "Bearer " + e.key}, {"te", "trailers"}, {"content-type", "application/grpc"}}, []byte("\x00\x00\x00\x00\x00"))
	fields := map[string]string{}
	for _, f := range head.Fields {
		fields[f.Name] = f.Value
	}
	if !head.StreamEnded() || fields["grpc-status"] != "12" || fields["x-ratelimit-limit"] == "" {
		t.Errorf("stream ended %v, fields %v", head.StreamEnded(), fields)
	}
}

// stream sends one request of HTTP/2 with the fields as they are and returns the
// head of the answer.
func (e *edge) stream(fields [][2]string, body []byte) *http2.MetaHeadersFrame {
	e.t.Helper()
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = framer.WriteSettings()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range fields {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = framer.WriteData(1, true, body)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			e.t.Fatal(err)
		}
		if head, ok := frame.(*http2.MetaHeadersFrame); ok {
			return head
		}
	}
}

// Clients that reset their streams while interim answers go out harm nobody but
// themselves.
func TestResetWithinInterim(t *testing.T) {
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			if _, err := c.ReadHead(); err != nil {
				return
			}
			c.Send(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-A: b\r\nX-C: d\r\n\r\n", 3) + empty)
		}
	})
	e := start(t, setup{upstream: "http://" + addr})
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = framer.WriteSettings()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for n := range uint32(400) {
		block.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/a"}, {"authorization", "Bearer " + e.key}} {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		id := 2*n + 1
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		for { // until the first interim answer
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

// An upstream of HTTP/2 in clear never gets an upgrade.
func TestNoUpgradeToH2C(t *testing.T) {
	e := start(t, setup{upstream: h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "upgrade "+r.Header.Get("Upgrade"))
	})})
	c := e.dial()
	c.request(e, "GET /a HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket")
	if h := c.head(); h.status() != "200" {
		t.Errorf("answer\n%s", h.text)
	}
}

// A broken body resets the stream, and leaves the connection's others alone.
func TestBrokenStream(t *testing.T) {
	addr, _ := recorder(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk("part")+"zz\r\n")
	e := start(t, setup{upstream: "http://" + addr})
	tr := h2cClient(t)
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+e.addr+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+e.key)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != "part" || err == nil {
			t.Errorf("%q, %v: the broken body ended cleanly", body, err)
		}
	}
}

// A drain lets a stream of HTTP/2 end.
func TestDrainH2C(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	e := start(t, setup{upstream: h2cUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-answer
		_, _ = io.WriteString(w, "done")
	})})
	bodies := make(chan string, 1)
	go func() {
		_, body := e.do(h2cClient(t), "GET", "/a", nil)
		bodies <- body
	}()
	within(t, "the request", arrived)
	done := make(chan error, 1)
	go func() { done <- e.server.Shutdown(context.Background()) }()
	close(answer)
	if got := within(t, "the answer", bodies); got != "done" {
		t.Errorf("got %q", got)
	}
	if err := within(t, "the drain", done); err != nil {
		t.Error(err)
	}
}

// A refusal over HTTP/2 is out before the request's body is, and its stream
// ends properly after a small body: curl drops an answer behind which its stream
// is reset.
func TestRefusalOfABody(t *testing.T) {
	e := start(t, setup{upstream: "http://127.0.0.1:1"})
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = framer.WriteSettings()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/a"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	var status, body string
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("after status %q and body %q: %v", status, body, err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			status = f.PseudoValue("status")
		case *http2.DataFrame:
			if body == "" { // the answer is here; now the request's body comes
				_ = framer.WriteData(1, true, []byte("0123456789"))
			}
			body += string(f.Data())
			if f.StreamEnded() {
				_ = framer.WritePing(false, [8]byte{}) // what follows the end comes before the answer to this
			}
		case *http2.PingFrame:
			if status != "401" || !strings.Contains(body, `"key_invalid"`) {
				t.Errorf("status %s, body %s", status, body)
			}
			return
		case *http2.RSTStreamFrame:
			t.Fatalf("after status %q and body %q the stream was reset: %v", status, body, f.ErrCode)
		}
	}
}
