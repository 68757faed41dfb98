package http1

import (
	"encoding/binary"
)

// token holds true for the bytes allowed in a token (RFC 9110, 5.6.2).
var token = makeTable("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") //nolint:gochecknoglobals // a table that is never written

func makeTable(members string) (t [256]bool) {
	for i := range len(members) {
		t[members[i]] = true
	}
	return t
}

// IsToken reports whether b is a token: one or more tchar (RFC 9110, 5.6.2).
func IsToken(b []byte) bool { return isToken(b) }

// IsFieldText reports whether b is valid as a field value, apart from white space around it.
func IsFieldText(b []byte) bool { return isFieldText(b) }

// IsTargetText reports whether b has only bytes that a request's target may have.
func IsTargetText(b []byte) bool { return isTargetText(b) }

func isToken(b []byte) bool {
	for _, c := range b {
		if !token[c] {
			return false
		}
	}
	return len(b) > 0
}

// Masks for testing eight bytes of a word at once: 1 in each byte, and the high bit of
// each byte.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// isFieldText reports whether b is valid as a field value: it contains no control byte
// other than HTAB; obs-text is allowed (RFC 9110, 5.5). It tests 8 bytes at a time, and
// single bytes only in a word that may contain a control byte.
func isFieldText(b []byte) bool {
	if len(b) < 8 {
		return isFieldTextBytewise(b)
	}
	for i := 0; ; i += 8 {
		i = min(i, len(b)-8) // the last word may overlap the one before
		if w := binary.LittleEndian.Uint64(b[i:]); hasControl(w) && !isFieldTextBytewise(b[i:i+8]) {
			return false
		}
		if i == len(b)-8 {
			return true
		}
	}
}

// hasControl reports whether a byte of w is below 0x20 or is 0x7f. It has false positives,
// when a subtraction borrows from the next byte, but no false negatives.
func hasControl(w uint64) bool {
	del := w ^ (0x7f * ones)
	return ((w-0x20*ones)&^w|(del-ones)&^del)&highs != 0
}

// isFieldTextBytewise is isFieldText, one byte at a time.
func isFieldTextBytewise(b []byte) bool {
	for _, c := range b {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isTargetText reports whether b contains no control byte, space or DEL. Bytes from 0x80
// up are allowed, because clients send them for letters beyond ASCII. Package admit
// decides whether the target is a valid path.
func isTargetText(b []byte) bool {
	for len(b) >= 8 {
		w := binary.LittleEndian.Uint64(b)
		del := w ^ (0x7f * ones)
		// As in hasControl, but with the space counted as a control byte.
		if ((w-0x21*ones)&^w|(del-ones)&^del)&highs != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c <= 0x20 || c == 0x7f {
			return false
		}
	}
	return true
}

// trim returns s without optional white space at either end (RFC 9110, 5.6.3).
func trim(b []byte, s Span) Span {
	for s.Start < s.End && (b[s.Start] == ' ' || b[s.Start] == '\t') {
		s.Start++
	}
	for s.Start < s.End && (b[s.End-1] == ' ' || b[s.End-1] == '\t') {
		s.End--
	}
	return s
}

// EqualFold reports whether b equals lower, ignoring the case of ASCII letters. lower
// must be in lower case.
func EqualFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c != lower[i] && (c|0x20 != lower[i] || c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

// EachElement calls f with each non-empty element of a comma-separated list (RFC 9110,
// 5.6.1), without the white space around it, until f returns false.
func EachElement(value []byte, f func(element []byte) bool) {
	for start := 0; start <= len(value); {
		end := start
		for end < len(value) && value[end] != ',' {
			end++
		}
		s := trim(value, Span{uint32(start), uint32(end)})
		if s.Start < s.End && !f(value[s.Start:s.End]) {
			return
		}
		start = end + 1
	}
}

// parseLength parses a Content-Length: 1 to 18 decimal digits (RFC 9110, 8.6; contract,
// 4.5).
func parseLength(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
