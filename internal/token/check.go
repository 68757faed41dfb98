package token

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
)

// maxScopes is the most scopes of a token. Each request is compared with all of them.
const maxScopes = 64

// issuedBy returns the issuer that the token names, and the key that must have signed it.
func (t *Token) issuedBy(issuers []*Issuer) (*Issuer, *jwk.Key, *Refusal) {
	name, ok := t.claims.text("iss")
	if !ok {
		return nil, nil, refuse(UnknownIssuer, "the token has no iss, or one that is not a string")
	}
	at := slices.IndexFunc(issuers, func(i *Issuer) bool { return i.record.URL == name })
	if at < 0 {
		return nil, nil, refuse(UnknownIssuer, "%s", quoted(name))
	}
	i := issuers[at]
	k, refusal := i.keyOf(t)
	return i, k, refusal.of(i)
}

// of says whose token is said to be refused.
func (r *Refusal) of(i *Issuer) *Refusal {
	if r != nil {
		r.IssuerID = i.record.ID
	}
	return r
}

// keyOf returns the key that must have signed the token: that with its kid or, if the token has none, the only one that
// is fit for its algorithm.
func (i *Issuer) keyOf(t *Token) (*jwk.Key, *Refusal) {
	if !slices.Contains(i.record.AllAlgorithms(), t.Algorithm) {
		return nil, refuse(AlgorithmRefused, "%s: add it to algorithms of the issuer, if the issuer signs with it", t.Algorithm)
	}
	candidates, named := i.keys.All(), ""
	if _, given := t.header["kid"]; given {
		kid, ok := t.header.text("kid")
		if !ok || kid == "" {
			return nil, refuse(UnknownKey, "its kid is not a string of at least one character")
		}
		candidates, named = i.keys.Named(kid), kid
		if len(candidates) == 0 {
			return nil, refuse(UnknownKey, "kid %s", quoted(kid))
		}
	}
	switch fit := jwk.Fit(candidates, t.Algorithm); {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) > 1:
		return nil, refuse(AmbiguousKey, "%d keys fit %s", len(fit), t.Algorithm)
	case named != "":
		return nil, refuse(UnfitKey, "kid %s: the key %s", quoted(named), candidates[0].Unfit(t.Algorithm))
	case len(candidates) == 1:
		return nil, refuse(UnfitKey, "the key %s", candidates[0].Unfit(t.Algorithm))
	default:
		return nil, refuse(UnknownKey, "the token has no kid, and no key of the issuer fits %s", t.Algorithm)
	}
}

// principal checks the claims of a token whose signature was verified, in the order of the contract, and returns whom
// it identifies.
func (i *Issuer) principal(t *Token, now time.Time) (*Principal, *Refusal) {
	p := &Principal{IssuerID: i.record.ID}
	for _, check := range [...]func(t *Token, p *Principal, now time.Time) *Refusal{
		i.checkAudience, i.checkSubject, i.checkType, i.checkBound, i.checkRequired, i.checkStart, i.checkEnd,
		i.checkScopes, i.checkOwner, i.checkPlan, i.checkHeaders, i.checkDenials, i.checkExpired,
	} {
		if refusal := check(t, p, now); refusal != nil {
			return nil, refusal.of(i)
		}
	}
	p.Recorded = &accesslog.Token{IssuerID: p.IssuerID, Subject: p.RecordedSubject()}
	return p, nil
}

func (i *Issuer) checkAudience(t *Token, _ *Principal, _ time.Time) *Refusal {
	value, given := t.claims["aud"]
	if !given {
		return refuse(WrongAudience, "the token has no aud")
	}
	audiences, ok := texts(value)
	switch {
	case !ok:
		return refuse(WrongAudience, "it is neither a string nor a list of strings")
	case len(audiences) == 0:
		return refuse(WrongAudience, "it is empty")
	case !slices.ContainsFunc(audiences, func(a string) bool { return slices.Contains(i.record.Audiences, a) }):
		return refuse(WrongAudience, "it has %s", quoted(strings.Join(audiences, " ")))
	}
	return nil
}

