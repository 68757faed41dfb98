// Package jwk reads the public keys of token issuers, which are JWK Sets (RFC 7517), and verifies signatures with
// them.
//
// It decides which key may verify which algorithm. The package go-jose turns the numbers of a key into a key, and
// does the arithmetic of signatures (docs/adr/0034-tokens.md).
package jwk
