package server_test

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
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

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// streamService serves exchanges that go on until they are cut: it sends "first", and then echoes
// what it receives. A WebSocket is a tunnel that does the same. It sends to ended when an exchange
// has ended.
func streamService(t *testing.T, kind string) (url string, ca *string, ended <-chan bool) {
	t.Helper()
	over := make(chan bool, 100)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { over <- true }()
		rc := http.NewResponseController(w)
		if key := r.Header.Get("Sec-Websocket-Key"); key != "" {
			conn, buffered, err := rc.Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\nfirst", acceptOf(key))
			_, _ = io.Copy(conn, buffered)
			return
		}
		_ = rc.EnableFullDuplex()
		_, _ = io.WriteString(w, "first")
		_ = rc.Flush()
		b := make([]byte, 100)
		for {
			n, err := r.Body.Read(b)
			_, _ = w.Write(b[:n])
			_ = rc.Flush()
			if err != nil {
				break
			}
		}
		<-r.Context().Done()
	}))
	s.EnableHTTP2 = kind == "https"
	switch kind {
	case "h2c":
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		url = "h2c" + strings.TrimPrefix(s.URL, "http")
	case "http":
		s.Start()
		url = s.URL
	default:
		s.StartTLS()
		url = s.URL
		root := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
		ca = &root
	}
	t.Cleanup(s.Close)
	return url, ca, over
}

// stream is an exchange through a gateway that goes on until it is cut.
type stream struct {
	t     *testing.T
	keyID string
	in    io.Writer // for an echo; nil if the request has no body
	out   io.Reader
	ended <-chan bool
}

// wantEcho checks that the stream goes on.
func (s *stream) wantEcho() {
	s.t.Helper()
	if _, err := io.WriteString(s.in, "again"); err != nil {
		s.t.Fatal(err)
	}
	s.want("again")
}

func (s *stream) want(text string) {
	s.t.Helper()
	b := make([]byte, len(text))
	if _, err := io.ReadFull(s.out, b); err != nil || string(b) != text {
		s.t.Fatalf("got %q, error %v; want %q", b, err, text)
	}
}

// wantCut waits until both sides of the stream have ended.
func (s *stream) wantCut() {
	s.t.Helper()
	if rest, err := io.ReadAll(s.out); len(rest) > 0 {
		s.t.Errorf("got %q and %v, want nothing more", rest, err)
	}
	<-s.ended
}

// streams opens streams through one server.
type streams struct {
	*keygatetest.Server
	opened int
}

