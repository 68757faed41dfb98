package edge_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/edge"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

const (
	v1         = "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"
	v2         = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb"
	v2Local    = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
	v2From10   = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x0a\x00\x00\x05\xc6\x33\x64\x01\xdc\x04\x01\xbb"
	v2Broken   = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0b\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01"
	v1FromIPv6 = "PROXY TCP6 2001:db8::1 ::1 56324 443\r\n"
)

// v2Long returns a header whose TLVs exceed what a peek at the socket holds.
func v2Long() string {
	return "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x40\x0f\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb" + "\x04\x40\x00" + strings.Repeat("\x00", 0x4000)
}

// Guarantee: a trusted proxy's PROXY header names the client and decides whether the
// client is trusted as a proxy as well; the bytes after it are untouched. The header is optional.
func TestProxyHeaderNamesClient(t *testing.T) {
	h := start(t, edge.Config{Trust: trust("127.0.0.0/8", "10.0.0.0/8")})
	for name, tc := range map[string]struct{ header, want string }{
		"version 1":                             {v1, "192.0.2.1 trusted=false"},
		"version 1, IPv6":                       {v1FromIPv6, "2001:db8::1 trusted=false"},
		"version 1, unknown":                    {"PROXY UNKNOWN\r\n", "127.0.0.1 trusted=true"},
		"version 2":                             {v2, "192.0.2.1 trusted=false"},
		"version 2, long":                       {v2Long(), "192.0.2.1 trusted=false"},
		"version 2, local":                      {v2Local, "127.0.0.1 trusted=true"},
		"the client is a trusted proxy":         {v2From10, "10.0.0.5 trusted=true"},
		"no header":                             {"", "127.0.0.1 trusted=true"},
		"no header, but a similar word":         {"PROXi", "127.0.0.1 trusted=true"},
		"no header, but empty lines":            {"\r\n\r\nGET", "127.0.0.1 trusted=true"},
		"a second header is part of the stream": {v1 + "PROXY UNKNOWN\r\n", "192.0.2.1 trusted=false"},
		"so is one of the other version":        {v2 + v1, "192.0.2.1 trusted=false"},
	} {
		t.Run(name, func(t *testing.T) {
			whole := h.dial()
			whole.send(tc.header + "GET\n")
			pieces := h.dial()
			cut := min(len(tc.header), 200)
			pieces.sendBytewise(tc.header[:cut])
			pieces.send(tc.header[cut:] + "GET\n")
			for _, c := range []*client{whole, pieces} {
				want := "*net.TCPConn " + tc.want + " tls=false "
				if line, err := c.r.ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
					t.Errorf("got line %q, error %v; want a line that begins with %q", line, err, want)
				}
			}
		})
	}
	if n := h.server.Stats().BadProxyHeaders; n != 0 {
		t.Errorf("got %d malformed headers, want 0", n)
	}
}

// Guarantee: a malformed PROXY header ends the connection and counts; its bytes are
// not read as a request. The log says so once rather than for each.
func TestMalformedProxyHeaderEndsConnection(t *testing.T) {
	h := start(t, edge.Config{Trust: trust("127.0.0.1/32")})
	malformed := []string{
		"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n", "PROXY TCP4 192.0.2.1 198.51.100.1 1 2\nGET / HTTP/1.1\r\n", "PROXY " + strings.Repeat("x", 200), v2Broken,
	}
	for _, header := range malformed {
		c := h.dial()
		c.send(header + "GET\n")
		c.wantClosed()
	}
	awaittest.True(t, "all malformed headers are counted", func() bool { return h.server.Stats().BadProxyHeaders == int64(len(malformed)) })
	h.wantLogged("malformed PROXY header", 1)
}

// Guarantee: only a trusted peer's PROXY header is accepted; from any other peer its
// bytes are part of the request.
func TestUntrustedProxyHeaderIsIgnored(t *testing.T) {
	h := start(t, edge.Config{Trust: trust("127.0.0.2/32")})
	c := h.dial()
	c.send(v1)
	c.wantLine("*net.TCPConn 127.0.0.1 trusted=false tls=false " + quote(v1))
	c = h.dialFrom("127.0.0.2")
	c.send(v1 + "GET\n")
	c.wantLine(`192.0.2.1 trusted=false tls=false "GET\n"`)
}

// Guarantee: a PROXY header is accepted before a TLS handshake, and the engine
// learns the client that it names.
func TestProxyHeaderBeforeTLS(t *testing.T) {
	pair, files, _ := newPair(t)
	h := start(t, edge.Config{Trust: trust("127.0.0.0/8"), TLS: pair.TLS("h2", "http/1.1")})
	raw := h.dial()
	raw.send(v2)
	c := h.client(tls.Client(raw.Conn, &tls.Config{RootCAs: files.Pool(t), ServerName: "one.test"}))
	c.send("GET\n")
	c.wantLine(`*tls.Conn 192.0.2.1 trusted=false tls=true "GET\n"`)
}

// Guarantee: a PROXY header is accepted before the HTTP/2 preface, and the engine
// learns the client that it names.
func TestProxyHeaderBeforeHTTP2(t *testing.T) {
	h := start(t, edge.Config{Trust: trust("127.0.0.0/8")})
	for header, want := range map[string]string{v1: "192.0.2.1:56324 trusted=false", "": "127.0.0.1:", v2From10: "10.0.0.5:56324 trusted=false"} {
		c := h.dial()
		c.send(header)
		if got := bodyOverHTTP2(t, c); !strings.HasPrefix(got, "HTTP/2.0 "+want) {
			t.Errorf("after header %q: got body %q, want it to begin with %q", header, got, "HTTP/2.0 "+want)
		}
	}
}

// bodyOverHTTP2 makes an HTTP/2 request on the connection and returns the first
// DATA frame of the response.
func bodyOverHTTP2(t *testing.T, c *client) string {
	t.Helper()
	c.send(http2.ClientPreface)
	framer := http2.NewFramer(c, c.r)
	_ = framer.WriteSettings()
	// :method GET, :scheme http, :path /, :authority a
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x82\x86\x84\x41\x01a"), EndHeaders: true, EndStream: true})
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := frame.(*http2.DataFrame); ok {
			return string(data.Data())
		}
	}
}

// Guarantee: behind a load balancer, MaxConnectionsPerAddress counts the clients
// that its PROXY headers name; the load balancer's own address is not limited.
func TestAddressLimitBehindProxy(t *testing.T) {
	h := start(t, edge.Config{Trust: trust("127.0.0.0/8"), MaxConnectionsPerAddress: 2})
	for range 4 {
		h.dial().wantEcho("GET")
	}
	for i := range 4 {
		c := h.dial()
		if i < 2 {
			c.send(v1)
			c.wantEcho("GET")
		} else {
			c.send(v1 + "GET\n")
			c.wantClosed()
		}
	}
	if n := h.server.Stats().RefusedAddress; n != 2 {
		t.Errorf("got %d connections refused, want 2", n)
	}
}
