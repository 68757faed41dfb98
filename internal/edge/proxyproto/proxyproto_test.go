package proxyproto_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/edge/proxyproto"
)

const signature2 = "\r\n\r\n\x00\r\nQUIT\n"

// v2 makes a header of version 2 with a right length.
func v2(command, family byte, rest string) string {
	return signature2 + string([]byte{command, family, byte(len(rest) >> 8), byte(len(rest))}) + rest
}

func field(kind byte, value string) string {
	return string([]byte{kind, byte(len(value) >> 8), byte(len(value))}) + value
}

// sealed makes a header whose last field is its checksum.
func sealed(command, family byte, rest string) string {
	b := []byte(v2(command, family, rest+field(0x03, "\x00\x00\x00\x00")))
	binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return string(b)
}

const (
	addresses4 = "\xc0\x00\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb"
	addresses6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\xdc\x04\x01\xbb"
	mapped6 = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc6\x33\x64\x01\xdc\x04\x01\xbb"
)

// vectors are headers with the source that each tells; "" is none.
var vectors = []struct{ name, header, source, destination string }{
	{"v1 IPv4", "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n", "192.0.2.1:56324", "198.51.100.1:443"},
	{"v1 IPv6", "PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n", "[2001:db8::1]:56324", "[2001:db8::2]:443"},
	{"v1 longest IPv6", "PROXY TCP6 " + strings.Repeat("ffff:", 7) + "ffff " + strings.Repeat("ffff:", 7) + "ffff 65535 65535\r\n",
		"[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"},
	{"v1 IPv4 in IPv6", "PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", "192.0.2.1:1", "[::1]:2"},
	{"v1 port 0", "PROXY TCP4 192.0.2.1 198.51.100.1 0 0\r\n", "192.0.2.1:0", "198.51.100.1:0"},
	{"v1 unknown", "PROXY UNKNOWN\r\n", "", ""},
	{"v1 unknown with addresses", "PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", "", ""},
	{"v2 IPv4", v2(0x21, 0x11, addresses4), "192.0.2.1:56324", "198.51.100.1:443"},
	{"v2 IPv6", v2(0x21, 0x21, addresses6), "[2001:db8::1]:56324", "[2001:db8::2]:443"},
	{"v2 IPv4 in IPv6", v2(0x21, 0x21, mapped6), "192.0.2.1:56324", "198.51.100.1:443"},
	{"v2 fields", v2(0x21, 0x11, addresses4+field(0x04, "")+field(0x02, "example.com")+field(0xea, "\x01vpce")), "192.0.2.1:56324", "198.51.100.1:443"},
	{"v2 checksum", sealed(0x21, 0x11, addresses4+field(0x01, "h2")), "192.0.2.1:56324", "198.51.100.1:443"},
	{"v2 local", v2(0x20, 0x00, ""), "", ""},
	{"v2 local with addresses", v2(0x20, 0x11, addresses4), "", ""},
	{"v2 local with anything", v2(0x20, 0xff, "\x03"), "", ""},
	{"v2 no family", v2(0x21, 0x00, ""), "", ""},
	{"v2 no family with anything", v2(0x21, 0x00, "\x03"), "", ""},
	{"v2 datagrams", v2(0x21, 0x12, addresses4), "", ""},
	{"v2 datagrams of IPv6", v2(0x21, 0x22, addresses6), "", ""},
	{"v2 unix", v2(0x21, 0x31, strings.Repeat("a", 216)), "", ""},
	{"v2 longest", v2(0x21, 0x11, addresses4+field(0x04, strings.Repeat("x", 65535-12-3))), "192.0.2.1:56324", "198.51.100.1:443"},
}

// Guarantee: each header of the specification is read, however much is seen of
// it at a time and whatever follows.
func TestVectors(t *testing.T) {
	for _, tc := range vectors {
		t.Run(tc.name, func(t *testing.T) {
			for i := range min(len(tc.header), 300) {
				n, err := proxyproto.Measure([]byte(tc.header[:i]))
				if err != nil || n != 0 && n != len(tc.header) {
					t.Fatalf("of %d bytes: %d, %v", i, n, err)
				}
			}
			for _, tail := range []string{"", "GET / HTTP/1.1\r\n\r\n", "PROXY TCP4 1.1.1.1 2.2.2.2 3 4\r\n"} {
				if n, err := proxyproto.Measure([]byte(tc.header + tail)); err != nil || n != len(tc.header) {
					t.Fatalf("before %q: %d, %v, want %d", tail, n, err, len(tc.header))
				}
			}
			h, err := proxyproto.Parse([]byte(tc.header))
			if err != nil {
				t.Fatal(err)
			}
			if got := text(h.Source); got != tc.source {
				t.Errorf("source %s, want %s", got, tc.source)
			}
			if got := text(h.Destination); got != tc.destination {
				t.Errorf("destination %s, want %s", got, tc.destination)
			}
		})
	}
}

