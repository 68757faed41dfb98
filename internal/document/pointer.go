package document

import "strings"

// EscapeToken returns a name as a token of a JSON pointer (RFC 6901, section 3).
func EscapeToken(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// UnescapeToken returns the name that a token of a JSON pointer has (RFC 6901, section 4).
func UnescapeToken(token string) string {
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
}
