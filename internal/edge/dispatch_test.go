package edge_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/edge"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// Guarantee: a connection that does not begin with the whole HTTP/2 preface goes to
// the HTTP/1.1 engine as a bare TCP connection, and no byte of it is lost.
func TestPlainConnectionsGoToHTTP1(t *testing.T) {
	h := start(t, edge.Config{})
	for _, first := range []string{
		"G", "GET / HTTP/1.1\r\n", "POST", "PRI * HTTP/1.1", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r", "\r\n\r\n", "\x00",
		"PROXY TCP4 1.1.1.1 2.2.2.2 3 4\r\n",
	} {
		c := h.dial()
		c.sendBytewise(first)
		c.send("x\n")
		for line := range strings.Lines(first + "x\n") {
			c.wantLine("*net.TCPConn 127.0.0.1 trusted=false tls=false " + quote(line))
		}
		_ = c.Close()
	}
	h.wantOpen(0)
}

// quote quotes s as lineEcho does.
func quote(s string) string {
	r := strings.NewReplacer("\r", `\r`, "\n", `\n`, "\x00", `\x00`)
	return `"` + r.Replace(s) + `"`
}

// priorKnowledgeClient returns a client that speaks HTTP/2 over plain TCP without
// negotiation, as curl --http2-prior-knowledge does.
func priorKnowledgeClient(t *testing.T) *http.Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testTimeout}
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// wantBetween checks that got, the body of an http2Server's response, begins with
// prefix and ends with suffix; between them is the client's port.
func wantBetween(t *testing.T, got, prefix, suffix string) {
	t.Helper()
	if !strings.HasPrefix(got, prefix) || !strings.HasSuffix(got, suffix) {
		t.Errorf("got body %q, want %q … %q", got, prefix, suffix)
	}
}

// Guarantee: a connection that begins with the HTTP/2 preface goes to the HTTP/2
// engine and counts as open until it ends.
func TestPriorKnowledgeGoesToHTTP2(t *testing.T) {
	h := start(t, edge.Config{})
	c := priorKnowledgeClient(t)
	wantBetween(t, get(t, c, "http://"+h.addr+"/"), "HTTP/2.0 127.0.0.1:", "trusted=false tls=false")
	if n := h.server.Stats().Open; n != 1 {
		t.Errorf("got %d open connections, want 1", n)
	}
	c.CloseIdleConnections()
	h.wantOpen(0)
}

// Guarantee: an HTTP/2 preface that arrives byte by byte is recognized.
func TestPrefaceInPiecesGoesToHTTP2(t *testing.T) {
	c := start(t, edge.Config{}).dial()
	c.sendBytewise(http2.ClientPreface)
	framer := http2.NewFramer(c, c.r)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if f, err := framer.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
		t.Errorf("got frame %v, error %v; want SETTINGS", f, err)
	}
}

// newPair returns a freshly made certificate for a listener, its files for the
// clients, and the directory in which a test may replace them.
func newPair(t *testing.T) (pair *certificate.Set, files certificatetest.Pair, dir string) {
	t.Helper()
	files, dir = certificatetest.New(t, "one.test"), t.TempDir()
	cert, key := files.Write(t, dir)
	pair, err := certificate.Open(certificate.Config{Files: []certificate.Files{{Cert: cert, Key: key}}, CertSetting: "tls-cert", KeySetting: "tls-key"})
	if err != nil {
		t.Fatal(err)
	}
	return pair, files, dir
}

// Guarantee: over TLS, ALPN chooses the engine; a client without ALPN gets
// HTTP/1.1.
func TestALPNChoosesEngine(t *testing.T) {
	pair, files, _ := newPair(t)
	h := start(t, edge.Config{TLS: pair.TLS("h2", "http/1.1", "http/1.0")})
	for _, protocols := range [][]string{{"http/1.1"}, {"http/1.0"}, nil, {"http/1.1", "spdy/3"}} {
		t.Run("HTTP1 for "+strings.Join(protocols, " "), func(t *testing.T) {
			tc, err := tls.Dial("tcp", h.addr, &tls.Config{RootCAs: files.Pool(t), NextProtos: protocols})
			if err != nil {
				t.Fatal(err)
			}
			c := h.client(tc)
			c.send("GET\n")
			c.wantLine(`*tls.Conn 127.0.0.1 trusted=false tls=true "GET\n"`)
		})
	}
	t.Run("HTTP2 for h2", func(t *testing.T) {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: files.Pool(t)}, ForceAttemptHTTP2: true}
		defer tr.CloseIdleConnections()
		c := &http.Client{Transport: tr, Timeout: testTimeout}
		wantBetween(t, get(t, c, "https://"+h.addr+"/"), "HTTP/2.0 127.0.0.1:", "trusted=false tls=true")
	})
}

