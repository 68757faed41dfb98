package http1

import "strings"

// MaxAuthority is the length of the longest valid authority: a name of 255 bytes and ":65535".
const MaxAuthority = 255 + 6

// ValidAuthority reports whether s is a host with an optional port (RFC 3986, 3.2.2 and
// 3.2.3), without userinfo, of at most MaxAuthority bytes.
func ValidAuthority(s string) bool {
	if len(s) > MaxAuthority {
		return false
	}
	var name, port string
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return false
		}
		if name, port = s[1:end], s[end+1:]; port != "" && port[0] != ':' {
			return false
		}
		for i := range len(name) {
			if c := name[i]; unhex(c) < 0 && c != ':' && c != '.' {
				return false
			}
		}
		port = strings.TrimPrefix(port, ":")
	} else {
		name, port, _ = strings.Cut(s, ":")
		for i := range len(name) {
			if !isNameByte(name[i]) {
				return false
			}
		}
	}
	for i := range len(port) {
		if port[i] < '0' || port[i] > '9' {
			return false
		}
	}
	return name != ""
}

// isNameByte reports whether c is allowed in a registered name (RFC 3986, 3.2.2). No
// gateway has a name with escapes or delimiters, but such a name is valid.
func isNameByte(c byte) bool { return c < 0x80 && inName[c] == 'x' }

// inName has an x at the index of each byte of a registered name.
const inName = "" +
	"................................" +
	".x..xxxxxxxxxxx.xxxxxxxxxx.x.x.." +
	".xxxxxxxxxxxxxxxxxxxxxxxxxx....x" +
	".xxxxxxxxxxxxxxxxxxxxxxxxxx...x."
