package edge_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/edge"
)

const (
	v1         = "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"
	v2         = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb"
	v2Local    = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
	v2From10   = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x0a\x00\x00\x05\xc6\x33\x64\x01\xdc\x04\x01\xbb"
	v2Broken   = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0b\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01"
	v1FromIPv6 = "PROXY TCP6 2001:db8::1 ::1 56324 443\r\n"
)

// v2Long has more behind its addresses than a socket's first bytes hold.
func v2Long() string {
	return "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x40\x0f\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb" + "\x04\x40\x00" + strings.Repeat("\x00", 0x4000)
}

// Guarantee: a trusted proxy's header names the client, whose own
// trustworthiness counts from there; what follows the header is untouched. A
// proxy may send none.
func TestPROXY(t *testing.T) {
	d := open(t, edge.Config{Trust: trust("127.0.0.0/8", "10.0.0.0/8")})
	for name, tc := range map[string]struct{ header, want string }{
		"version 1":               {v1, "192.0.2.1 trusted=false"},
		"version 1, IPv6":         {v1FromIPv6, "2001:db8::1 trusted=false"},
		"version 1, unknown":      {"PROXY UNKNOWN\r\n", "127.0.0.1 trusted=true"},
		"version 2":               {v2, "192.0.2.1 trusted=false"},
		"version 2, long":         {v2Long(), "192.0.2.1 trusted=false"},
		"version 2, local":        {v2Local, "127.0.0.1 trusted=true"},
		"a trusted proxy behind":  {v2From10, "10.0.0.5 trusted=true"},
		"no header":               {"", "127.0.0.1 trusted=true"},
		"no header, but alike":    {"PROXi", "127.0.0.1 trusted=true"},
		"no header, empty lines":  {"\r\n\r\nGET", "127.0.0.1 trusted=true"},
		"a second is no header":   {v1 + "PROXY UNKNOWN\r\n", "192.0.2.1 trusted=false"},
		"the other kind after it": {v2 + v1, "192.0.2.1 trusted=false"},
	} {
		t.Run(name, func(t *testing.T) {
			whole := d.dial()
			whole.say(tc.header + "GET\n")
			pieces := d.dial()
			for i := range min(len(tc.header), 200) {
				pieces.say(tc.header[i : i+1])
			}
			pieces.say(tc.header[min(len(tc.header), 200):] + "GET\n")
			for _, c := range []*caller{whole, pieces} {
				line, err := c.r.ReadString('\n')
				if err != nil || !strings.HasPrefix(line, "*net.TCPConn "+tc.want+" tls=false ") {
					t.Errorf("heard %q, %v", line, err)
				}
			}
		})
	}
	if n := d.server.Stats().BadProxyHeaders; n != 0 {
		t.Errorf("%d headers were refused", n)
	}
}

// Guarantee: a header that is malformed ends the connection; its bytes are not
// taken for a request.
func TestBrokenPROXY(t *testing.T) {
	d := open(t, edge.Config{Trust: trust("127.0.0.1/32")})
	broken := []string{"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n", "PROXY TCP4 192.0.2.1 198.51.100.1 1 2\nGET / HTTP/1.1\r\n", "PROXY " + strings.Repeat("x", 200), v2Broken}
	for _, header := range broken {
		c := d.dial()
		c.say(header + "GET\n")
		c.isClosed()
	}
	eventually(t, "they are counted", func() bool { return d.server.Stats().BadProxyHeaders == int64(len(broken)) })
	if d.log.count("cannot be read") != 1 {
		t.Error("they are to be logged, and not each")
	}
}

// Guarantee: nobody else's header is believed: its bytes are those of a request.
func TestUntrustedPROXY(t *testing.T) {
	d := open(t, edge.Config{Trust: trust("127.0.0.2/32")})
	c := d.dial()
	c.say(v1)
	c.hears("*net.TCPConn 127.0.0.1 trusted=false tls=false " + quote(v1))
	c = d.dialFrom("127.0.0.2")
	c.say(v1 + "GET\n")
	c.hears(`192.0.2.1 trusted=false tls=false "GET\n"`)
}

// Guarantee: the header stands before TLS and before HTTP/2 as well, and both
// learn the client that it names.
func TestPROXYBefore(t *testing.T) {
	pair, files, _ := secure(t)
	d := open(t, edge.Config{Trust: trust("127.0.0.0/8"), TLS: pair.TLS("h2", "http/1.1")})
	raw := d.dial()
	raw.say(v2)
	c := d.caller(tls.Client(raw.Conn, &tls.Config{RootCAs: files.Pool(t), ServerName: "one.test"}))
	c.say("GET\n")
	c.hears(`*tls.Conn 192.0.2.1 trusted=false tls=true "GET\n"`)

	plain := open(t, edge.Config{Trust: trust("127.0.0.0/8")})
	for header, want := range map[string]string{v1: "192.0.2.1:56324 trusted=false", "": "127.0.0.1:", v2From10: "10.0.0.5:56324 trusted=false"} {
		c := plain.dial()
		c.say(header)
		if got := overHTTP2(t, c); !strings.HasPrefix(got, "HTTP/2.0 "+want) {
			t.Errorf("after %q: %q", header, got)
		}
	}
}

// overHTTP2 makes a request on the connection and returns the answer's body.
func overHTTP2(t *testing.T, c *caller) string {
	t.Helper()
	c.say(http2.ClientPreface)
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

// Guarantee: behind a load balancer the cap for one address is the client's; the
// load balancer itself has none.
func TestCapBehindPROXY(t *testing.T) {
	d := open(t, edge.Config{Trust: trust("127.0.0.0/8"), MaxConnectionsPerAddress: 2})
	for range 4 {
		c := d.dial()
		c.say("GET\n")
		c.hears(`"GET\n"`)
	}
	for i := range 4 {
		c := d.dial()
		c.say(v1 + "GET\n")
		if i < 2 {
			c.hears(`"GET\n"`)
		} else {
			c.isClosed()
		}
	}
	if s := d.server.Stats(); s.RefusedAddress != 2 {
		t.Errorf("%+v", s)
	}
}
