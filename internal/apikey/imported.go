package apikey

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"github.com/keygate/keygate/internal/fault"
)

// Bounds of the strings of imported keys, in bytes (contract, edge, section 4).
const (
	MinImported = 16
	MaxImported = 512
	// MinImportedClear is the least for a string that is given in clear: 22 characters of base 64 hold 128 bits.
	MinImportedClear = 22
	// MaxImportedPrefix is the longest prefix of an imported key.
	MaxImportedPrefix = 16
	// importedPrefix is the length of the prefix of a key that is given in clear without one.
	importedPrefix = 6
)

// StrengthUnknown is the warning about a key of which only the hash was given: it may be short or easy to guess.
const StrengthUnknown = "strength_unknown"

// MayBeImported reports whether s can be the string of an imported key by its length and form. It is cheap, and true for
// some strings that CheckImported refuses.
func MayBeImported(s string) bool {
	if len(s) < MinImported || len(s) > MaxImported {
		return false
	}
	_, _, own := Peek(s)
	return !own
}

// CheckImported checks that s can be the string of an imported key: MinImported to MaxImported printable ASCII characters
// without spaces, which do not have the form of a key string of Keygate. The error is a validation error of the
// given field, and does not contain s.
func CheckImported(field, s string) error {
	if len(s) < MinImported || len(s) > MaxImported {
		return fault.Invalid(field, "must have %d to %d characters: create a new key in place of this one", MinImported, MaxImported)
	}
	if !isVisible(s) {
		return fault.Invalid(field, "must consist of printable ASCII characters without spaces: create a new key in place of this one")
	}
	if !MayBeImported(s) {
		return fault.Invalid(field, "has the form of Keygate's own keys, which cannot be imported: create a key")
	}
	return nil
}

// CheckImportedClear is CheckImported for a string that is given in clear, so that its length is known to suffice.
func CheckImportedClear(field, s string) error {
	if err := CheckImported(field, s); err != nil || len(s) >= MinImportedClear {
		return err
	}
	return fault.Invalid(field, "must have at least %d characters, since a shorter key may be guessed: give its sha256 if it must be accepted nevertheless, or create a new key", MinImportedClear)
}

// ImportedPrefix returns the prefix of the imported key with the string s, which is "" if only its hash is known.
// given is the prefix that the user gives, or "". The error is a validation error of the field "key_prefix".
func ImportedPrefix(s, given string) (string, error) {
	switch {
	case given == "" && s == "":
		return "", nil
	case given == "":
		return s[:min(importedPrefix, len(s))], nil
	case len(given) > MaxImportedPrefix || !isVisible(given):
		return "", fault.Invalid("key_prefix", "must have at most %d printable ASCII characters and no spaces", MaxImportedPrefix)
	case s == "":
		return given, nil
	case len(given) > len(s) || s[:len(given)] != given:
		return "", fault.Invalid("key_prefix", "must be the beginning of the key")
	case len(s)-len(given) < MinImported:
		return "", fault.Invalid("key_prefix", "must leave at least %d characters of the key out, since everyone who may read keys sees it", MinImported)
	}
	return given, nil
}

// isVisible reports whether s consists of printable ASCII characters without spaces.
func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// ParseDigest parses a SHA-256 as 64 hexadecimal digits, or as base 64 or base64url of 32 bytes with or without padding. The
// error is a validation error of the given field.
func ParseDigest(field, s string) (d Digest, err error) {
	if n, err := hex.Decode(d[:], []byte(s[:min(len(s), 2*len(d))])); err == nil && n == len(d) && len(s) == 2*len(d) {
		return d, nil
	}
	for _, form := range [...]*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		b, err := form.Strict().DecodeString(s)
		if err == nil && len(b) == len(d) && len(s) <= form.EncodedLen(len(d)) { // no line breaks
			return Digest(b), nil
		}
	}
	return Digest{}, fault.Invalid(field, "must be the SHA-256 of the key: 64 hexadecimal digits, or base64 of 32 bytes")
}

// ImportedDigest returns the digest under which an account, whose identifier encodes account, stores the imported key
// whose string has the digest d. The same string has another one in every account, so that no account finds out by an
// import which keys another has, and nobody can choose it.
func ImportedDigest(account [16]byte, d Digest) Digest {
	const tag = "import:" // with it, all of the input is one block of SHA-256
	var b [len(tag) + len(account) + len(d)]byte
	copy(b[:], tag)
	copy(b[len(tag):], account[:])
	copy(b[len(tag)+len(account):], d[:])
	return sha256.Sum256(b[:])
}
