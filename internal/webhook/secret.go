package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// Auto is the signing secret that asks for one to be made.
const Auto = "auto"

// secretTag begins the secrets that are written as Standard Webhooks asks: the
// base 64 of the key follows.
const secretTag = "whsec_"

// A given secret has this many bytes; one that is made has a key of keyBytes.
const (
	minSecret = 16
	maxSecret = 128
	keyBytes  = 32
)

// NewSecret makes a signing secret.
func NewSecret() string {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails: the program ends instead
	return secretTag + base64.StdEncoding.EncodeToString(key)
}

// ParseSecret returns the signing secret that a caller asks for: a new one for
// "" and "auto", else the given one. The error is a validation error of the
// field "signing_secret", and does not repeat the secret.
func ParseSecret(given string) (string, error) {
	if given == "" || given == Auto {
		return NewSecret(), nil
	}
	if len(given) < minSecret || len(given) > maxSecret {
		return "", fault.Invalid("signing_secret", "must be auto, or have %d to %d bytes", minSecret, maxSecret)
	}
	return given, nil
}

// StandardSecret returns the form of secret that a Standard Webhooks library
// takes; "" if it has that form already.
func StandardSecret(secret string) string {
	if _, ok := standardKey(secret); ok {
		return ""
	}
	return secretTag + base64.StdEncoding.EncodeToString([]byte(secret))
}

// standardKey returns the key that Standard Webhooks signs with: what the base
// 64 after the tag stands for; if secret has no such form, its bytes, and ok is
// false.
func standardKey(secret string) (key []byte, ok bool) {
	text, tagged := strings.CutPrefix(secret, secretTag)
	// The decoder passes over line ends, which the libraries do not.
	if tagged && !strings.ContainsAny(text, "\r\n") {
		if key, err := base64.StdEncoding.DecodeString(text); err == nil && len(key) > 0 {
			return key, true
		}
	}
	return []byte(secret), false
}