// texts returns a string, or the strings of a list.
func texts(value jsontext.Value) (list []string, ok bool) {
	switch value.Kind() {
	case '"':
		list = make([]string, 1)
		return list, json.Unmarshal(value, &list[0]) == nil
	case '[':
		var elements []jsontext.Value
		if json.Unmarshal(value, &elements) != nil {
			return nil, false
		}
		list = make([]string, len(elements))
		for n, e := range elements {
			if e.Kind() != '"' || json.Unmarshal(e, &list[n]) != nil {
				return nil, false
			}
		}
		return list, true
	default:
		return nil, false
	}
}

func (i *Issuer) checkSubject(t *Token, p *Principal, _ time.Time) *Refusal {
	if p.Subject, _ = t.claims.text("sub"); p.Subject == "" {
		return refuse(BadSubject, "")
	}
	return nil
}

func (i *Issuer) checkType(t *Token, _ *Principal, _ time.Time) *Refusal {
	typ, isText := t.header.text("typ")
	switch _, given := t.header["typ"]; {
	case given && !isText:
		return refuse(WrongType, "it is not a string")
	case issuer.IsForbiddenType(typ):
		return refuse(WrongType, "%s is never allowed", quoted(typ))
	case i.typ == "" || i.typ == issuer.NormalType(typ):
		return nil
	case !given:
		return refuse(WrongType, "the token has none")
	default:
		return refuse(WrongType, "%s", quoted(typ))
	}
}

func (i *Issuer) checkBound(t *Token, _ *Principal, _ time.Time) *Refusal {
	if _, given := t.claims["cnf"]; given {
		return refuse(Bound, "")
	}
	return nil
}

func (i *Issuer) checkRequired(t *Token, _ *Principal, _ time.Time) *Refusal {
	for _, name := range i.required {
		if value, found := t.claims.find(name); !found || !i.record.Required[name].Match(value) {
			return refuse(RequirementNotMet, "%s", name)
		}
	}
	return nil
}

// time returns the time of a claim, which is a number of seconds since 1970, perhaps with a fraction. It is the zero
// time if there is no such claim.
func (o object) time(name string) (time.Time, *Refusal) {
	value, given := o[name]
	if !given {
		return time.Time{}, nil
	}
	number, _ := issuer.ParseValue(value)
	seconds, nanoseconds, ok := number.Seconds()
	if !ok {
		return time.Time{}, refuse(BadTime, "%s", name)
	}
	return time.Unix(seconds, nanoseconds), nil
}

// checkStart checks from when on the token is valid.
func (i *Issuer) checkStart(t *Token, p *Principal, now time.Time) *Refusal {
	latest := now.Add(i.leeway)
	notBefore, refusal := t.claims.time("nbf")
	switch {
	case refusal != nil:
		return refusal
	case notBefore.After(latest):
		return refuse(NotYetValid, "")
	}
	if p.IssuedAt, refusal = t.claims.time("iat"); refusal != nil {
		return refusal
	}
	if p.IssuedAt.After(latest) {
		return refuse(IssuedInFuture, "")
	}
	return nil
}

// maxSeconds is the largest number of seconds that every reader of JSON reads alike.
const maxSeconds = 1 << 53

// checkEnd checks that the token has an end, and one that is not too far ahead. The leeway does not count.
func (i *Issuer) checkEnd(t *Token, p *Principal, now time.Time) *Refusal {
	value, given := t.claims["exp"]
	if !given {
		return refuse(BadExpiry, "the token has no exp")
	}
	seconds, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || seconds > maxSeconds || seconds < -maxSeconds {
		return refuse(BadExpiry, "%s", quoted(string(value)))
	}
	p.ExpiresAt = time.Unix(seconds, 0)
	p.RefusedAt = p.ExpiresAt.Add(i.leeway)
	if p.ExpiresAt.After(now.Add(i.record.MaxLifetimeTime())) {
		return refuse(TooLongLived, "exp is %d", seconds)
	}
	return nil
}