// Guarantee: TLS below 1.2, a client that offers no supported protocol, and a client that does not
// accept the certificate fail in the handshake, and each failure is counted.
func TestFailedHandshakesAreCounted(t *testing.T) {
	pair, files, _ := newPair(t)
	h := start(t, edge.Config{TLS: pair.TLS("h2", "http/1.1", "http/1.0")})
	for name, cfg := range map[string]*tls.Config{
		"TLS 1.1":              {RootCAs: files.Pool(t), MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		"unsupported protocol": {RootCAs: files.Pool(t), NextProtos: []string{"imap"}},
		"another server name":  {RootCAs: files.Pool(t), ServerName: "elsewhere.test"},
	} {
		if c, err := tls.Dial("tcp", h.addr, cfg); err == nil {
			_ = c.Close()
			t.Errorf("%s: the handshake succeeded, want an error", name)
		}
	}
	awaittest.True(t, "3 failed handshakes are counted", func() bool { return h.server.Stats().BadHandshakes == 3 })
}

// Guarantee: TLS sessions are resumed.
func TestSessionsAreResumed(t *testing.T) {
	pair, files, _ := newPair(t)
	h := start(t, edge.Config{TLS: pair.TLS("h2", "http/1.1")})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			cfg := &tls.Config{RootCAs: files.Pool(t), MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
			for i, resumed := range []bool{false, true} {
				tc, err := tls.Dial("tcp", h.addr, cfg)
				if err != nil {
					t.Fatal(err)
				}
				c := h.client(tc)
				c.wantEcho("x") // a TLS 1.3 ticket follows the handshake
				if got := tc.ConnectionState().DidResume; got != resumed {
					t.Errorf("connection %d: got resumed %v, want %v", i, got, resumed)
				}
				_ = c.Close()
			}
		})
	}
}

// Guarantee: a changed certificate is served from the next handshake on, and open
// connections continue.
func TestChangedCertificateIsServed(t *testing.T) {
	pair, files, dir := newPair(t)
	h := start(t, edge.Config{TLS: pair.TLS("h2", "http/1.1")})
	before, err := tls.Dial("tcp", h.addr, &tls.Config{RootCAs: files.Pool(t)})
	if err != nil {
		t.Fatal(err)
	}
	c := h.client(before)
	replacement := certificatetest.New(t, "two.test")
	replacement.Write(t, dir)
	if !pair.Check() {
		t.Fatal("the changed files were not noticed")
	}
	after, err := tls.Dial("tcp", h.addr, &tls.Config{RootCAs: replacement.Pool(t), ServerName: "two.test"})
	if err != nil {
		t.Fatal(err)
	}
	_ = after.Close()
	c.wantEcho("x")
}

// Guarantee: a client that speaks plain HTTP to a TLS listener gets a 400 in the
// gateway's error format.
func TestPlainHTTPToTLSGets400(t *testing.T) {
	pair, _, _ := newPair(t)
	h := start(t, edge.Config{TLS: pair.TLS("h2", "http/1.1")})
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		c := h.dial()
		c.send(request)
		resp, err := http.ReadResponse(c.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Errorf("%q: reading the body: %v", request, err)
		}
		if resp.StatusCode != 400 || !resp.Close || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%q: got %v, want a 400 with Connection: close and Content-Type: application/json", request, resp)
		}
		id := resp.Header.Get("X-Request-Id")
		if id == "" || !strings.Contains(string(body), `"invalid_request"`) || !strings.Contains(string(body), id) {
			t.Errorf("%q: got body %s with X-Request-Id %q, want the code invalid_request and the identifier in the body", request, body, id)
		}
	}
}

// Guarantee: a client that speaks neither TLS nor HTTP to a TLS listener is
// disconnected.
func TestOtherBytesToTLSAreDisconnected(t *testing.T) {
	pair, _, _ := newPair(t)
	c := start(t, edge.Config{TLS: pair.TLS("h2", "http/1.1")}).dial()
	c.send("\x01\x02\x03\x04\x05\x06")
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	if _, err := io.Copy(io.Discard, c.r); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stayed open, want it closed")
	}
}

// Guarantee: a connection that does not get to HTTP within HeadTimeout is closed,
// whichever step it is in.
func TestHeadTimeout(t *testing.T) {
	pair, _, _ := newPair(t)
	proxies := trust("127.0.0.0/8")
	for name, tc := range map[string]struct {
		cfg   edge.Config
		sends string
	}{
		"nothing":                          {edge.Config{}, ""},
		"part of the HTTP/2 preface":       {edge.Config{}, "PRI * HT"},
		"part of a version 1 PROXY header": {edge.Config{Trust: proxies}, "PROXY TCP4 192.0."},
		"part of a long version 2 header":  {edge.Config{Trust: proxies}, "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\xff"},
		"nothing after the PROXY header":   {edge.Config{Trust: proxies}, "PROXY UNKNOWN\r\n"},
		"part of a TLS handshake":          {edge.Config{TLS: pair.TLS("h2")}, "\x16\x03\x01"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.cfg.HeadTimeout = 50 * time.Millisecond
			c := start(t, tc.cfg).dial()
			c.send(tc.sends)
			c.wantClosed()
		})
	}
}

// Guarantee: a panic while serving one connection is logged and ends that
// connection only.
func TestPanicEndsOneConnection(t *testing.T) {
	h := start(t, edge.Config{})
	other, c := h.dial(), h.dial()
	other.wantEcho("a")
	c.send("panic\n")
	c.wantClosed()
	other.wantEcho("b")
	awaittest.True(t, "the panic is logged", func() bool { return h.log.Count("panic requested by the test") == 1 })
}