func text(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// Guarantee: what is no header is told from one that is broken.
func TestNone(t *testing.T) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\n", "PROX", "PROXY\t", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "proxy TCP4", "\x16\x03\x01",
		"\r\n\r\nGET", "\r\n\r\n\x00\r\nQUIS", "\n",
	} {
		n, err := proxyproto.Measure([]byte(s))
		if s == "PROX" {
			if n != 0 || err != nil {
				t.Errorf("%q: %d, %v: it may become a header", s, n, err)
			}
			continue
		}
		if !errors.Is(err, proxyproto.ErrNone) {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
}

// Guarantee: a header that is not wholly as specified is refused.
func TestMalformed(t *testing.T) {
	for _, s := range []string{
		"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\n",
		"PROXY \r\n",
		"PROXY TCP4\r\n",
		"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
		"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 \r\n",
		"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 1\r\n",
		"PROXY TCP4  192.0.2.1 198.51.100.1 56324 443\r\n",
		"PROXY  TCP4 192.0.2.1 198.51.100.1 56324 443\r\n",
		"PROXY tcp4 192.0.2.1 198.51.100.1 56324 443\r\n",
		"PROXY TCP5 192.0.2.1 198.51.100.1 56324 443\r\n",
		"PROXY UNKNOWNS\r\n",
		"PROXY TCP4 192.0.2.01 198.51.100.1 56324 443\r\n",
		"PROXY TCP4 192.0.2.256 198.51.100.1 56324 443\r\n",
		"PROXY TCP4 ::1 ::2 56324 443\r\n",
		"PROXY TCP6 192.0.2.1 198.51.100.1 56324 443\r\n",
		"PROXY TCP6 fe80::1%eth0 ::2 56324 443\r\n",
		"PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n",
		"PROXY TCP4 192.0.2.1 198.51.100.1 056 443\r\n",
		"PROXY TCP4 192.0.2.1 198.51.100.1 +56 443\r\n",
		"PROXY TCP4 192.0.2.1 198.51.100.1 -1 443\r\n",
		"PROXY TCP4 192.0.2.1 198.51.100.1  443\r\n",
		"PROXY UNKNOWN \r \r\n",
		"PROXY UNKNOWN " + strings.Repeat("x", proxyproto.MaxV1) + "\r\n",
		"PROXY " + strings.Repeat("x", proxyproto.MaxV1),
		v2(0x22, 0x11, addresses4),
		v2(0x11, 0x11, addresses4),
		v2(0x31, 0x11, addresses4),
		v2(0x21, 0x13, addresses4),
		v2(0x21, 0x41, addresses4),
		v2(0x21, 0x01, ""),
		v2(0x21, 0x10, addresses4),
		v2(0x21, 0x11, addresses4[:11]),
		v2(0x21, 0x21, addresses6[:35]),
		v2(0x21, 0x31, strings.Repeat("a", 215)),
		v2(0x21, 0x11, addresses4+"\x04"),
		v2(0x21, 0x11, addresses4+"\x04\x00\x01"),
		v2(0x21, 0x11, addresses4+field(0x03, "\x00\x00\x00")),
		v2(0x21, 0x11, addresses4+field(0x03, "\x00\x00\x00\x00")),
		strings.Replace(sealed(0x21, 0x11, addresses4), "\xc0", "\xc1", 1),
	} {
		if h, err := proxyproto.Parse([]byte(s)); !errors.Is(err, proxyproto.ErrMalformed) {
			t.Errorf("%q: %v, %v", s, h, err)
		}
	}
	// A header with a byte too few or too many is not the one that was measured.
	for _, tc := range vectors {
		for _, s := range []string{tc.header[:len(tc.header)-1], tc.header + "x"} {
			if h, err := proxyproto.Parse([]byte(s)); err == nil {
				t.Errorf("%s: took %d of %d bytes: %v", tc.name, len(s), len(tc.header), h)
			}
		}
	}
}

// FuzzParse holds that no bytes make the reader panic, that the length does not
// change as bytes arrive, and that what is accepted has addresses of both ends
// or of neither.
func FuzzParse(f *testing.F) {
	for _, tc := range vectors {
		f.Add([]byte(tc.header))
	}
	f.Add([]byte(sealed(0x21, 0x21, addresses6)))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := proxyproto.Measure(b)
		if err != nil || n == 0 {
			if _, perr := proxyproto.Parse(b); perr == nil {
				t.Fatal("accepted what has no length")
			}
			return
		}
		for i := range min(len(b), n) {
			if early, err := proxyproto.Measure(b[:i]); err != nil || early != 0 && early != n {
				t.Fatalf("%d bytes: %d, %v; all: %d", i, early, err, n)
			}
		}
		if n > len(b) {
			return
		}
		h, err := proxyproto.Parse(b[:n])
		switch {
		case err != nil && !errors.Is(err, proxyproto.ErrMalformed):
			t.Errorf("error %v", err)
		case h.Source.IsValid() != h.Destination.IsValid():
			t.Errorf("half of a header: %v", h)
		case h.Source.Addr().Is4In6() || h.Source.Addr().Zone() != "":
			t.Errorf("source %v", h.Source)
		}
	})
}
