package gateway

import (
	"math/bits"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// The problems that InspectPath reports. They are public messages.
const (
	badStart    = "the path must start with a slash"
	badEmpty    = "the path contains an empty segment"
	badDots     = "the path contains a dot segment"
	badEscape   = "the path contains a % that is not followed by two hexadecimal digits"
	badEncoded  = EncodedSlash
	badControl  = "the path contains a control byte, plain or encoded"
	badSlash    = "the path contains a backslash"
	badMark     = "the path contains a ? or #"
	badUTF8     = "the path contains bytes that are not valid UTF-8: percent-encode them"
	badOverlong = "the path contains a dot, slash or backslash in an overlong UTF-8 form"
)

// Classes of bytes in a path.
const (
	plain     = ' ' // unchanged in the normal form
	slash     = '/' // separates segments
	percent   = '%' // starts an escape
	raw       = 'r' // must be escaped in the normal form
	control   = 'c'
	backslash = 'b'
	mark      = '?' // ? and #
)

// pathClass gives the class of each byte.
const pathClass = "" +
	"cccccccccccccccc" +
	"cccccccccccccccc" +
	"r r? %         /" +
	"            r r?" +
	"                " +
	"           rbrr " +
	"r               " +
	"           rrr c" +
	"rrrrrrrrrrrrrrrr" +
	"rrrrrrrrrrrrrrrr" +
	"rrrrrrrrrrrrrrrr" +
	"rrrrrrrrrrrrrrrr" +
	"rrrrrrrrrrrrrrrr" +
	"rrrrrrrrrrrrrrrr" +
	"rrrrrrrrrrrrrrrr" +
	"rrrrrrrrrrrrrrrr"

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// EncodedSlash is the public message about a path with an encoded slash or backslash, for
// a gateway that does not allow them.
const EncodedSlash = "the path contains an encoded slash or backslash"

// EncodedSlashFirst is the public message about a path that would begin with an encoded slash or backslash for the upstream.
const EncodedSlashFirst = "the path has an encoded slash or backslash behind the prefix that the route cuts off"

// StripSegments returns path, which is well formed, without its first n segments: "/" if nothing is left. ok is false if
// the rest begins with an encoded slash or backslash, which some servers take for one that begins an authority.
func StripSegments(path string, n int) (rest string, ok bool) {
	for range n {
		i := strings.IndexByte(path[1:], '/')
		if i < 0 {
			return "/", true
		}
		path = path[1+i:]
	}
	if len(path) > 3 && path[1] == '%' {
		if c, is := unescape(path[1:]); is && (c == '/' || c == '\\') {
			return "", false
		}
	}
	return path, true
}

// InspectPath checks that a request's path is well formed (contract, 4.5). problem is ""
// or a public message that says what is wrong. normal reports whether the path is already
// in the normal form of NormalizePath. It does not allocate.
func InspectPath(path string) (problem string, normal bool) {
	problem, normal, encoded := InspectRequestPath(path)
	if problem == "" && encoded {
		return badEncoded, false
	}
	return problem, normal
}

// InspectRequestPath is InspectPath for a gateway that may have allow_encoded_slashes.
// encoded reports whether a segment has an encoded slash or backslash. Between those, too,
// a dot segment is a problem.
func InspectRequestPath(path string) (problem string, normal, encoded bool) {
	if path == "" || path[0] != '/' {
		return badStart, false, false
	}
	normal = true
	for i := 0; i < len(path); i++ {
		class := pathClass[path[i]]
		if class == plain {
			continue
		}
		switch class {
		case slash:
			if i+1 == len(path) {
				continue
			}
			switch path[i+1] {
			case '/':
				return badEmpty, false, false
			case '.', '%':
				if isDotSegment(path[i+1:]) {
					return badDots, false, false
				}
			}
		case percent:
			c, ok := unescape(path[i:])
			switch {
			case !ok:
				return badEscape, false, false
			case c < 0x20 || c == 0x7f:
				return badControl, false, false
			case c >= 0xc0 && isOverlong(path[i:]):
				return badOverlong, false, false
			case isUnreserved(c), path[i+1] >= 'a', path[i+2] >= 'a':
				normal = false
			}
			if c == '/' || c == '\\' {
				if encoded = true; isDotSegment(path[i+3:]) {
					return badDots, false, false
				}
			}
			i += 2
		case raw:
			normal = false
			if path[i] >= utf8.RuneSelf {
				size := runeSize(path[i:])
				if size == 0 {
					return badUTF8, false, false
				}
				i += size - 1
			}
		case control:
			return badControl, false, false
		case backslash:
			return badSlash, false, false
		case mark:
			return badMark, false, false
		}
	}
	return "", normal, encoded
}

// runeSize returns the size of the character at the start of s, 0 if it is not valid UTF-8.
func runeSize(s string) int {
	r, size := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && size == 1 {
		return 0
	}
	return size
}

// isDotSegment reports whether the first segment of s is one or two dots, plain or
// encoded. Anything after a semicolon is ignored, because some servers remove it as a parameter
// before they resolve dot segments.
func isDotSegment(s string) bool {
	for range 2 {
		switch {
		case s != "" && s[0] == '.':
			s = s[1:]
		case len(s) >= 3 && s[0] == '%' && s[1] == '2' && s[2]|0x20 == 'e':
			s = s[3:]
		default:
			return false
		}
		if s == "" || s[0] == '/' || s[0] == ';' || isEncodedEnd(s) {
			return true
		}
	}
	return false
}

// isEncodedEnd reports whether s begins with an encoded slash, backslash or semicolon.
func isEncodedEnd(s string) bool {
	return len(s) >= 3 && s[0] == '%' &&
		(s[1] == '2' && s[2]|0x20 == 'f' || s[1] == '5' && s[2]|0x20 == 'c' || s[1] == '3' && s[2]|0x20 == 'b')
}

// isOverlong reports whether the escapes at the start of s are a dot, slash or backslash
// in more than one byte, which UTF-8 forbids and lenient decoders accept (RFC 3629, 3 and
// 10). The first escape must be valid.
func isOverlong(s string) bool {
	lead, _ := unescape(s)
	size := bits.LeadingZeros8(^lead) // of the whole sequence
	value := uint(lead & (0x7f >> size))
	for range size - 1 {
		s = s[3:]
		c, ok := unescape(s)
		if !ok || s[0] != '%' || c&0xc0 != 0x80 {
			return false
		}
		value = value<<6 | uint(c&0x3f)
	}
	return size > 1 && (value == '.' || value == '/' || value == '\\')
}

// unescape decodes the escape at the start of s.
func unescape(s string) (c byte, ok bool) {
	if len(s) < 3 {
		return 0, false
	}
	hi, lo := unhex(s[1]), unhex(s[2])
	return hi<<4 | lo&0x0f, hi|lo < 0x10
}

// unhex returns the value of a hexadecimal digit, or 0xff.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	default:
		return 0xff
	}
}

