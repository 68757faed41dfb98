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

// v2 makes a version 2 header with the right length.
func v2(command, family byte, rest string) string {
	return signature2 + string([]byte{command, family, byte(len(rest) >> 8), byte(len(rest))}) + rest
}

// tlv makes a type-length-value field.
func tlv(kind byte, value string) string {
	return string([]byte{kind, byte(len(value) >> 8), byte(len(value))}) + value
}

// withChecksum makes a version 2 header that ends with a CRC-32C checksum.
func withChecksum(command, family byte, rest string) string {
	b := []byte(v2(command, family, rest+tlv(0x03, "\x00\x00\x00\x00")))
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

// vectors are valid headers with the addresses that they name; "" is none.
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
	{"v2 TLVs", v2(0x21, 0x11, addresses4+tlv(0x04, "")+tlv(0x02, "example.com")+tlv(0xea, "\x01vpce")), "192.0.2.1:56324", "198.51.100.1:443"},
	{"v2 checksum", withChecksum(0x21, 0x11, addresses4+tlv(0x01, "h2")), "192.0.2.1:56324", "198.51.100.1:443"},
	{"v2 local", v2(0x20, 0x00, ""), "", ""},
	{"v2 local with addresses", v2(0x20, 0x11, addresses4), "", ""},
	{"v2 local with anything", v2(0x20, 0xff, "\x03"), "", ""},
	{"v2 no family", v2(0x21, 0x00, ""), "", ""},
	{"v2 no family with anything", v2(0x21, 0x00, "\x03"), "", ""},
	{"v2 datagrams", v2(0x21, 0x12, addresses4), "", ""},
	{"v2 datagrams of IPv6", v2(0x21, 0x22, addresses6), "", ""},
	{"v2 unix", v2(0x21, 0x31, strings.Repeat("a", 216)), "", ""},
	{"v2 longest", v2(0x21, 0x11, addresses4+tlv(0x04, strings.Repeat("x", 65535-12-3))), "192.0.2.1:56324", "198.51.100.1:443"},
}

// Guarantee: a valid header is measured and parsed, whatever follows it, and no
// beginning of it is measured as a shorter header.
func TestValidHeaders(t *testing.T) {
	for _, tc := range vectors {
		t.Run(tc.name, func(t *testing.T) {
			for i := range min(len(tc.header), 300) {
				n, err := proxyproto.Measure([]byte(tc.header[:i]))
				if err != nil || n != 0 && n != len(tc.header) {
					t.Fatalf("first %d bytes: got length %d, error %v; want 0 or %d, no error", i, n, err, len(tc.header))
				}
			}
			for _, tail := range []string{"", "GET / HTTP/1.1\r\n\r\n", "PROXY TCP4 1.1.1.1 2.2.2.2 3 4\r\n"} {
				if n, err := proxyproto.Measure([]byte(tc.header + tail)); err != nil || n != len(tc.header) {
					t.Fatalf("followed by %q: got length %d, error %v; want %d, no error", tail, n, err, len(tc.header))
				}
			}
			h, err := proxyproto.Parse([]byte(tc.header))
			if err != nil {
				t.Fatal(err)
			}
			if got := text(h.Source); got != tc.source {
				t.Errorf("got source %q, want %q", got, tc.source)
			}
			if got := text(h.Destination); got != tc.destination {
				t.Errorf("got destination %q, want %q", got, tc.destination)
			}
		})
	}
}

// text returns a as text, "" if it is not valid.
func text(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// Guarantee: bytes that do not begin with a signature are not a header, and are reported
// differently from a malformed header.
func TestOtherBytesAreNoHeader(t *testing.T) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\n", "PROXY\t", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "proxy TCP4", "\x16\x03\x01",
		"\r\n\r\nGET", "\r\n\r\n\x00\r\nQUIS", "\n",
	} {
		if n, err := proxyproto.Measure([]byte(s)); !errors.Is(err, proxyproto.ErrNoHeader) {
			t.Errorf("%q: got length %d, error %v; want error %v", s, n, err, proxyproto.ErrNoHeader)
		}
	}
}

// Guarantee: the beginning of a signature may still become a header.
func TestPartOfSignatureNeedsMoreBytes(t *testing.T) {
	if n, err := proxyproto.Measure([]byte("PROX")); n != 0 || err != nil {
		t.Errorf("got length %d, error %v; want 0, no error", n, err)
	}
}

// Guarantee: a header that deviates from the specification is malformed.
func TestMalformedHeaders(t *testing.T) {
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
		v2(0x21, 0x11, addresses4+tlv(0x03, "\x00\x00\x00")),
		v2(0x21, 0x11, addresses4+tlv(0x03, "\x00\x00\x00\x00")),
		strings.Replace(withChecksum(0x21, 0x11, addresses4), "\xc0", "\xc1", 1),
	} {
		if h, err := proxyproto.Parse([]byte(s)); !errors.Is(err, proxyproto.ErrMalformed) {
			t.Errorf("%q: got %v, error %v; want error %v", s, h, err, proxyproto.ErrMalformed)
		}
	}
}

// Guarantee: a header with a byte too few or too many is refused.
func TestHeadersOfAnotherLength(t *testing.T) {
	for _, tc := range vectors {
		for _, s := range []string{tc.header[:len(tc.header)-1], tc.header + "x"} {
			if h, err := proxyproto.Parse([]byte(s)); err == nil {
				t.Errorf("%s: %d bytes of a header of %d: got %v, want an error", tc.name, len(s), len(tc.header), h)
			}
		}
	}
}

// Guarantee: no input makes the parser panic, the measured length does not change as
// bytes arrive, and an accepted header has both addresses or neither.
func FuzzParse(f *testing.F) {
	for _, tc := range vectors {
		f.Add([]byte(tc.header))
	}
	f.Add([]byte(withChecksum(0x21, 0x21, addresses6)))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := proxyproto.Measure(b)
		if err != nil || n == 0 {
			if _, perr := proxyproto.Parse(b); perr == nil {
				t.Fatal("Parse accepted a header that Measure did not measure")
			}
			return
		}
		for i := range min(len(b), n) {
			if early, err := proxyproto.Measure(b[:i]); err != nil || early != 0 && early != n {
				t.Fatalf("first %d bytes: got length %d, error %v; want 0 or %d, no error", i, early, err, n)
			}
		}
		if n > len(b) {
			return
		}
		h, err := proxyproto.Parse(b[:n])
		switch {
		case err != nil && !errors.Is(err, proxyproto.ErrMalformed):
			t.Errorf("got error %v, want %v", err, proxyproto.ErrMalformed)
		case h.Source.IsValid() && !h.Destination.IsValid():
			t.Errorf("got %v, want a destination as well", h)
		case !h.Source.IsValid() && h.Destination.IsValid():
			t.Errorf("got %v, want a source as well", h)
		case h.Source.Addr().Is4In6() || h.Source.Addr().Zone() != "":
			t.Errorf("got source %v, want a plain address without a zone", h.Source)
		}
	})
}
