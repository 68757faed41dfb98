package config

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/keygate/keygate/internal/apikey"
)

// The environment variables that hold a secret. They are not settings: no flag and no file has
// them, and nothing shows their values.
const (
	SecretKeyVariable = "KEYGATE_SECRET_KEY"
	AdminKeyVariable  = "KEYGATE_ADMIN_KEY"
)

// secretKeySize is the size of SecretKey in bytes.
const secretKeySize = 32

// Secret is a text that is shown as *** wherever it is printed or logged.
type Secret string

// String returns ***, or "" for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// GoString returns what String returns.
func (s Secret) GoString() string { return s.String() }

// MarshalText returns what String returns.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// readSecrets reads the environment variables that hold secrets. Their errors do not contain
// the values.
func (c *Config) readSecrets(env func(string) (string, bool)) error {
	if text, ok := env(SecretKeyVariable); ok {
		key, err := parseSecretKey(text)
		if err != nil {
			return &Error{Origin{Kind: Environment, Name: SecretKeyVariable}, err}
		}
		c.SecretKey = Secret(key)
	}
	if text, ok := env(AdminKeyVariable); ok {
		text = strings.TrimSpace(text)
		if level, ok := apikey.LevelOf(text); !ok || level != apikey.AccountLevel {
			return &Error{Origin{Kind: Environment, Name: AdminKeyVariable},
				errors.New("is not an account-level key: it must be kga_ and 36 characters, the last 6 of which are their checksum")}
		}
		c.AdminKey = Secret(text)
	}
	return nil
}

// parseSecretKey returns the bytes of a key in base64, with or without padding.
func parseSecretKey(text string) ([]byte, error) {
	key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(text), "="))
	if err != nil || len(key) != secretKeySize {
		return nil, errors.New("must be 32 bytes in base64, as head -c 32 /dev/urandom | base64 prints them")
	}
	return key, nil
}