// checkScopes sets the scopes: those of the claim through scope_map, without words that are no scope.
func (i *Issuer) checkScopes(t *Token, p *Principal, _ time.Time) *Refusal {
	value, given := i.scopeClaim(t)
	if !given {
		p.Scopes = i.defaultScopes
		return nil
	}
	words, ok := texts(value)
	if !ok {
		return refuse(BadScopes, "")
	}
	if value.Kind() == '"' {
		words = strings.Fields(words[0])
	}
	for _, word := range words {
		one, mapped := i.scopes[word]
		if !mapped {
			if one, ok = parseScope(word); !ok {
				continue
			}
		}
		if !slices.Contains(p.Scopes, one) {
			one.Resource = strings.Clone(one.Resource) // not a part of the claim, which would stay in memory
			p.Scopes = append(p.Scopes, one)
		}
	}
	if len(p.Scopes) > maxScopes {
		return refuse(TooManyScopes, "")
	}
	return nil
}

// scopeClaim returns the claim with the scopes.
func (i *Issuer) scopeClaim(t *Token) (value jsontext.Value, given bool) {
	if name := i.record.Claims.Scope; name != "" {
		return t.claims.find(name)
	}
	if value, given = t.claims["scope"]; given {
		return value, true
	}
	value, given = t.claims["scp"]
	return value, given
}

// checkOwner sets the owner. A token without the claim has none.
func (i *Issuer) checkOwner(t *Token, p *Principal, _ time.Time) *Refusal {
	if i.record.Claims.Owner == "" {
		return nil
	}
	value, given := t.claims.find(i.record.Claims.Owner)
	if !given {
		return nil
	}
	text, ok := textOf(value)
	if !ok || text == "" {
		return refuse(BadOwner, "")
	}
	p.Owner = i.record.Prefix() + text
	if err := owner.CheckExternalID("owner", p.Owner); err != nil {
		return refuse(BadOwner, "")
	}
	return nil
}

// checkPlan sets the plan. A token without the claim has none.
func (i *Issuer) checkPlan(t *Token, p *Principal, _ time.Time) *Refusal {
	if i.record.Claims.Plan == "" {
		return nil
	}
	value, given := t.claims.find(i.record.Claims.Plan)
	if !given {
		return nil
	}
	text, _ := textOf(value)
	if plan.CheckName("plan", text) != nil {
		return refuse(BadPlan, "")
	}
	p.Plan = text
	return nil
}

// checkHeaders sets the headers for the upstream. It gets no header for a claim that the token does not have.
func (i *Issuer) checkHeaders(t *Token, p *Principal, _ time.Time) *Refusal {
	for _, name := range i.headers {
		value, given := t.claims.find(i.record.ClaimHeaders[name])
		if !given {
			continue
		}
		text, ok := textOf(value)
		if value.Kind() == '0' {
			text, ok = string(value), true
		}
		if !ok || !isHeaderValue(text) {
			return refuse(BadHeaderValue, "%s", i.record.ClaimHeaders[name])
		}
		p.Headers = append(p.Headers, Header{Name: name, Value: text})
	}
	return nil
}

// isHeaderValue reports whether s consists of visible ASCII characters and spaces, with none at its ends, where they do
// not count: two values would look the same.
func isHeaderValue(s string) bool {
	for n := range len(s) {
		if s[n] < 0x20 || s[n] > 0x7e {
			return false
		}
	}
	return strings.TrimSpace(s) == s
}

func (i *Issuer) checkDenials(t *Token, p *Principal, now time.Time) *Refusal {
	p.JTI, _ = t.claims.text("jti")
	if i.Denies(p, now) {
		return refuse(Denied, "")
	}
	return nil
}

func (i *Issuer) checkExpired(_ *Token, p *Principal, now time.Time) *Refusal {
	if !now.Before(p.RefusedAt) {
		return refuse(Expired, "at %s", p.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return nil
}
