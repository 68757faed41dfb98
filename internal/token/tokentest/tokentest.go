// Package tokentest mints tokens for tests.
package tokentest

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
)

// Signer signs tokens with one key.
type Signer struct{ private ed25519.PrivateKey }

// New returns a signer with the key of a seed.
func New(seed [ed25519.SeedSize]byte) *Signer {
	return &Signer{private: ed25519.NewKeyFromSeed(seed[:])}
}

// JWKS returns the signer's public key as a JWK Set.
func (s *Signer) JWKS() string {
	public, _ := s.private.Public().(ed25519.PublicKey)
	return fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":%q}]}`, base64.RawURLEncoding.EncodeToString(public))
}

// Token returns a token of ada for the audience api, with the scope admin and an hour to live from now on; claims replace or
// add members.
func (s *Signer) Token(iss string, now time.Time, claims map[string]any) string {
	all := map[string]any{"iss": iss, "aud": "api", "sub": "ada", "exp": now.Add(time.Hour).Unix(), "scope": "admin"}
	for name, value := range claims {
		all[name] = value
	}
	text, err := json.Marshal(all)
	if err != nil { // claims has a value that JSON does not have
		panic(err)
	}
	signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","kid":"a"}`)) + "." + base64.RawURLEncoding.EncodeToString(text)
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(s.private, []byte(signed)))
}
