package enginetest_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// webSocket sends an extended CONNECT for a protocol on stream 1 of a new connection, followed
// at once by data.
func (g *harness) webSocket(protocol, data string, more ...[2]string) *framer {
	g.t.Helper()
	f := g.dialHTTP2()
	fields := [][2]string{
		{":method", "CONNECT"}, {":protocol", protocol}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/chat?q=1"},
		{"sec-websocket-version", "13"}, {"origin", "http://page.test"},
	}
	if g.key != "" {
		fields = append(fields, [2]string{"authorization", "Bearer " + g.key})
	}
	f.request(1, false, append(fields, more...))
	if data != "" {
		_ = f.WriteData(1, false, []byte(data))
	}
	return f
}

// answer reads frames up to the head of a final response, and returns its fields.
func (f *framer) answer(t *testing.T) map[string]string {
	t.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		head, ok := frame.(*http2.MetaHeadersFrame)
		if !ok {
			continue
		}
		fields := map[string]string{}
		for _, field := range head.Fields {
			fields[field.Name] = field.Value
		}
		return fields
	}
}

// data reads n bytes of the stream.
func (f *framer) data(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	for b.Len() < n {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := frame.(*http2.DataFrame); ok {
			b.Write(d.Data())
		}
	}
	return b.String()
}

// ends reads to the end of the stream, or its reset. It reports which.
func (f *framer) ends(t *testing.T) (reset bool) {
	t.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case frame.Header().Type == http2.FrameRSTStream:
			return true
		case frame.Header().Type == http2.FrameData && frame.Header().Flags.Has(http2.FlagDataEndStream):
			return false
		}
	}
}

// acceptOf is the Sec-WebSocket-Accept for a key (RFC 6455, 4.2.2).
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

const switched101 = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"

// Guarantee: contract 4.5: an extended CONNECT for a WebSocket is admitted like a GET, and becomes an
// upgrade for an HTTP/1.1 upstream. Bytes pass both ways once the upstream has accepted, and the end
// of either side reaches the other.
func TestWebSocketOverHTTP2(t *testing.T) {
	t.Parallel()
	heads, ended := make(chan head, 1), make(chan error, 1)
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		text, err := c.ReadHead()
		if err != nil {
			return
		}
		h := parse(text)
		heads <- h
		c.Send(switched101 + "Sec-WebSocket-Accept: " + acceptOf(h.get("sec-websocket-key")) + "\r\nSec-WebSocket-Protocol: chat\r\n\r\nhello")
		_, err = io.Copy(c.Conn, c)
		ended <- err
	})
	g := start(t, setup{upstream: "http://" + addr, maxBody: 10})
	f := g.webSocket("websocket", strings.Repeat("early", 100), [2]string{"sec-websocket-key", "mine"}, [2]string{"sec-websocket-protocol", "chat"})
	h := receive(t, "the request", heads)
	if h.line != "GET /chat?q=1 HTTP/1.1" || strings.Contains(h.get("sec-websocket-key"), "mine") {
		t.Errorf("the upstream received %q with key %q", h.line, h.get("sec-websocket-key"))
	}
	h.wantFields(t, map[string]string{
		"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-protocol": "chat", "x-keygate-key-id": keyID,
		"content-length": "", "transfer-encoding": "",
	})
	got := f.answer(t)
	if got[":status"] != "200" || got["sec-websocket-protocol"] != "chat" || got["sec-websocket-accept"]+got["upgrade"]+got["connection"]+got["content-length"] != "" {
		t.Errorf("got the response %v, want 200 without fields of HTTP/1.1", got)
	}
	if body := f.data(t, 505); body != "hello"+strings.Repeat("early", 100) {
		t.Errorf("got %q", body)
	}
	_ = f.WriteData(1, false, []byte("ping"))
	if body := f.data(t, 4); body != "ping" {
		t.Errorf("got %q, want the echo", body)
	}
	_ = f.WriteData(1, true, nil)
	if err := receive(t, "the end at the upstream", ended); err != nil {
		t.Errorf("the upstream got %v, want the end of the client's side", err)
	}
	if f.ends(t) {
		t.Error("got a reset, want the end of the stream")
	}
	for _, r := range g.records() {
		if r.Part != accesslog.Started && r.Status != http.StatusOK {
			t.Errorf("got a record with status %d", r.Status)
		}
	}
}

// Guarantee: when a client resets the stream of a WebSocket, the WebSocket ends at the upstream.
func TestWebSocketResetEndsUpstream(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		text, err := c.ReadHead()
		if err != nil {
			return
		}
		c.Send(switched101 + "Sec-WebSocket-Accept: " + acceptOf(parse(text).get("sec-websocket-key")) + "\r\n\r\n")
		_, err = io.Copy(io.Discard, c)
		ended <- err
	})
	g := start(t, setup{upstream: "http://" + addr})
	f := g.webSocket("websocket", "")
	if got := f.answer(t); got[":status"] != "200" {
		t.Fatalf("got %v", got)
	}
	_ = f.WriteRSTStream(1, http2.ErrCodeCancel)
	receive(t, "the end at the upstream", ended)
}

