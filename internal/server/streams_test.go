package server_test

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	t       *testing.T
	gateway string
	target  string // URL of the service
	keyID   string
	in      io.Writer // for an echo; nil if the request has no body
	out     io.Reader
	res     *http.Response // nil for a WebSocket
	ended   <-chan bool
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

// wantCut waits until both sides of the stream have ended. It returns the error that the client got.
func (s *stream) wantCut() error {
	s.t.Helper()
	rest, err := io.ReadAll(s.out)
	if len(rest) > 0 {
		s.t.Errorf("got %q and %v, want nothing more", rest, err)
	}
	<-s.ended
	return err
}

// streams opens streams through one server.
type streams struct {
	*keygatetest.Server
	opened int
}

// open opens a stream of a shape over a version of HTTP, to a service of a kind.
func (s *streams) open(t *testing.T, version, kind, shape string, cut bool) *stream {
	return s.openWith(t, version, kind, shape, client.CreateGatewayRequest{CutStreams: &cut})
}

// openWith is open with settings of the gateway. With a drain timeout, it gets a second target before the stream is opened, or, each
// other time, afterwards.
func (s *streams) openWith(t *testing.T, version, kind, shape string, settings client.CreateGatewayRequest) *stream {
	t.Helper()
	url, ca, ended := streamService(t, kind)
	s.opened++
	name := fmt.Sprintf("gateway%d.example", s.opened)
	settings.Name, settings.UpstreamURL, settings.UpstreamCa, settings.Hostname = name, url, ca, &name
	g, err := s.Admin.CreateGateway(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	addTarget := func() { // a second one, which gets no requests
		other := "/v1/gateways/" + g.GatewayID + "/upstreams/default/targets"
		if r := s.Call(http.MethodPost, other, s.AdminKey, fmt.Sprintf(`{"url":%q,"backup":true}`, url+"/backup")); r.Status != http.StatusCreated {
			t.Fatalf("adding a target: got %d %s", r.Status, r.Body)
		}
	}
	isDrained, addFirst := settings.DrainTimeout != nil, s.opened%2 == 0
	if isDrained && addFirst {
		addTarget()
	}
	if _, err := s.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/*", Methods: []string{"GET", "POST"}}); err != nil {
		t.Fatal(err)
	}
	k, err := s.Admin.CreateKey(t.Context(), client.CreateKeyRequest{Name: "k", Scope: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	x := &stream{t: t, gateway: g.GatewayID, target: url, keyID: k.KeyID, ended: ended}
	switch {
	case shape == "WebSocket" && version == "HTTP/2":
		x.in, x.out = s.webSocketOverHTTP2(t, name, k.Secret)
	case shape == "WebSocket":
		x.in, x.out = s.webSocket(t, name, k.Secret)
	default:
		x.in, x.res = s.exchange(t, version, name, k.Secret, shape)
		x.out = x.res.Body
	}
	x.want("first")
	if isDrained && !addFirst {
		addTarget()
	}
	return x
}

// exchange sends a request with a streamed body, or without one.
func (s *streams) exchange(t *testing.T, version, host, key, shape string) (io.Writer, *http.Response) {
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
	return in, res
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
				_ = x.wantCut()
				s.wantReason(t, x.keyID, "key_revoked")
				// The kept stream was reviewed no later than a stream that was revoked after it.
				later := s.open(t, pair.version, pair.kind, shape, true)
				if _, err := s.Admin.RevokeKey(t.Context(), later.keyID); err != nil {
					t.Fatal(err)
				}
				_ = later.wantCut()
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

// Guarantee: targets.md, 6: whatever the client and the service speak, what is still open at a target ends once it was drained or
// removed for drain_timeout, never as if it were whole: HTTP/2 by RST_STREAM CANCEL, gRPC by trailers with status 14, tunnels and
// HTTP/1.1 by closing. The log of requests says why. A target that gets requests again before that keeps what is open.
func TestTargetTakenAwayEndsStreams(t *testing.T) {
	s := &streams{Server: keygatetest.Start(t)}
	soon, late := "1s", "24h"
	for i, pair := range streamPairs {
		for _, shape := range pair.shapes {
			t.Run(pair.version+" "+pair.kind+" "+shape, func(t *testing.T) {
				kept := s.openWith(t, pair.version, pair.kind, shape, client.CreateGatewayRequest{DrainTimeout: &late})
				returned := s.openWith(t, pair.version, pair.kind, shape, client.CreateGatewayRequest{DrainTimeout: &late})
				x := s.openWith(t, pair.version, pair.kind, shape, client.CreateGatewayRequest{DrainTimeout: &soon})
				s.takeAway(t, kept, i%2 == 0)
				s.takeAway(t, returned, false)
				s.target(t, http.MethodPatch, returned, `{"drain":false}`)
				if r := s.Call(http.MethodPatch, "/v1/gateways/"+returned.gateway, s.AdminKey, `{"drain_timeout":"1s"}`); r.Status != http.StatusOK {
					t.Fatalf("got %d %s", r.Status, r.Body)
				}
				s.takeAway(t, x, i%2 == 0)
				switch err := x.wantCut(); shape {
				case "WebSocket":
				case "gRPC":
					if status := x.res.Trailer.Get("Grpc-Status"); err != nil || status != "14" {
						t.Errorf("got grpc-status %q and %v, want 14", status, err)
					}
				default:
					var reset http2.StreamError
					if pair.version == "HTTP/2" && (!errors.As(err, &reset) || reset.Code != http2.ErrCodeCancel) || err == nil {
						t.Errorf("got %v, want a response that is cut off", err)
					}
				}
				s.wantReason(t, x.keyID, "target_gone")
				for _, open := range []*stream{kept, returned} {
					if len(open.ended) > 0 {
						t.Error("a stream ended before its time")
					} else if open.in != nil {
						open.wantEcho()
					}
				}
			})
		}
	}
}

// takeAway drains the target of a stream, or removes it.
func (s *streams) takeAway(t *testing.T, x *stream, remove bool) {
	t.Helper()
	if remove {
		s.target(t, http.MethodDelete, x, "")
		return
	}
	s.target(t, http.MethodPatch, x, `{"drain":true}`)
}

// target changes the target of a stream.
func (s *streams) target(t *testing.T, method string, x *stream, body string) {
	t.Helper()
	path := "/v1/gateways/" + x.gateway + "/upstreams/default/targets?url=" + url.QueryEscape(x.target)
	if r := s.Call(method, path, s.AdminKey, body); r.Status != http.StatusOK {
		t.Fatalf("%s %s: got %d %s", method, path, r.Status, r.Body)
	}
}

// Guarantee: targets.md, 6: a request that still waits for its response then gets a 502 that says why.
func TestTargetTakenAwayWithoutResponse(t *testing.T) {
	s := keygatetest.Start(t)
	arrived := make(chan bool, 10)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-r.Context().Done()
	}))
	t.Cleanup(service.Close)
	soon := "1s"
	g, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{Name: "g", UpstreamURL: service.URL, DrainTimeout: &soon})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Admin.CreateRoute(t.Context(), g.GatewayID, client.CreateRouteRequest{Path: "/*", Methods: []string{"GET", "POST"}, Auth: new(client.CreateRouteRequestAuth("none"))}); err != nil {
		t.Fatal(err)
	}
	at := "/v1/gateways/" + g.GatewayID + "/upstreams/default/targets"
	if r := s.Call(http.MethodPost, at, s.AdminKey, fmt.Sprintf(`{"url":%q,"backup":true}`, service.URL+"/backup")); r.Status != http.StatusCreated {
		t.Fatalf("got %d %s", r.Status, r.Body)
	}
	results := make(chan string, 4)
	send := func(version, method string) {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(version == "HTTP/1.1")
		transport.Protocols.SetUnencryptedHTTP2(version == "HTTP/2")
		t.Cleanup(transport.CloseIdleConnections)
		r, err := http.NewRequestWithContext(t.Context(), method, s.GatewayURL()+"/wait", nil)
		if err != nil {
			results <- err.Error()
			return
		}
		res, err := transport.RoundTrip(r)
		if err != nil {
			results <- err.Error()
			return
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		results <- fmt.Sprint(res.StatusCode, " ", string(body), err)
	}
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		for _, method := range []string{"GET", "POST"} {
			go send(version, method)
			<-arrived
		}
	}
	if r := s.Call(http.MethodPatch, at+"?url="+url.QueryEscape(service.URL), s.AdminKey, `{"drain":true}`); r.Status != http.StatusOK {
		t.Fatalf("got %d %s", r.Status, r.Body)
	}
	for range 4 {
		if got := <-results; !strings.HasPrefix(got, "502 ") || !strings.Contains(got, `"upstream_unreachable"`) || !strings.Contains(got, "taken away") {
			t.Errorf("got %s, want a 502", got)
		}
	}
}
