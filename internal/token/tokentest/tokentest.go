// Package tokentest mints tokens for tests.
package tokentest

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Signer signs tokens with one key.
type Signer struct {
	private ed25519.PrivateKey
	kid     string
}

// New returns a signer with the key of a seed. Its kid is a.
func New(seed [ed25519.SeedSize]byte) *Signer { return Named("a", seed) }

// Named returns a signer with a kid, and the key of a seed.
func Named(kid string, seed [ed25519.SeedSize]byte) *Signer {
	return &Signer{private: ed25519.NewKeyFromSeed(seed[:]), kid: kid}
}

// JWKS returns the public keys of the signer and of others as a JWK Set.
func (s *Signer) JWKS(others ...*Signer) string {
	keys := make([]string, 0, 1+len(others))
	for _, one := range append([]*Signer{s}, others...) {
		public, _ := one.private.Public().(ed25519.PublicKey)
		keys = append(keys, fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}`, one.kid, base64.RawURLEncoding.EncodeToString(public)))
	}
	return `{"keys":[` + strings.Join(keys, ",") + `]}`
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
	signed := base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf(`{"alg":"EdDSA","kid":%q}`, s.kid))) + "." + base64.RawURLEncoding.EncodeToString(text)
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(s.private, []byte(signed)))
}
