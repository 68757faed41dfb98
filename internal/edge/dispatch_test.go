package edge_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/edge"
)

// Guarantee: what is not the whole preface of HTTP/2 goes to HTTP/1.1 as it
// came, on the bare TCP connection; nothing is taken from it.
func TestPlainHTTP1(t *testing.T) {
	d := open(t, edge.Config{})
	for _, first := range []string{"G", "GET / HTTP/1.1\r\n", "POST", "PRI * HTTP/1.1", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r", "\r\n\r\n", "\x00", "PROXY TCP4 1.1.1.1 2.2.2.2 3 4\r\n"} {
		c := d.dial()
		for i := range len(first) {
			c.say(first[i : i+1]) // the system may join them again
		}
		c.say("x\n")
		line := first + "x\n"
		for line != "" {
			i := strings.IndexByte(line, '\n') + 1
			c.hears("*net.TCPConn 127.0.0.1 trusted=false tls=false " + quote(line[:i]))
			line = line[i:]
		}
		_ = c.Close()
	}
	eventually(t, "all are closed", func() bool { return d.server.Stats().Open == 0 })
}

func quote(s string) string {
	r := strings.NewReplacer("\r", `\r`, "\n", `\n`, "\x00", `\x00`)
	return `"` + r.Replace(s) + `"`
}

// priorKnowledge speaks HTTP/2 in clear without asking, as curl does with
// --http2-prior-knowledge.
func priorKnowledge(t *testing.T) *http.Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
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

// Guarantee: the preface of HTTP/2 leads to HTTP2, whole or in pieces, and its
// connections count as open until they end.
func TestPriorKnowledge(t *testing.T) {
	d := open(t, edge.Config{})
	client := priorKnowledge(t)
	if got := get(t, client, "http://"+d.addr+"/"); !strings.HasPrefix(got, "HTTP/2.0 127.0.0.1:") || !strings.HasSuffix(got, "trusted=false tls=false") {
		t.Errorf("answer %q", got)
	}
	if n := d.server.Stats().Open; n != 1 {
		t.Errorf("%d connections are open", n)
	}
	client.CloseIdleConnections()
	eventually(t, "the connection is closed", func() bool { return d.server.Stats().Open == 0 })

	c := d.dial()
	for i := range len(http2.ClientPreface) {
		c.say(http2.ClientPreface[i : i+1])
	}
	framer := http2.NewFramer(c, c.r)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if f, err := framer.ReadFrame(); err != nil || f.Header().Type != http2.FrameSettings {
		t.Errorf("answer %v, %v", f, err)
	}
}

// secure returns the settings of a listener with a fresh certificate, and those
// of its clients.
func secure(t *testing.T) (pair *certificate.Pair, files certificatetest.Pair, dir string) {
	t.Helper()
	files, dir = certificatetest.New(t, "one.test"), t.TempDir()
	cert, key := files.Write(t, dir)
	pair, err := certificate.Open(certificate.Config{CertFile: cert, KeyFile: key, CertSetting: "tls-cert", KeySetting: "tls-key"})
	if err != nil {
		t.Fatal(err)
	}
	return pair, files, dir
}

