package main

import (
	"fmt"
	"os"

	"aead.dev/minisign"
)

// signer returns a signature, in the format of minisign, with a comment that it covers.
type signer func(message []byte, comment string) []byte

// signingKey returns the signer with the key that the environment names, or nil if it names none.
func signingKey(env func(string) (string, bool)) (signer, error) {
	path, ok := env("KEYGATE_RELEASE_KEY")
	if !ok || path == "" {
		return nil, nil //nolint:nilnil // there need not be one
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("KEYGATE_RELEASE_KEY: %w", err)
	}
	var key minisign.PrivateKey
	if minisign.IsEncrypted(text) {
		password, ok := env("KEYGATE_RELEASE_KEY_PASSWORD")
		if !ok {
			return nil, fmt.Errorf("KEYGATE_RELEASE_KEY: %s has a password: set KEYGATE_RELEASE_KEY_PASSWORD", path)
		}
		key, err = minisign.DecryptKey(password, text)
	} else {
		err = key.UnmarshalText(text)
	}
	if err != nil { // it may quote the key
		return nil, fmt.Errorf("KEYGATE_RELEASE_KEY: %s is not a secret key of minisign, or KEYGATE_RELEASE_KEY_PASSWORD is not its password", path)
	}
	return func(message []byte, comment string) []byte {
		return minisign.SignWithComments(key, message, comment, "signature of SHA256SUMS")
	}, nil
}
