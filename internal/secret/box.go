// Package secret encrypts values that must not be readable in the store, such as the upstream
// headers of a gateway. The key is the installation's secret key file (contract, section 1,
// --secret-key-file). The cipher is AES-256-GCM with random nonces.
package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// KeySize is the size of a key in bytes: AES-256.
const KeySize = 32

// ErrOpen is returned for sealed bytes that are damaged or were sealed with another key.
var ErrOpen = errors.New("cannot decrypt: the bytes are damaged, or were encrypted with another secret key file")

// Box encrypts and decrypts with one key. It is safe for concurrent use.
type Box struct {
	aead        cipher.AEAD
	fingerprint string
}

// Fingerprint returns a text by which the key can be recognized, but from which it cannot be
// computed: an HMAC of a constant with the key.
func (b *Box) Fingerprint() string { return b.fingerprint }

// New returns a Box for key, which must have KeySize bytes.
func New(key []byte) (*Box, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("secret: the key has %d bytes, want %d", len(key), KeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("create cipher: %w", err)
	}
	// The standard library draws a random nonce for each ciphertext and prepends it, so no
	// mistake of ours can repeat one.
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("create cipher: %w", err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("keygate secret key fingerprint"))
	return &Box{aead: aead, fingerprint: hex.EncodeToString(mac.Sum(nil)[:16])}, nil
}

// Seal encrypts plain. Sealing the same bytes twice yields different results.
func (b *Box) Seal(plain []byte) ([]byte, error) {
	return b.aead.Seal(nil, nil, plain, nil), nil
}

// Open decrypts what Seal returned. The error is ErrOpen.
func (b *Box) Open(sealed []byte) ([]byte, error) {
	plain, err := b.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, ErrOpen
	}
	return plain, nil
}
