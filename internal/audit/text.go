package audit

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"

	"github.com/keygate/keygate/internal/id"
)

// errDamaged is the error for content that no encoder has written.
var errDamaged = errors.New("the block is damaged")

// The encodings of a text in a dictionary. The first byte is the encoding; identifiers
// and addresses are encoded in binary.
const (
	absent   = 0
	asBytes  = 1 // the 16 bytes of an identifier
	asText   = 2 // a length and the text
	asIPv4   = 3
	asIPv6   = 4
	longText = 1 << 20 // maximum length of a text, in bytes
)

func appendText(b []byte, s string) []byte {
	if s == "" {
		return append(b, absent)
	}
	b = binary.AppendUvarint(append(b, asText), uint64(len(s)))
	return append(b, s...)
}

func appendID(b []byte, k id.Kind, s string) []byte {
	if u, ok := id.Parse(k, s); ok && u != [16]byte{} {
		return append(append(b, asBytes), u[:]...)
	}
	return appendText(b, s)
}

func appendIDBytes(b []byte, u [16]byte) []byte {
	if u == [16]byte{} {
		return append(b, absent)
	}
	return append(append(b, asBytes), u[:]...)
}

// tokenMark begins the text that stands for a token in the place of the identifier of a key. No identifier begins with it.
const tokenMark = "token "

// appendToken appends what stands for a token in the place of the identifier of a key: tokenMark, the issuer's identifier, a
// space and the subject. Versions that know no tokens read it as a text.
func appendToken(b []byte, issuerID, subject string) []byte {
	b = binary.AppendUvarint(append(b, asText), uint64(len(tokenMark)+len(issuerID)+1+len(subject)))
	b = append(append(b, tokenMark...), issuerID...)
	return append(append(b, ' '), subject...)
}

func appendAddress(b []byte, s string) []byte {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() || a.String() != s {
		return appendText(b, s)
	}
	return appendAddr(b, a)
}

func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		v := a.As4()
		return append(append(b, asIPv4), v[:]...)
	}
	v := a.As16()
	return append(append(b, asIPv6), v[:]...)
}

// reader decodes values from bytes. After the first failure it returns zero values, and
// err is set.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() { r.b, r.err = nil, errDamaged }

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// size reads a length. It fails if the length is above most.
func (r *reader) size(most int) int {
	v := r.uvarint()
	if v > uint64(most) {
		r.fail()
		return 0
	}
	return int(v)
}

// text reads a text. k is the kind of the identifiers that it may be.
func (r *reader) text(k id.Kind) string {
	switch r.byte() {
	case absent:
		return ""
	case asBytes:
		if b := r.take(16); b != nil {
			return id.Format(k, [16]byte(b))
		}
	case asIPv4:
		if b := r.take(4); b != nil {
			return netip.AddrFrom4([4]byte(b)).String()
		}
	case asIPv6:
		if b := r.take(16); b != nil {
			return netip.AddrFrom16([16]byte(b)).String()
		}
	case asText:
		return string(r.take(r.size(longText)))
	default:
		r.fail()
	}
	return ""
}

// skipText skips a text.
func (r *reader) skipText() {
	switch r.byte() {
	case absent:
	case asBytes, asIPv6:
		r.take(16)
	case asIPv4:
		r.take(4)
	case asText:
		r.take(r.size(longText))
	default:
		r.fail()
	}
}

// end returns an error after a failure, or if bytes are left.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return errDamaged
	}
	return r.err
}

// cutText splits s after the first encoded text, which must be an identifier, a plain text or
// absent, as in the encoding of a caller.
func cutText(s string) (written, rest string, ok bool) {
	if s == "" {
		return "", "", false
	}
	n := 1
	switch s[0] {
	case absent:
	case asBytes:
		n += 16
	case asText:
		size, used := binary.Uvarint([]byte(s[1:min(len(s), 1+binary.MaxVarintLen64)]))
		if used <= 0 || size > longText {
			return "", "", false
		}
		n += used + int(size)
	default:
		return "", "", false
	}
	if n > len(s) {
		return "", "", false
	}
	return s[:n], s[n:], true
}

// readText decodes the encoded text s.
func readText(s string, k id.Kind) string {
	r := reader{b: []byte(s)}
	return r.text(k)
}

// readCredential decodes the encoded identifier of a key, or what appendToken has written.
func readCredential(s string) (keyID, issuerID, subject string, token bool) {
	text := readText(s, id.Key)
	of, token := strings.CutPrefix(text, tokenMark)
	if !token {
		return text, "", "", false
	}
	issuerID, subject, _ = strings.Cut(of, " ")
	return "", issuerID, subject, true
}

// writtenNothing is the encoding of an absent text.
const writtenNothing = "\x00"
