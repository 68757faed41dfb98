// Package issuer defines issuers of tokens: who signs the tokens that a gateway takes beside its keys, what such a
// token must have, and what it gives its bearer (identity.md, section 2). It also defines denials, which refuse tokens
// of an issuer before they expire.
package issuer

import (
	"cmp"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/jwk"
)

// The bounds of issuers (docs/limits.md).
const (
	MaxIssuers      = 256 // of an account
	MaxOfGateway    = 16  // that a gateway names
	MaxAudiences    = 16
	MaxRequired     = 16 // claims
	MaxValues       = 16 // of a required claim
	MaxScopeMap     = 100
	MaxClaimHeaders = 8
	maxURL          = 2048
	maxText         = 255       // bytes of an audience, a claim, a word and a value
	maxPrefix       = 64        // bytes of owner_prefix
	maxJWKS         = 128 << 10 // bytes of keys that are given by hand

	// MaxAccountBytes bounds the settings of all issuers of an account, as they are stored.
	MaxAccountBytes = 4 << 20

	// MaxFetchedBytes bounds what is fetched for all issuers of an account, as it is stored: their keys that verify
	// tokens, and what records say of each key.
	MaxFetchedBytes = 4 << 20
)

// The values of issuers that set none.
const (
	DefaultLeeway      = "60s"
	DefaultMaxLifetime = "24h"
)

// The bounds of durations.
const (
	minLifetime = time.Minute
	maxLifetime = 400 * 24 * time.Hour
)

// DefaultAlgorithms returns the algorithms of an issuer that sets none.
func DefaultAlgorithms() []jwk.Algorithm {
	return []jwk.Algorithm{jwk.RS256, jwk.ES256, jwk.EdDSA}
}

// Issuer is the stored record of an issuer. Empty strings and zero values mean absent.
type Issuer struct {
	ID        string
	AccountID string
	Name      string // unique in the account; gateways name it
	Settings
	Fetched             // what was fetched from its provider, if its keys are not given by hand
	Seen      []SeenKey // its present keys, in the order of its set
	CreatedAt time.Time
	Denials   int64 // how many it has, of which some may have ended; the store sets it

	// Version increases with every change by a management request. It is the ETag.
	Version int64
}

// SeenKey is a key of an issuer as records show it.
type SeenKey struct {
	ID        string        `json:"kid,omitempty"` // "" for none
	Algorithm jwk.Algorithm `json:"alg,omitempty"` // "" if it is for every algorithm of its type
	Unusable  string        `json:"unusable,omitempty"`
	FirstSeen time.Time     `json:"first_seen"`
}

// See notes which keys the issuer has at now. A key that it had before keeps the time when it was seen first. Of keys
// that no token can tell apart it says so, since the tokens of all of them are refused.
func (i *Issuer) See(set *jwk.Set, now time.Time) {
	before := i.Seen
	i.Seen = nil
	for n := range set.Keys() {
		k := &set.Keys()[n]
		one := SeenKey{ID: k.ID, Algorithm: k.Algorithm, Unusable: k.Unusable(), FirstSeen: now}
		if one.Unusable == "" && hasTwin(set, n) {
			one.Unusable = "has the kid and the type of another key: no token says which of them has signed it"
		}
		had := slices.IndexFunc(before, func(b SeenKey) bool {
			return b.ID == one.ID && b.Algorithm == one.Algorithm && b.Unusable == one.Unusable
		})
		if had >= 0 {
			one.FirstSeen = before[had].FirstSeen
		}
		i.Seen = append(i.Seen, one)
	}
}

// hasTwin reports whether a set has another key with the kid and the type of its key n.
func hasTwin(set *jwk.Set, n int) bool {
	keys := set.Keys()
	for m := range keys {
		if m != n && keys[m].Unusable() == "" && keys[m].ID == keys[n].ID && keys[m].Kind() == keys[n].Kind() {
			return true
		}
	}
	return false
}

