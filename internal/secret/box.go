// Package secret encrypts what must not be readable in the store, such as the
// upstream headers of a gateway, with the installation's key file
// (contract, section 1, --secret-key-file).
package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
)

// KeySize is the number of bytes of a key: AES-256.
const KeySize = 32

// ErrOpen tells that sealed bytes were damaged, or sealed with another key.
var ErrOpen = errors.New("cannot decrypt: the bytes are damaged, or were encrypted with another secret key file")

// Box seals and opens with one key. It is safe for concurrent use.
type Box struct {
	aead cipher.AEAD
}

// New returns a box over key, which must have KeySize bytes.
func New(key []byte) (*Box, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("a secret key has %d bytes, not %d", KeySize, len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make cipher: %w", err)
	}
	// A fresh random nonce stands before each ciphertext; the standard library
	// draws it from the system's source, so that none can repeat by our fault.
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("make cipher: %w", err)
	}
	return &Box{aead: aead}, nil
}

// Seal encrypts plain. Two seals of the same bytes differ.
func (b *Box) Seal(plain []byte) ([]byte, error) {
	return b.aead.Seal(nil, nil, plain, nil), nil
}

// Open decrypts what Seal returned, or returns ErrOpen.
func (b *Box) Open(sealed []byte) ([]byte, error) {
	plain, err := b.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, ErrOpen
	}
	return plain, nil
}
