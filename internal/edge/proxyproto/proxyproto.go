// Package proxyproto reads the headers of the PROXY protocol, versions 1 and 2,
// with which a load balancer that forwards connections tells from whom they
// came (haproxy.org/download/3.0/doc/proxy-protocol.txt). It does no I/O: Measure
// says how many bytes to take from the connection, Parse reads them.
//
// It is strict: a header that is not wholly as specified is an error, since
// what follows it could not be told from the header.
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

	// MaxV1 is the greatest length of a header of version 1, in bytes.
	MaxV1 = 107
	fixed = 16 // bytes of a header of version 2 before its addresses
)

var (
	// ErrNone tells that the bytes begin no header of the PROXY protocol.
	ErrNone = errors.New("proxyproto: no header")
	// ErrMalformed tells that the bytes begin with the signature of a header
	// but are none.
	ErrMalformed = errors.New("proxyproto: malformed header")
)

// Header is what a header tells.
type Header struct {
	// Source is the client's address, Destination the one that it connected to.
	// Both are invalid if the header does not say: the connection is the load
	// balancer's own, or of a kind that has no addresses.
	Source, Destination netip.AddrPort
}

// Measure returns the length of the header that buf, the first bytes of a
// connection, begins with; 0 while that needs more bytes. At most MaxV1 bytes
// are needed. The errors are ErrNone and ErrMalformed.
func Measure(buf []byte) (length int, err error) {
	switch {
	case begins(buf, signature1):
		return measure1(buf)
	case begins(buf, signature2):
		if len(buf) < fixed {
			return 0, nil
		}
		return fixed + int(binary.BigEndian.Uint16(buf[14:])), nil
	default:
		return 0, ErrNone
	}
}

// begins reports whether buf and signature are the same as far as both go.
func begins(buf []byte, signature string) bool {
	n := min(len(buf), len(signature))
	return string(buf[:n]) == signature[:n]
}

func measure1(buf []byte) (length int, err error) {
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

// Parse reads a header of the length that Measure told. The errors are ErrNone
// and ErrMalformed.
func Parse(header []byte) (Header, error) {
	switch n, err := Measure(header); {
	case err != nil:
		return Header{}, err
	case n != len(header) || n == 0:
		return Header{}, ErrMalformed
	case header[0] == signature1[0]:
		return parse1(string(header[:n-2]))
	default:
		return parse2(header)
	}
}
