package document

import (
	"fmt"
	"strings"
)

// Scalar returns s as a YAML scalar that every parser, also of YAML 1.1, reads as that
// string: plain if that is safe, otherwise in double quotes.
func Scalar(s string) string {
	if isPlain(s) {
		return s
	}
	return Quoted(s)
}

// Quoted returns s in double quotes on one line, in a form that YAML and JSON share.
func Quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Flow returns a flow sequence. It quotes what could end an item.
func Flow(list []string) string {
	items := make([]string, len(list))
	for i, s := range list {
		items[i] = Scalar(s)
		if strings.ContainsAny(s, "{}") {
			items[i] = Quoted(s)
		}
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// isPlain reports whether s is a plain scalar in block context, and in flow context if it is a
// method: it starts with a letter or slash, contains nothing that could end it, and is not a
// word for a boolean or null.
func isPlain(s string) bool {
	switch strings.ToLower(s) {
	case "", "true", "false", "yes", "no", "on", "off", "y", "n", "null":
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '/':
		case i == 0:
			return false
		case '0' <= c && c <= '9' || strings.IndexByte("-_.~{}*%+=&;!$()@", c) >= 0:
		case c == ':' && i+1 < len(s) && s[i+1] != ' ':
		case c == ' ' && i+1 < len(s):
		default:
			return false
		}
	}
	return true
}

// ReplaceScalar returns a document with another scalar in the place of n, a string of it. by is in a form that YAML and
// JSON share. ok is false if n is not written on one line, plain or in quotes without escapes.
func ReplaceScalar(content []byte, n *Node, by string) (changed []byte, ok bool) {
	text := string(TrimMark(content))
	at := offsetOf(text, n.Position)
	for _, written := range []string{n.Text, `"` + n.Text + `"`, "'" + n.Text + "'"} {
		if n.Kind == String && n.Text != "" && strings.HasPrefix(text[at:], written) {
			return []byte(text[:at] + by + text[at+len(written):]), true
		}
	}
	return nil, false
}
