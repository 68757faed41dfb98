// Package proxyproto parses PROXY protocol headers, versions 1 and 2, as specified in
// haproxy.org/download/3.0/doc/proxy-protocol.txt. A load balancer sends such a header
// at the start of a connection to name the client on whose behalf it connects.
//
// The package does no I/O: Measure returns how many bytes of the connection are the
// header, and Parse parses them.
//
// Parsing is strict. Any deviation from the specification is an error, because the
// end of the header, where the client's bytes begin, would then be in doubt.
package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
)

const (
	signature1 = "PROXY "
	signature2 = "\r\n\r\n\x00\r\nQUIT\n"

	// MaxV1 is the maximum length of a version 1 header, in bytes.
	MaxV1 = 107
	// fixedV2 is the length of a version 2 header up to its addresses, in bytes.
	fixedV2 = 16
)

var (
	// ErrNoHeader reports that the bytes do not begin with the signature of a PROXY
	// header.
	ErrNoHeader = errors.New("proxyproto: no header")
	// ErrMalformed reports that the bytes begin with the signature of a PROXY header
	// but the rest of the header is not valid.
	ErrMalformed = errors.New("proxyproto: malformed header")
)

// Header is a parsed PROXY header.
type Header struct {
	// Source is the client's address, and Destination the address to which the
	// client connected. Both are the zero AddrPort if the header does not name a TCP
	// client: the connection is the load balancer's own, or of another family.
	Source, Destination netip.AddrPort
}

// Measure returns the length in bytes of the PROXY header at the start of buf, the
// first bytes of a connection. It returns 0 if more bytes are needed to know; MaxV1
// bytes are always enough. The errors are ErrNoHeader and ErrMalformed.
func Measure(buf []byte) (length int, err error) {
	switch {
	case samePrefix(buf, signature1):
		return measureV1(buf)
	case samePrefix(buf, signature2):
		if len(buf) < fixedV2 {
			return 0, nil
		}
		return fixedV2 + int(binary.BigEndian.Uint16(buf[14:])), nil
	default:
		return 0, ErrNoHeader
	}
}

// samePrefix reports whether buf begins with signature, or is the beginning of it.
func samePrefix(buf []byte, signature string) bool {
	n := min(len(buf), len(signature))
	return string(buf[:n]) == signature[:n]
}

func measureV1(buf []byte) (length int, err error) {
	end := bytes.IndexByte(buf[:min(len(buf), MaxV1)], '\n')
	switch {
	case end > 0 && buf[end-1] == '\r':
		return end + 1, nil
	case end >= 0 || len(buf) >= MaxV1:
		return 0, ErrMalformed
	default:
		return 0, nil
	}
}

// Parse parses a header, which must have the length that Measure returns. The errors
// are ErrNoHeader and ErrMalformed.
func Parse(header []byte) (Header, error) {
	switch n, err := Measure(header); {
	case err != nil:
		return Header{}, err
	case n != len(header) || n == 0:
		return Header{}, ErrMalformed
	case header[0] == signature1[0]:
		return parseV1(string(header[:n-2]))
	default:
		return parseV2(header)
	}
}
