package issuer

import (
	"reflect"

	"github.com/keygate/keygate/internal/fault"
)

// Field is one row of the table of fields (Fields): what the rules, the audit log and other texts know about a field
// that users set.
type Field struct {
	Name string // in the API and in configuration files
	Doc  string // one sentence

	// value returns the value that is in force, as JSON has it; nil for null.
	value func(*Issuer) any
	check func(*Issuer) error
}

// Value returns the value that is in force, the default included, as JSON has it; nil for null.
func (f *Field) Value(i *Issuer) any { return f.value(i) }

// Fields returns the table: everything of an issuer that a user may set.
func Fields() []Field {
	return []Field{{
		Name: "name", Doc: "Name of the issuer, unique in the account; gateways name it.",
		value: func(i *Issuer) any { return i.Name }, check: checkName,
	}, {
		Name: "issuer", Doc: "The claim iss of its tokens: a URL with https, compared exactly.",
		value: func(i *Issuer) any { return i.URL }, check: checkIssuer,
	}, {
		Name: "jwks_url", Doc: "Where its keys are fetched. With neither jwks_url nor jwks, discovery at the issuer's URL says so.",
		value: func(i *Issuer) any { return textOrNil(i.JWKSURL) }, check: checkJWKSURL,
	}, {
		Name: "jwks", Doc: "Its keys, given by hand: a JWK Set.",
		value: func(i *Issuer) any { return textOrNil(i.JWKS) }, check: checkJWKS,
	}, {
		Name: "ca", Doc: "Certificates in PEM that replace the system's roots when its keys are fetched.",
		value: func(i *Issuer) any { return textOrNil(i.CA) }, check: checkCA,
	}, {
		Name: "audiences", Doc: "The claim aud of a token must have one of these.",
		value: func(i *Issuer) any { return i.Audiences }, check: checkAudiences,
	}, {
		Name: "algorithms", Doc: "Signature algorithms of its tokens. Default: RS256, ES256 and EdDSA.",
		value: func(i *Issuer) any { return i.AllAlgorithms() }, check: checkAlgorithms,
	}, {
		Name: "leeway", Doc: "How far the clocks of the issuer and of Keygate may differ: 0s to 5m. Default: 60s.",
		value: func(i *Issuer) any { return i.LeewayText() }, check: checkLeeway,
	}, {
		Name: "max_lifetime", Doc: "How far ahead a token may expire: 1m to 9600h. Default: 24h.",
		value: func(i *Issuer) any { return i.MaxLifetimeText() }, check: checkMaxLifetime,
	}, {
		Name: "typ", Doc: "The typ that the header of a token must have, such as at+jwt.",
		value: func(i *Issuer) any { return textOrNil(i.Type) }, check: checkType,
	}, {
		Name: "required", Doc: "Claims that a token must have, each with a value or a list of values, one of which suffices.",
		value: func(i *Issuer) any { return orEmpty(i.Required) }, check: checkRequired,
	}, {
		Name: "claims", Doc: "The claims with the scopes, the owner and the plan of the bearer.",
		value: func(i *Issuer) any { return i.Claims }, check: checkClaims,
	}, {
		Name: "scope_map", Doc: "Scopes by words of the scope claim. A word that is not in it stays as it is.",
		value: func(i *Issuer) any { return orEmpty(i.ScopeMap) }, check: checkScopeMap,
	}, {
		Name: "default_scopes", Doc: "Scopes of a token without the scope claim.",
		value: func(i *Issuer) any { return listOrNil(i.DefaultScopes) }, check: checkDefaultScopes,
	}, {
		Name: "owner_prefix", Doc: "What precedes the value of the owner's claim. Default: the name of the issuer and a slash.",
		value: func(i *Issuer) any { return i.Prefix() }, check: checkOwnerPrefix,
	}, {
		Name: "claim_headers", Doc: "Claims by the headers in which the upstream gets them.",
		value: func(i *Issuer) any { return orEmpty(i.ClaimHeaders) }, check: checkClaimHeaders,
	}, {
		Name: "forward_token", Doc: "Whether the upstream gets the token.",
		value: func(i *Issuer) any { return i.ForwardToken }, check: nil,
	}}
}

// textOrNil returns s, or nil for "".
func textOrNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// listOrNil returns list, or nil if it is nil.
func listOrNil(list []string) any {
	if list == nil {
		return nil
	}
	return list
}

// orEmpty returns m, or an empty map if it is nil.
func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// Validate checks all fields that a user sets. The error names every invalid field, and what to do.
func (i *Issuer) Validate() error {
	var problems []error
	for _, f := range Fields() {
		if f.check != nil {
			problems = append(problems, f.check(i))
		}
	}
	return fault.Join(problems...)
}

// Change is the values of a field before and after a change, as Field.Value has them. Before is nil for a new issuer,
// and After for one that was deleted.
type Change struct {
	Field         string
	Before, After any
}

// Diff returns what differs between two issuers, in the order of Fields. before is nil for a new issuer, and after for
// one that was deleted.
func Diff(before, after *Issuer) []Change {
	var changes []Change
	valueOf := func(f *Field, i *Issuer) any {
		if i == nil {
			return nil
		}
		return f.Value(i)
	}
	for _, f := range Fields() {
		if b, a := valueOf(&f, before), valueOf(&f, after); !reflect.DeepEqual(b, a) {
			changes = append(changes, Change{Field: f.Name, Before: b, After: a})
		}
	}
	return changes
}
