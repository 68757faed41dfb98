package apikey

import (
	"encoding/hex"
	"strings"
)

// Redact returns s with every key string in it replaced by its prefix and "***": some clients put
// key strings into a path, which is recorded. It also finds key strings with percent-encoded
// characters.
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

// redact recognizes key strings by their checksum, so strings that only look like one stay.
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

// decode decodes the percent-encoded characters that a key string may contain.
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