// Settings is what users set of an issuer, apart from its name. The store keeps it as one JSON object, so its JSON
// names are part of the stored form: add new ones, but never change one.
type Settings struct {
	// URL is the claim "iss" of its tokens, compared exactly: the field "issuer".
	URL string `json:"issuer"`

	// JWKSURL is where the keys are fetched; JWKS are the keys themselves, as JSON. With neither, the address of the
	// keys is found by discovery at URL.
	JWKSURL string `json:"jwks_url,omitempty"`
	JWKS    string `json:"jwks,omitempty"`

	// CA are the certificates, in PEM, that replace the system's roots for fetches.
	CA string `json:"ca,omitempty"`

	Audiences   []string        `json:"audiences"`            // a token must be for one of them
	Algorithms  []jwk.Algorithm `json:"algorithms,omitempty"` // nil means DefaultAlgorithms
	Leeway      string          `json:"leeway,omitempty"`     // a Go duration; "" means DefaultLeeway
	MaxLifetime string          `json:"max_lifetime,omitempty"`

	// Type is the only "typ" that the header of a token may have; "" for any.
	Type string `json:"typ,omitempty"`

	// Required are claims that a token must have, with one of the values.
	Required map[string]Values `json:"required,omitempty"`

	Claims        Claims            `json:"claims,omitzero"`
	ScopeMap      map[string]string `json:"scope_map,omitempty"`      // scopes by words of the claim
	DefaultScopes []string          `json:"default_scopes,omitempty"` // of a token without the claim

	// OwnerPrefix precedes the value of the owner's claim; nil means the name and a slash.
	OwnerPrefix *string `json:"owner_prefix,omitempty"`

	ClaimHeaders map[string]string `json:"claim_headers,omitempty"` // claims by headers
	ForwardToken bool              `json:"forward_token,omitempty"`
}

// Claims are the claims with what a token gives its bearer. A claim is a top-level member or, if there is none of
// that name, a path of names joined by dots.
type Claims struct {
	Scope string `json:"scope,omitempty"` // "" means scope, or else scp
	Owner string `json:"owner,omitempty"` // "" means that tokens have no owner
	Plan  string `json:"plan,omitempty"`  // "" means that tokens name no plan
}

// AllAlgorithms returns the algorithms, the default included.
func (s *Settings) AllAlgorithms() []jwk.Algorithm {
	if s.Algorithms == nil {
		return DefaultAlgorithms()
	}
	return s.Algorithms
}

// MaxLeeway is the longest leeway.
const MaxLeeway = 5 * time.Minute

// LeewayText returns leeway as it was given, or the default.
func (s *Settings) LeewayText() string { return cmp.Or(s.Leeway, DefaultLeeway) }

// MaxLifetimeText is LeewayText for max_lifetime.
func (s *Settings) MaxLifetimeText() string { return cmp.Or(s.MaxLifetime, DefaultMaxLifetime) }

// LeewayTime returns how far the clocks of the issuer and of Keygate may differ. The settings must be valid.
func (s *Settings) LeewayTime() time.Duration { return durationOf(s.LeewayText()) }

// MaxLifetimeTime returns how far ahead a token may expire. The settings must be valid.
func (s *Settings) MaxLifetimeTime() time.Duration {
	return durationOf(s.MaxLifetimeText())
}

// durationOf returns the duration of a valid text.
func durationOf(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}

// Prefix returns what precedes the value of the owner's claim.
func (i *Issuer) Prefix() string {
	if i.OwnerPrefix != nil {
		return *i.OwnerPrefix
	}
	return i.Name + "/"
}

// GivenKeys returns the keys that are given by hand. It is nil if there are none.
func (s *Settings) GivenKeys() (*jwk.Set, error) { return parseKeys(s.JWKS) }

// Keys returns the present keys: those that are given by hand or, without them, those that were fetched last. It is nil
// as long as there are none.
func (i *Issuer) Keys() (*jwk.Set, error) { return parseKeys(cmp.Or(i.JWKS, i.Document)) }

// parseKeys reads a JWK Set. "" is none.
func parseKeys(document string) (*jwk.Set, error) {
	if document == "" {
		return nil, nil
	}
	return jwk.ParseSet([]byte(document))
}

// ForbiddenTypes returns the values of "typ" of tokens that are no access tokens, and never pass.
func ForbiddenTypes() []string { return []string{"logout+jwt", "secevent+jwt", "dpop+jwt"} }

// NormalType returns a "typ" in the form in which types are compared: without the case of ASCII letters, and without
// application/ (RFC 7515, 4.1.9).
func NormalType(typ string) string {
	lower := []byte(typ)
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	const application = "application/"
	if len(lower) > len(application) && string(lower[:len(application)]) == application {
		lower = lower[len(application):]
	}
	return string(lower)
}

// IsForbiddenType reports whether a token of the type never passes.
func IsForbiddenType(typ string) bool { return slices.Contains(ForbiddenTypes(), NormalType(typ)) }
