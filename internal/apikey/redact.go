package apikey

import (
	"encoding/hex"
	"strings"
)

// Redact returns s with nothing but the prefix of each key string in it: some
// callers put theirs into a path, where it would be recorded. Characters of a key
// that stand percent-encoded count as what they are.
func Redact(s string) string {
	s = redact(s)
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	plain := decode(s)
	if r := redact(plain); r != plain {
		return r
	}
	return s
}

// redact knows keys by their checksum alone, so that a look-alike stays.
func redact(s string) string {
	for from := 0; ; from++ {
		i := strings.Index(s[from:], "kg")
		if i < 0 {
			return s
		}
		from += i
		for _, size := range [...]int{GatewayLen, AccountLen} {
			if from+size > len(s) {
				continue
			}
			if prefix := PrefixOf(s[from : from+size]); prefix != "" {
				s = s[:from] + prefix + "***" + s[from+size:]
				break
			}
		}
	}
}

// decode decodes the characters that a key may have.
func decode(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		var c [1]byte
		if s[i] == '%' && i+3 <= len(s) {
			if _, err := hex.Decode(c[:], []byte(s[i+1:i+3])); err == nil && (c[0] == '_' || isBase62(c[0])) {
				b = append(b, c[0])
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}