// Guarantee: ALPN chooses the driver; without it HTTP/1.1 is spoken. TLS below
// 1.2, and a client that speaks neither, are refused.
func TestALPN(t *testing.T) {
	pair, files, _ := secure(t)
	d := open(t, edge.Config{TLS: pair.TLS("h2", "http/1.1", "http/1.0")})
	for _, offer := range [][]string{{"http/1.1"}, {"http/1.0"}, nil, {"http/1.1", "spdy/3"}} {
		tc, err := tls.Dial("tcp", d.addr, &tls.Config{RootCAs: files.Pool(t), NextProtos: offer})
		if err != nil {
			t.Fatal(err)
		}
		c := d.caller(tc)
		c.say("GET\n")
		c.hears(`*tls.Conn 127.0.0.1 trusted=false tls=true "GET\n"`)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: files.Pool(t)}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	if got := get(t, &http.Client{Transport: tr, Timeout: patience}, "https://"+d.addr+"/"); !strings.HasPrefix(got, "HTTP/2.0 127.0.0.1:") || !strings.HasSuffix(got, "trusted=false tls=true") {
		t.Errorf("answer %q", got)
	}
	for name, cfg := range map[string]*tls.Config{
		"TLS 1.1":      {RootCAs: files.Pool(t), MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		"no protocol":  {RootCAs: files.Pool(t), NextProtos: []string{"imap"}},
		"another name": {RootCAs: files.Pool(t), ServerName: "elsewhere.test"},
	} {
		if c, err := tls.Dial("tcp", d.addr, cfg); err == nil {
			_ = c.Close()
			t.Errorf("%s was served", name)
		}
	}
	eventually(t, "the failures are counted", func() bool { return d.server.Stats().BadHandshakes == 3 })
}

// Guarantee: sessions are resumed, in both versions of TLS.
func TestTickets(t *testing.T) {
	pair, files, _ := secure(t)
	d := open(t, edge.Config{TLS: pair.TLS("h2", "http/1.1")})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := &tls.Config{RootCAs: files.Pool(t), MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		for i := range 2 {
			tc, err := tls.Dial("tcp", d.addr, cfg)
			if err != nil {
				t.Fatal(err)
			}
			c := d.caller(tc)
			c.say("x\n") // a ticket of TLS 1.3 comes behind the handshake
			c.hears(`"x\n"`)
			if got := tc.ConnectionState().DidResume; got != (i == 1) {
				t.Errorf("%s, connection %d: resumed %v", tls.VersionName(version), i, got)
			}
			_ = c.Close()
		}
	}
}

// Guarantee: a changed certificate is served from the next handshake on; the
// connections that stand go on.
func TestReload(t *testing.T) {
	pair, files, dir := secure(t)
	d := open(t, edge.Config{TLS: pair.TLS("h2", "http/1.1")})
	old, err := tls.Dial("tcp", d.addr, &tls.Config{RootCAs: files.Pool(t)})
	if err != nil {
		t.Fatal(err)
	}
	c := d.caller(old)
	two := certificatetest.New(t, "two.test")
	two.Write(t, dir)
	if !pair.Check() {
		t.Fatal("the change was not seen")
	}
	tc, err := tls.Dial("tcp", d.addr, &tls.Config{RootCAs: two.Pool(t), ServerName: "two.test"})
	if err != nil {
		t.Fatal(err)
	}
	_ = tc.Close()
	c.say("x\n")
	c.hears(`"x\n"`)
}

// Guarantee: a client that speaks HTTP to a listener of TLS is told so; one that
// speaks anything else is closed.
func TestPlainToTLS(t *testing.T) {
	pair, _, _ := secure(t)
	d := open(t, edge.Config{TLS: pair.TLS("h2", "http/1.1")})
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"} {
		c := d.dial()
		c.say(request)
		resp, err := http.ReadResponse(c.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 400 || !resp.Close || resp.Header.Get("Content-Type") != "application/json" ||
			!strings.Contains(string(body), `"invalid_request"`) || !strings.Contains(string(body), resp.Header.Get("X-Request-Id")) || resp.Header.Get("X-Request-Id") == "" {
			t.Errorf("%v %s, %v", resp, body, err)
		}
	}
	c := d.dial()
	c.say("\x01\x02\x03\x04\x05\x06")
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, c.r)
}

// Guarantee: a connection that does not come to HTTP within the time for a head
// is closed, wherever it stands.
func TestHeadTimeout(t *testing.T) {
	pair, _, _ := secure(t)
	for name, tc := range map[string]struct {
		cfg  edge.Config
		says string
	}{
		"silent":              {edge.Config{}, ""},
		"part of a preface":   {edge.Config{}, "PRI * HT"},
		"part of a header":    {edge.Config{Trust: trust("127.0.0.0/8")}, "PROXY TCP4 192.0."},
		"part of a long one":  {edge.Config{Trust: trust("127.0.0.0/8")}, "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\xff"},
		"silent after one":    {edge.Config{Trust: trust("127.0.0.0/8")}, "PROXY UNKNOWN\r\n"},
		"part of a handshake": {edge.Config{TLS: pair.TLS("h2")}, "\x16\x03\x01"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.cfg.HeadTimeout = 50 * time.Millisecond
			d := open(t, tc.cfg)
			c := d.dial()
			c.say(tc.says)
			c.isClosed()
		})
	}
}

// Guarantee: a defect that one connection meets ends that one alone.
func TestDefect(t *testing.T) {
	d := open(t, edge.Config{})
	other, c := d.dial(), d.dial()
	other.say("a\n")
	other.hears(`"a\n"`)
	c.say("panic\n")
	c.isClosed()
	other.say("b\n")
	other.hears(`"b\n"`)
	eventually(t, "the defect is logged", func() bool { return d.log.count("as it was told") == 1 })
}
