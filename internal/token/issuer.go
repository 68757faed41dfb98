package token

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
)

// Issuer is an issuer as tokens are checked against it: its settings, its present keys and its denials. It is immutable
// but for the denials. When the settings or the keys change, there is a new one with a larger generation.
type Issuer struct {
	record     issuer.Issuer
	keys       *jwk.Set
	denials    *issuer.Denials
	generation uint64

	leeway        time.Duration
	typ           string // in normal form; "" for any
	defaultScopes apikey.Scopes
	scopes        map[string]apikey.Scope // of scope_map, in normal form
	required      []string                // in order
	headers       []string                // in order
}

// NewIssuer returns an issuer. The record must be valid. keys are its present keys; nil means those of the record, or
// none. denials may be nil for none. A generation is used for one state of the issuer alone, and rises.
func NewIssuer(record *issuer.Issuer, keys *jwk.Set, denials *issuer.Denials, generation uint64) (*Issuer, error) {
	i := &Issuer{
		record: *record, keys: keys, denials: denials, generation: generation,
		leeway: record.LeewayTime(), typ: issuer.NormalType(record.Type), scopes: make(map[string]apikey.Scope, len(record.ScopeMap)),
		required: slices.Sorted(maps.Keys(record.Required)), headers: slices.Sorted(maps.Keys(record.ClaimHeaders)),
	}
	if i.denials == nil {
		i.denials = &issuer.Denials{}
	}
	if keys == nil {
		var err error
		if i.keys, err = record.Keys(); err != nil {
			return nil, fmt.Errorf("keys of issuer %s: %w", record.ID, err)
		}
	}
	for word, text := range record.ScopeMap {
		one, ok := parseScope(text)
		if !ok {
			return nil, fmt.Errorf("issuer %s: scope_map has %q, which is not a scope", record.ID, text)
		}
		i.scopes[word] = one
	}
	for _, text := range record.DefaultScopes {
		one, ok := parseScope(text)
		if !ok {
			return nil, fmt.Errorf("issuer %s: default_scopes has %q, which is not a scope", record.ID, text)
		}
		i.defaultScopes = append(i.defaultScopes, one)
	}
	return i, nil
}

// ID returns the identifier of the issuer.
func (i *Issuer) ID() string { return i.record.ID }

// AccountID returns the account of the issuer.
func (i *Issuer) AccountID() string { return i.record.AccountID }

// URL returns the claim iss of the issuer's tokens.
func (i *Issuer) URL() string { return i.record.URL }

// ForwardsToken reports whether upstreams get the issuer's tokens.
func (i *Issuer) ForwardsToken() bool { return i.record.ForwardToken }

// Denies reports whether a token that was verified, perhaps for an earlier state of the issuer, is denied at now. The leeway
// counts for the end of a denial, as it does for that of a token: else a token that is denied until it expires would be valid
// between the two.
func (i *Issuer) Denies(p *Principal, now time.Time) bool {
	return i.denials.Denies(now.Add(-i.leeway), p.Subject, p.JTI, p.IssuedAt)
}

// parseScope returns the scope that text is, in normal form.
func parseScope(text string) (one apikey.Scope, ok bool) {
	if one, ok = apikey.ParseScope(text); !ok {
		return one, false
	}
	return apikey.Scopes{one}.Normal()[0], true
}
