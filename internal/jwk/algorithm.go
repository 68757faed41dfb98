package jwk

import "slices"

// Algorithm is a signature algorithm, as the header "alg" of a token and the member "alg" of a key name it
// (RFC 7518, 3.1; RFC 8037, 3.1).
type Algorithm string

// The algorithms with which tokens may be signed (identity.md, section 2). There are none with a shared secret
// (HS256 and its like), and there is no "none".
const (
	RS256 Algorithm = "RS256"
	RS384 Algorithm = "RS384"
	RS512 Algorithm = "RS512"
	PS256 Algorithm = "PS256"
	PS384 Algorithm = "PS384"
	PS512 Algorithm = "PS512"
	ES256 Algorithm = "ES256"
	ES384 Algorithm = "ES384"
	EdDSA Algorithm = "EdDSA"
)

// Algorithms returns all algorithms.
func Algorithms() []Algorithm {
	return []Algorithm{RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA}
}

// Valid reports whether a is one of the algorithms.
func (a Algorithm) Valid() bool { return slices.Contains(Algorithms(), a) }

// keyKind is what a key must be to verify an algorithm.
type keyKind string

// The kinds of keys, as messages name them.
const (
	rsaKey  keyKind = "RSA"
	p256Key keyKind = "EC on P-256"
	p384Key keyKind = "EC on P-384"
	edKey   keyKind = "OKP on Ed25519"
)

// kind returns what a key must be to verify a.
func (a Algorithm) kind() keyKind {
	switch a {
	case ES256:
		return p256Key
	case ES384:
		return p384Key
	case EdDSA:
		return edKey
	default:
		return rsaKey
	}
}
