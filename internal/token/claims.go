package token

import (
	"time"

	"github.com/go-json-experiment/json"
)

// Claims are the claims of a token that was verified, for those that read more of it than a Principal has.
type Claims struct{ claims object }

// CheckClaims verifies a token of an issuer as Check does, and returns its claims as well. A refusal is a *Refusal.
func CheckClaims(compact string, i *Issuer, now time.Time) (*Principal, *Claims, *Refusal) {
	t, refusal := Parse(compact)
	if refusal != nil {
		return nil, nil, refusal
	}
	_, k, refusal := t.issuedBy([]*Issuer{i})
	if refusal != nil {
		return nil, nil, refusal
	}
	p, refusal := t.verify(i, k, now)
	if refusal != nil {
		return nil, nil, refusal
	}
	return p, &Claims{t.claims}, nil
}

// Text returns the string of a claim; "" if it is absent or not a string.
func (c *Claims) Text(name string) string {
	text, _ := c.claims.text(name)
	return text
}

// Has reports whether there is the claim, which may be a path, with a value other than null.
func (c *Claims) Has(name string) bool {
	value, found := c.claims.find(name)
	return found && value.Kind() != 'n'
}

// Texts returns the string of a claim, or the strings of a list; none for any other value. name may be a path.
func (c *Claims) Texts(name string) []string {
	value, found := c.claims.find(name)
	if !found {
		return nil
	}
	list, _ := texts(value)
	return list
}

// True reports whether a claim is true.
func (c *Claims) True(name string) bool {
	value := c.claims[name]
	var is bool
	return value.Kind() == 't' && json.Unmarshal(value, &is) == nil && is
}

// Time returns the time of a claim; the zero time if it is absent, or not a time.
func (c *Claims) Time(name string) time.Time {
	at, _ := c.claims.time(name)
	return at
}
