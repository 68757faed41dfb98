package http1

import (
	"encoding/binary"
)

// token tells the bytes of a token (RFC 9110, 5.6.2).
var token = makeTable("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") //nolint:gochecknoglobals // a table that is never written

func makeTable(members string) (t [256]bool) {
	for i := range len(members) {
		t[members[i]] = true
	}
	return t
}

// IsToken reports whether b is a token (RFC 9110, 5.6.2).
func IsToken(b []byte) bool { return isToken(b) }

// isToken reports whether b is a token: at least one byte, all of them tchar.
func isToken(b []byte) bool {
	for _, c := range b {
		if !token[c] {
			return false
		}
	}
	return len(b) > 0
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// isFieldText reports whether b holds no control byte but HTAB: the content of
// a field value, obs-text included (RFC 9110, 5.5). It looks at 8 bytes at a
// time, and at single ones only where a word holds something below a space or
// a DEL.
func isFieldText(b []byte) bool {
	if len(b) < 8 {
		return plainWithTabs(b)
	}
	for i := 0; ; i += 8 {
		i = min(i, len(b)-8) // the last word may look at some bytes again
		if w := binary.LittleEndian.Uint64(b[i:]); hasControl(w) && !plainWithTabs(b[i:i+8]) {
			return false
		}
		if i == len(b)-8 {
			return true
		}
	}
}

// hasControl reports whether a byte of w is below 0x20 or is 0x7f. It may say
// so of a word in which a borrow crossed bytes, never miss one.
func hasControl(w uint64) bool {
	del := w ^ (0x7f * ones)
	return ((w-0x20*ones)&^w|(del-ones)&^del)&highs != 0
}

func plainWithTabs(b []byte) bool {
	for _, c := range b {
		if c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isTargetText reports whether b holds no control byte, space or DEL. Bytes from
// 0x80 up, which clients send for letters beyond ASCII, pass. Which of the rest
// makes a path is admit's to say.
func isTargetText(b []byte) bool {
	for len(b) >= 8 {
		w := binary.LittleEndian.Uint64(b)
		del := w ^ (0x7f * ones)
		// The bound of 0x21 makes the space a control as well.
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

// trim removes optional white space from both ends (RFC 9110, 5.6.3).
func trim(b []byte, s Span) Span {
	for s.Start < s.End && (b[s.Start] == ' ' || b[s.Start] == '\t') {
		s.Start++
	}
	for s.Start < s.End && (b[s.End-1] == ' ' || b[s.End-1] == '\t') {
		s.End--
	}
	return s
}

// EqualFold reports whether b equals lower, which is in lower case, without
// regard to the case of ASCII letters.
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

// EachElement calls f with every non-empty element of a comma-separated list,
// trimmed (RFC 9110, 5.6.1), until f returns false.
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

// parseLength reads a Content-Length: decimal digits alone, at most 18 of
// them (RFC 9110, 8.6; contract, 4.5).
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