// open opens a stream of a shape over a version of HTTP, to a service of a kind.
func (s *streams) open(t *testing.T, version, kind, shape string, cut bool) *stream {
	t.Helper()
	url, ca, ended := streamService(t, kind)
	s.opened++
	name := fmt.Sprintf("gateway%d.example", s.opened)
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: name, UpstreamURL: url, UpstreamCa: ca, Hostname: &name, CutStreams: &cut})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/*", Methods: []string{"GET", "POST"}}); err != nil {
		t.Fatal(err)
	}
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	x := &stream{t: t, keyID: k.KeyID, ended: ended}
	switch {
	case shape == "WebSocket" && version == "HTTP/2":
		x.in, x.out = s.webSocketOverHTTP2(t, name, k.Secret)
	case shape == "WebSocket":
		x.in, x.out = s.webSocket(t, name, k.Secret)
	default:
		x.in, x.out = s.exchange(t, version, name, k.Secret, shape)
	}
	x.want("first")
	return x
}

// exchange sends a request with a streamed body, or without one.
func (s *streams) exchange(t *testing.T, version, host, key, shape string) (io.Writer, io.Reader) {
	t.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	var in io.WriteCloser
	if shape != "events" {
		method = http.MethodPost
		r, w := io.Pipe()
		body, in = r, w
		t.Cleanup(func() { _ = w.Close() })
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.GatewayURL()+"/stream", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Authorization", "Bearer "+key)
	if shape == "gRPC" {
		r.Header.Set("Content-Type", "application/grpc")
	}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(version == "HTTP/1.1")
	transport.Protocols.SetUnencryptedHTTP2(version == "HTTP/2")
	t.Cleanup(transport.CloseIdleConnections)
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatalf("got status %d, want 200", res.StatusCode)
	}
	return in, res.Body
}

// webSocket opens a WebSocket over HTTP/1.1.
func (s *streams) webSocket(t *testing.T, host, key string) (io.Writer, io.Reader) {
	t.Helper()
	conn := s.dial(t)
	fmt.Fprintf(conn, "GET /chat HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", host, key)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v; want a 101", res, err)
	}
	return conn, r
}

func (s *streams) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.GatewayURL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// framed is the tunnel of an extended CONNECT on stream 1.
type framed struct {
	*http2.Framer
	t    *testing.T
	rest []byte
}

// webSocketOverHTTP2 opens a WebSocket by an extended CONNECT.
func (s *streams) webSocketOverHTTP2(t *testing.T, host, key string) (io.Writer, io.Reader) {
	t.Helper()
	conn := s.dial(t)
	_, _ = io.WriteString(conn, http2.ClientPreface)
	f := &framed{Framer: http2.NewFramer(conn, conn), t: t}
	_ = f.WriteSettings()
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	for _, field := range [][2]string{
		{":method", "CONNECT"}, {":protocol", "websocket"}, {":scheme", "http"}, {":authority", host}, {":path", "/chat"},
		{"sec-websocket-version", "13"}, {"authorization", "Bearer " + key},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	return f, f
}

func (f *framed) Write(b []byte) (int, error) { return len(b), f.WriteData(1, false, b) }

// Read reads from the tunnel. Its end must be a reset with CANCEL.
func (f *framed) Read(b []byte) (int, error) {
	for len(f.rest) == 0 {
		frame, err := f.ReadFrame()
		if err != nil {
			return 0, err
		}
		switch frame := frame.(type) {
		case *http2.DataFrame:
			f.rest = append(f.rest, frame.Data()...)
		case *http2.RSTStreamFrame:
			if frame.ErrCode != http2.ErrCodeCancel {
				f.t.Errorf("got RST_STREAM with %v, want CANCEL", frame.ErrCode)
			}
			return 0, io.EOF
		}
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// acceptOf is the Sec-WebSocket-Accept for a key (RFC 6455, 4.2.2).
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// streamPairs are the pairs of a client's version of HTTP and a kind of service, with the shapes that
// they support.
var streamPairs = []struct {
	version, kind string
	shapes        []string
}{
	{"HTTP/1.1", "http", []string{"events", "upload", "WebSocket"}},
	{"HTTP/1.1", "h2c", []string{"events", "upload"}},
	{"HTTP/1.1", "https", []string{"events", "upload"}},
	{"HTTP/1.1", "https over HTTP/1.1", []string{"events", "upload", "WebSocket"}},
	{"HTTP/2", "http", []string{"events", "upload", "WebSocket"}},
	{"HTTP/2", "h2c", []string{"events", "upload", "gRPC"}},
	{"HTTP/2", "https", []string{"events", "upload", "gRPC"}},
	{"HTTP/2", "https over HTTP/1.1", []string{"events", "upload", "WebSocket"}},
}

// Guarantee: contract 3.3, cut_streams: whatever the client and the service speak, a stream whose key
// is revoked ends on both sides, and the log of requests says why. With cut_streams: false it goes on.
func TestRevokedKeyCutsStreams(t *testing.T) {
	s := &streams{Server: keygatetest.Start(t)}
	for _, pair := range streamPairs {
		for _, shape := range pair.shapes {
			t.Run(pair.version+" "+pair.kind+" "+shape, func(t *testing.T) {
				kept := s.open(t, pair.version, pair.kind, shape, false)
				x := s.open(t, pair.version, pair.kind, shape, true)
				if x.in != nil {
					x.wantEcho()
				}
				for _, keyID := range []string{kept.keyID, x.keyID} {
					if _, err := s.Admin.RevokeKey(t.Context(), keyID); err != nil {
						t.Fatal(err)
					}
				}
				x.wantCut()
				s.wantReason(t, x.keyID, "key_revoked")
				// The kept stream was reviewed no later than a stream that was revoked after it.
				later := s.open(t, pair.version, pair.kind, shape, true)
				if _, err := s.Admin.RevokeKey(t.Context(), later.keyID); err != nil {
					t.Fatal(err)
				}
				later.wantCut()
				if len(kept.ended) > 0 {
					t.Error("the stream ended with cut_streams: false, want it to go on")
				} else if kept.in != nil {
					kept.wantEcho()
				}
			})
		}
	}
}

// wantReason waits until the log of requests has a request of the key, and checks its reason.
func (s *streams) wantReason(t *testing.T, keyID, reason string) {
	t.Helper()
	var got keygatetest.Response
	awaittest.True(t, "the log of requests has one of the key", func() bool {
		got = s.Call(http.MethodGet, "/v1/requests?key_id="+keyID, s.AdminKey, "")
		return strings.Contains(got.Body, `"request_id"`)
	})
	if !strings.Contains(got.Body, `"reason":"`+reason+`"`) {
		t.Fatalf("got %s, want the reason %s", got.Body, reason)
	}
}
