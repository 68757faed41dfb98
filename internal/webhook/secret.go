package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// Auto requests a generated signing secret.
const Auto = "auto"

// secretTag starts a secret in the form of Standard Webhooks. The key in base64 follows.
const secretTag = "whsec_"

// A given secret has minSecret to maxSecret bytes. A generated secret has a key of keyBytes.
const (
	minSecret = 16
	maxSecret = 128
	keyBytes  = 32
)

// NewSecret generates a signing secret in the form of Standard Webhooks.
func NewSecret() string {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails: the program ends instead
	return secretTag + base64.StdEncoding.EncodeToString(key)
}

// ParseSecret returns the signing secret for the given value: a new secret for "" and
// "auto", otherwise the value itself, which must have 16 to 128 bytes. The error is a
// validation error of the field "signing_secret" and does not contain the secret.
func ParseSecret(given string) (string, error) {
	if given == "" || given == Auto {
		return NewSecret(), nil
	}
	if len(given) < minSecret || len(given) > maxSecret {
		return "", fault.Invalid("signing_secret", "must be auto or have %d to %d bytes", minSecret, maxSecret)
	}
	return given, nil
}

// StandardSecret returns secret in the form that a Standard Webhooks library accepts. It
// returns "" if secret has that form already.
func StandardSecret(secret string) string {
	if _, ok := standardKey(secret); ok {
		return ""
	}
	return secretTag + base64.StdEncoding.EncodeToString([]byte(secret))
}

// standardKey returns the key that Standard Webhooks signs with: the decoded base64 after
// the tag. If secret does not have that form, it returns the bytes of secret and false.
func standardKey(secret string) (key []byte, ok bool) {
	text, tagged := strings.CutPrefix(secret, secretTag)
	// The decoder ignores line breaks; the libraries do not.
	if tagged && !strings.ContainsAny(text, "\r\n") {
		if key, err := base64.StdEncoding.DecodeString(text); err == nil && len(key) > 0 {
			return key, true
		}
	}
	return []byte(secret), false
}
