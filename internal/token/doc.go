// Package token verifies the tokens of issuers, which callers send in place of keys: JSON Web Tokens (RFC 7519) in the
// compact form of JWS (RFC 7515), as identity.md, section 2, bounds them.
//
//	a token ─► Memory: verified before? ─────────────────────────────────────────────► Principal
//	                │ no
//	                ▼
//	           Failures: too many of this address? ─► Parse ─► issuer, key ─► a slot of signature work
//	                                                                               │
//	           Memory ◄─ claims, denials, times ◄───────────────────────────────────┘
//
// A token that fails a check is refused with a Refusal, whose reason is for the operator alone. The package does no
// I/O: keys are fetched elsewhere.
package token