// Guarantee: no response of an upstream that has not accepted a WebSocket looks like an acceptance,
// and a refusal reaches the client unchanged.
func TestWebSocketNotAccepted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ response, want string }{
		"200":            {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", "502"},
		"204":            {"HTTP/1.1 204 No Content\r\n\r\n", "502"},
		"403":            {"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "403"},
		"wrong accept":   {switched101 + "Sec-WebSocket-Accept: eA==\r\n\r\n", "502"},
		"no accept":      {switched101 + "\r\n", "502"},
		"other protocol": {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n", "502"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := upstreamtest.Serve(t, func(conn *upstreamtest.Conn) {
				if _, err := conn.ReadHead(); err == nil {
					conn.Send(c.response)
				}
			})
			g := start(t, setup{upstream: "http://" + addr})
			f := g.webSocket("websocket", "early")
			if got := f.answer(t); got[":status"] != c.want {
				t.Errorf("got %s, want %s", got[":status"], c.want)
			}
			f.ends(t)
		})
	}
}

// Guarantee: contract 4.5: an extended CONNECT for another protocol is a 501, an extended CONNECT
// without a key is refused like a GET, and a plain CONNECT is a 405.
func TestExtendedConnectRefusals(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	if got := g.webSocket("connect-udp", "").answer(t); got[":status"] != "501" || got["content-type"] != "application/json" {
		t.Errorf("another protocol: got %v, want 501", got)
	}
	if got := g.webSocket("WebSocket", "").answer(t); got[":status"] != "501" {
		t.Errorf("a protocol in other letters: got %v, want 501", got)
	}
	f := g.dialHTTP2()
	f.request(1, false, [][2]string{{":method", "CONNECT"}, {":authority", "api.test:443"}})
	if got := f.answer(t); got[":status"] != "405" {
		t.Errorf("CONNECT: got %v, want 405", got)
	}
	g.key = "kg_wrong"
	if got := g.webSocket("websocket", "x").answer(t); got[":status"] != "401" {
		t.Errorf("a wrong key: got %v, want 401", got)
	}
	wantNone(t, heads)
}

// Guarantee: a WebSocket becomes an extended CONNECT to an HTTP/2 upstream that supports it, and a
// 502 if the upstream does not.
func TestWebSocketToHTTP2(t *testing.T) {
	t.Parallel()
	for _, takes := range []bool{true, false} {
		methods := make(chan map[string]string, 1)
		addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			var settings []http2.Setting
			if takes {
				settings = []http2.Setting{{ID: http2.SettingEnableConnectProtocol, Val: 1}}
			}
			s, ok := accept(c, settings...)
			if !ok {
				return
			}
			for {
				frame, err := s.ReadFrame()
				if err != nil {
					return
				}
				switch f := frame.(type) {
				case *http2.MetaHeadersFrame:
					fields := map[string]string{}
					for _, field := range f.Fields {
						fields[field.Name] = field.Value
					}
					methods <- fields
					s.head(f.StreamID, false, ":status", "200")
				case *http2.DataFrame:
					_ = s.WriteData(f.StreamID, f.StreamEnded(), f.Data())
				}
			}
		})
		g := start(t, setup{upstream: "h2c://" + addr})
		f := g.webSocket("websocket", "early")
		got := f.answer(t)
		if !takes {
			if got[":status"] != "502" {
				t.Errorf("got %v from an upstream without extended CONNECT, want 502", got)
			}
			continue
		}
		asked := receive(t, "the request", methods)
		if asked[":method"] != "CONNECT" || asked[":protocol"] != "websocket" || asked[":path"] != "/chat?q=1" || asked["upgrade"] != "" || asked["sec-websocket-version"] != "13" {
			t.Errorf("the upstream received %v", asked)
		}
		if body := f.data(t, 5); got[":status"] != "200" || body != "early" {
			t.Errorf("got %v and %q, want 200 and the echo", got, body)
		}
		_ = f.WriteData(1, true, []byte("last"))
		if body := f.data(t, 4); body != "last" {
			t.Errorf("got %q, want the echo", body)
		}
	}
}

// Guarantee: a WebSocket of an HTTP/2 client reaches an upstream over TLS that supports WebSocket
// only over HTTP/1.1, whether or not it speaks HTTP/2 otherwise; a refusal reaches the client.
func TestWebSocketOverTLS(t *testing.T) {
	t.Parallel()
	for _, isHTTP2 := range []bool{false, true} {
		ended := make(chan error, 1)
		url, ca := tlsUpstreamOf(t, isHTTP2, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Refuse") != "" || r.Header.Get("Upgrade") != "websocket" {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, switched101+"Sec-WebSocket-Accept: "+acceptOf(r.Header.Get("Sec-WebSocket-Key"))+"\r\n\r\nhello")
			_, err = io.Copy(conn, buffered)
			ended <- err
		})
		g := start(t, setup{upstream: url, ca: ca})
		for range 2 { // the second time the gateway knows what the upstream speaks
			f := g.webSocket("websocket", "early")
			if got := f.answer(t); got[":status"] != "200" || got["sec-websocket-accept"] != "" {
				t.Fatalf("HTTP/2 %v: got %v, want 200", isHTTP2, got)
			}
			if body := f.data(t, 10); body != "helloearly" {
				t.Errorf("HTTP/2 %v: got %q", isHTTP2, body)
			}
			_ = f.WriteData(1, true, []byte("last"))
			if body := f.data(t, 4); body != "last" {
				t.Errorf("HTTP/2 %v: got %q, want the echo", isHTTP2, body)
			}
			if err := receive(t, "the end at the upstream", ended); err != nil {
				t.Errorf("HTTP/2 %v: the upstream got %v", isHTTP2, err)
			}
			if f.ends(t) {
				t.Errorf("HTTP/2 %v: got a reset, want the end of the stream", isHTTP2)
			}
			if got := g.webSocket("websocket", "early", [2]string{"x-refuse", "1"}).answer(t); got[":status"] != "403" {
				t.Errorf("HTTP/2 %v: got %v, want the upstream's 403", isHTTP2, got)
			}
		}
	}
}