// NormalizePath returns the normal form of a path, in which routes and scopes are matched,
// so that all spellings of a path take the same route. Percent-encoded unreserved
// characters are decoded (RFC 3986, 6.2.2.2), the digits of other escapes are in upper case
// (6.2.2.1), and bytes that are not allowed in a path are escaped. A % that does not start
// an escape stays.
//
// A path in normal form is returned unchanged. Otherwise the result is written over dst and
// is valid until dst changes. NormalizePath allocates only if dst is too small.
func NormalizePath(dst []byte, path string) string {
	i := 0
	for i < len(path) && !changes(path, i) {
		i++
	}
	if i == len(path) {
		return path
	}
	const upperhex = "0123456789ABCDEF"
	dst = append(dst[:0], path[:i]...)
	for ; i < len(path); i++ {
		c := path[i]
		switch pathClass[c] {
		case percent:
			d, ok := unescape(path[i:])
			switch {
			case !ok:
				dst = append(dst, '%')
			case isUnreserved(d):
				dst = append(dst, d)
				i += 2
			default:
				dst = append(dst, '%', upperhex[d>>4], upperhex[d&15])
				i += 2
			}
		case raw:
			dst = append(dst, '%', upperhex[c>>4], upperhex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return unsafe.String(unsafe.SliceData(dst), len(dst)) //nolint:gosec // string(dst) would allocate on the request path; the comment above says how long the result is valid
}

// changes reports whether the normal form differs from path at i.
func changes(path string, i int) bool {
	switch pathClass[path[i]] {
	case raw:
		return true
	case percent:
		c, ok := unescape(path[i:])
		return ok && (isUnreserved(c) || path[i+1] >= 'a' || path[i+2] >= 'a')
	default:
		return false
	}
}
