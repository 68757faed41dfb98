package apikey

import (
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"unsafe"
)

// The format of a key string: a tag, 30 random base 62 characters, and the CRC-32 of
// both, in 6 base 62 characters (contract, 3.1).
const (
	gatewayTag  = "kg_"
	accountTag  = "kga_"
	userTag     = "kgs_"
	randomLen   = 30
	checksumLen = 6
	prefixLen   = 6 // random characters in a prefix
	base62      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// The lengths of the key strings.
const (
	GatewayLen = len(gatewayTag) + randomLen + checksumLen
	AccountLen = len(accountTag) + randomLen + checksumLen // also of the token of a user
)

// Level says which part of Keygate a key gives access to.
type Level string

// The levels.
const (
	GatewayLevel Level = "gateway" // the data plane
	AccountLevel Level = "account" // the management API

	// UserLevel is that of the tokens of users (identity.md, section 3), which have the form of a key string and are no
	// keys. No key has it, so it is not Valid.
	UserLevel Level = "user"
)

// Valid reports whether l is one of the levels of keys.
func (l Level) Valid() bool { return l == GatewayLevel || l == AccountLevel }

func (l Level) tag() string {
	switch l {
	case AccountLevel:
		return accountTag
	case UserLevel:
		return userTag
	}
	return gatewayTag
}

// Digest is the SHA-256 of a whole key string or, as a field of an imported key, what ImportedDigest returns. Only the
// digest is stored.
type Digest [sha256.Size]byte

// DigestOf returns the digest of the key string s. It does not allocate.
func DigestOf(s string) Digest {
	var b [len(accountTag) + randomLen + checksumLen]byte
	if len(s) > len(b) { // of an imported key, or of no key
		return sha256.Sum256(unsafe.Slice(unsafe.StringData(s), len(s))) //nolint:gosec // only read, as in checksumOf
	}
	n := copy(b[:], s)
	return sha256.Sum256(b[:n])
}

// Generate returns a new key string of the given level. random must be a cryptographic source
// of randomness; its error is returned.
func Generate(l Level, random io.Reader) (string, error) {
	b := make([]byte, 0, len(accountTag)+randomLen+checksumLen)
	b = append(b, l.tag()...)
	var chunk [64]byte
	for want := len(b) + randomLen; len(b) < want; {
		if _, err := io.ReadFull(random, chunk[:]); err != nil {
			return "", fmt.Errorf("read randomness: %w", err)
		}
		for _, r := range chunk {
			// 248 is the largest multiple of 62 below 256: bytes beyond it
			// would favour some characters.
			if r < 248 && len(b) < want {
				b = append(b, base62[r%62])
			}
		}
	}
	return string(appendChecksum(b, crc32.ChecksumIEEE(b))), nil
}

func appendChecksum(b []byte, sum uint32) []byte {
	var digits [checksumLen]byte
	for i := checksumLen - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return append(b, digits[:]...)
}

// LevelOf returns the level of the key string s. ok is false if s does not have the format and
// checksum of a key string, so no key can have it. LevelOf does not allocate.
func LevelOf(s string) (l Level, ok bool) {
	if l, _, ok = Peek(s); !ok {
		return "", false
	}
	body, sum := s[:len(s)-checksumLen], s[len(s)-checksumLen:]
	for i := len(l.tag()); i < len(body); i++ {
		if !isBase62(body[i]) {
			return "", false
		}
	}
	var room [checksumLen]byte
	return l, string(appendChecksum(room[:0], checksumOf(body))) == sum
}

// checksumOf returns the CRC-32 of s. It passes s without a copy: crc32 only reads its
// argument, but the argument escapes, so a copy would be an allocation for each request.
func checksumOf(s string) uint32 {
	return crc32.ChecksumIEEE(unsafe.Slice(unsafe.StringData(s), len(s))) //nolint:gosec // see above
}

// isBase62 reports whether c is a base 62 character. It uses a table: the characters of a
// key string are random, so a processor would mispredict every other comparison.
func isBase62(c byte) bool { return c < 0x80 && inBase62[c] == 'x' }

// inBase62 has an x at the index of each base 62 character.
const inBase62 = "" +
	"................................" +
	"................xxxxxxxxxx......" +
	".xxxxxxxxxxxxxxxxxxxxxxxxxx....." +
	".xxxxxxxxxxxxxxxxxxxxxxxxxx....."

// PrefixOf returns the part of a key string that may be shown, its tag and first 6 random
// characters, or "" if s does not have the format and checksum of a key string.
func PrefixOf(s string) string {
	_, prefix, _ := Inspect(s)
	return prefix
}

// Peek returns the level and prefix of s by its length and tag alone. That is enough for a
// string whose digest is known, since only a key string can have such a digest.
func Peek(s string) (l Level, prefix string, ok bool) {
	switch {
	case len(s) == len(gatewayTag)+randomLen+checksumLen && s[:len(gatewayTag)] == gatewayTag:
		l = GatewayLevel
	case len(s) == len(accountTag)+randomLen+checksumLen && s[:len(accountTag)] == accountTag:
		l = AccountLevel
	case len(s) == len(userTag)+randomLen+checksumLen && s[:len(userTag)] == userTag:
		l = UserLevel
	default:
		return "", "", false
	}
	return l, s[:len(s)-randomLen-checksumLen+prefixLen], true
}

// HasTag reports whether s begins with the tag of a key string.
func HasTag(s string) bool {
	return strings.HasPrefix(s, gatewayTag) || strings.HasPrefix(s, accountTag) || strings.HasPrefix(s, userTag)
}

// Inspect returns the results of both LevelOf and PrefixOf, at the cost of one of them.
func Inspect(s string) (l Level, prefix string, ok bool) {
	if l, ok = LevelOf(s); !ok {
		return "", "", false
	}
	_, prefix, _ = Peek(s)
	return l, prefix, true
}
