package trace

import "encoding/hex"

// parent is a traceparent header (W3C Trace Context).
type parent struct {
	trace   [16]byte
	span    [8]byte
	sampled bool
}

const (
	parentLen   = 55 // of version 00
	flagSampled = 1
)

// parseParent parses a traceparent header. ok is false if it is not valid. In versions after 00 it
// parses the part that all versions share.
func parseParent(s []byte) (p parent, ok bool) {
	if len(s) < parentLen || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return p, false
	}
	var version, flags [1]byte
	for _, part := range []struct {
		to   []byte
		from []byte
	}{{version[:], s[:2]}, {p.trace[:], s[3:35]}, {p.span[:], s[36:52]}, {flags[:], s[53:55]}} {
		if !lowerHex(part.from) {
			return p, false
		}
		_, _ = hex.Decode(part.to, part.from) // lowerHex has checked it
	}
	switch {
	case version[0] == 0xff, version[0] == 0 && len(s) != parentLen, len(s) > parentLen && s[parentLen] != '-':
		return p, false
	}
	p.sampled = flags[0]&flagSampled != 0
	return p, p.trace != [16]byte{} && p.span != [8]byte{}
}

func lowerHex(s []byte) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// appendParent appends a traceparent header of version 00.
func appendParent(dst []byte, p parent) []byte {
	dst = append(dst, "00-"...)
	dst = hex.AppendEncode(dst, p.trace[:])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, p.span[:])
	if p.sampled {
		return append(dst, "-01"...)
	}
	return append(dst, "-00"...)
}
