package issuer

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/jwk"
	"github.com/keygate/keygate/internal/label"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
)

// checkName checks the name, which has the form of a plan's, since owners begin with it.
func checkName(i *Issuer) error { return plan.CheckName("name", i.Name) }

func checkIssuer(i *Issuer) error {
	if i.URL == "" {
		return fault.Invalid("issuer", "is required: give the claim iss of its tokens, such as https://login.example.com/")
	}
	return checkURL("issuer", i.URL, "https://login.example.com/")
}

func checkJWKSURL(i *Issuer) error {
	switch {
	case i.JWKSURL == "":
		return nil
	case i.JWKS != "":
		return fault.Invalid("jwks_url", "must not be given with jwks: keys are either fetched or given by hand")
	}
	return checkURL("jwks_url", i.JWKSURL, "https://login.example.com/keys")
}

// checkURL checks a URL with https. For an issuer, a query and a fragment are forbidden by OpenID Connect Discovery and
// RFC 8414; of other URLs, a fragment is nothing that a server gets.
func checkURL(field, s, example string) error {
	u, err := url.Parse(s)
	switch {
	case len(s) > maxURL:
		return fault.Invalid(field, "must have at most %d characters", maxURL)
	case err != nil || u.Opaque != "" || strings.ContainsFunc(s, notInURL):
		return fault.Invalid(field, "must be a URL such as %s", example)
	case u.Scheme != "https" || !strings.HasPrefix(s, "https://"):
		return fault.Invalid(field, "must start with https://")
	case u.User != nil:
		return fault.Invalid(field, "must not contain a user or password")
	case strings.Contains(s, "#") || field == "issuer" && strings.Contains(s, "?"):
		return fault.Invalid(field, "must not contain a query or a fragment")
	case !isHost(u.Hostname()):
		return fault.Invalid(field, "must have a host: a DNS name or an IP address")
	case !isPort(u.Port()) || strings.HasSuffix(u.Host, ":"):
		return fault.Invalid(field, "must have a port between 1 and 65535, or none")
	}
	return nil
}

// notInURL reports whether net/url accepts r although it is not allowed in a request line.
func notInURL(r rune) bool { return r <= 0x20 || r >= 0x7f || strings.ContainsRune(`\"<>^`+"`{|}", r) }

func isHost(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == ""
	}
	// Names of private networks may have underscores.
	return gateway.CheckHostname(strings.ReplaceAll(s, "_", "-")) == nil || s == "localhost"
}

func isPort(s string) bool {
	if s == "" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '0'
}

// checkJWKS checks keys that are given by hand. Keys for something else, such as encryption, are passed over, as in a
// set that is fetched; a key that is meant to verify tokens and does not is a mistake.
func checkJWKS(i *Issuer) error {
	if i.JWKS == "" {
		return nil
	}
	if len(i.JWKS) > maxJWKS {
		return fault.Invalid("jwks", "must have at most %d bytes: leave out members such as x5c, and keys that sign no tokens", maxJWKS)
	}
	set, err := i.GivenKeys()
	if err != nil {
		return fault.Invalid("jwks", "%v", err)
	}
	var problems []error
	usable, fit := false, false
	for n := range set.Keys() {
		k := &set.Keys()[n]
		field := fmt.Sprintf("jwks.keys[%d]", n)
		switch {
		case k.Foreign():
			continue
		case k.Unusable() != "":
			problems = append(problems, fault.Invalid(field, "the key %s", k.Unusable()))
			continue
		}
		usable = true
		fit = fit || slices.ContainsFunc(i.AllAlgorithms(), func(a jwk.Algorithm) bool { return k.Unfit(a) == "" })
		first := slices.IndexFunc(set.Keys()[:n], func(other jwk.Key) bool { return other.ID == k.ID && other.Kind() == k.Kind() })
		if first >= 0 {
			problems = append(problems, fault.Invalid(field, "must differ from keys[%d] in its kid or its type: no token would say which of them has signed it", first))
		}
	}
	switch {
	case len(problems) > 0:
		return fault.Join(problems...)
	case !usable:
		return fault.Invalid("jwks", "must have a public key for signatures, of the type RSA, EC or OKP")
	case !fit && checkAlgorithms(i) == nil:
		return fault.Invalid("algorithms", "fit no key of jwks: add the algorithms of its keys")
	}
	return nil
}

func checkCA(i *Issuer) error {
	switch {
	case i.CA == "":
		return nil
	case i.JWKS != "":
		return fault.Invalid("ca", "must not be given with jwks: it is for fetching keys")
	}
	return gateway.CheckCA("ca", i.CA)
}

func checkAudiences(i *Issuer) error {
	switch n := len(i.Audiences); {
	case n == 0:
		return fault.Invalid("audiences", "is required: give the audiences for which tokens are issued, such as https://api.example.com")
	case n > MaxAudiences:
		return fault.Invalid("audiences", "must have at most %d audiences", MaxAudiences)
	}
	return checkTexts("audiences", i.Audiences)
}

// checkTexts checks the elements of a list of texts, no two of which may be equal.
func checkTexts(field string, list []string) error {
	var problems []error
	for n, text := range list {
		at := fmt.Sprintf("%s[%d]", field, n)
		if first := slices.Index(list, text); first < n {
			problems = append(problems, fault.Invalid(at, "is a duplicate of %s[%d]: remove one", field, first))
			continue
		}
		problems = append(problems, checkText(at, text))
	}
	return fault.Join(problems...)
}

// checkText checks a text that is compared with one of a token.
func checkText(field, text string) error {
	if text == "" || len(text) > maxText {
		return fault.Invalid(field, "must have 1 to %d bytes", maxText)
	}
	return label.CheckText(field, text)
}

func checkAlgorithms(i *Issuer) error {
	if i.Algorithms == nil {
		return nil
	}
	if len(i.Algorithms) == 0 {
		return fault.Invalid("algorithms", "must have at least one: leave it out, or set it to null, for RS256, ES256 and EdDSA")
	}
	var problems []error
	for n, a := range i.Algorithms {
		field := fmt.Sprintf("algorithms[%d]", n)
		switch first := slices.Index(i.Algorithms, a); {
		case !a.Valid():
			problems = append(problems, fault.Invalid(field, "must be one of %s: others, such as HS256 and none, are not supported", join(jwk.Algorithms())))
		case first < n:
			problems = append(problems, fault.Invalid(field, "is a duplicate of algorithms[%d]: remove one", first))
		}
	}
	return fault.Join(problems...)
}

func join(list []jwk.Algorithm) string {
	names := make([]string, len(list))
	for i, a := range list {
		names[i] = string(a)
	}
	return strings.Join(names, ", ")
}

func checkLeeway(i *Issuer) error {
	return checkDuration("leeway", i.Leeway, 0, MaxLeeway, "must be a duration between 0s and 5m, such as 30s")
}

func checkMaxLifetime(i *Issuer) error {
	return checkDuration("max_lifetime", i.MaxLifetime, minLifetime, maxLifetime, "must be a duration between 1m and 9600h, such as 24h")
}

func checkDuration(field, text string, least, most time.Duration, message string) error {
	if text == "" {
		return nil
	}
	if d, err := time.ParseDuration(text); err != nil || d < least || d > most {
		return fault.Invalid(field, "%s", message)
	}
	return nil
}

func checkType(i *Issuer) error {
	switch {
	case i.Type == "":
		return nil
	case IsForbiddenType(i.Type):
		return fault.Invalid("typ", "must not be %s, which no access token has", i.Type)
	case len(i.Type) > maxText || strings.ContainsFunc(i.Type, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fault.Invalid("typ", "must have 1 to %d printable ASCII characters without spaces, such as at+jwt", maxText)
	}
	return nil
}

func checkRequired(i *Issuer) error {
	if len(i.Required) > MaxRequired {
		return fault.Invalid("required", "must have at most %d claims", MaxRequired)
	}
	var problems []error
	for _, claim := range slices.Sorted(maps.Keys(i.Required)) {
		field, values := "required."+claim, i.Required[claim]
		problems = append(problems, checkClaim(field, claim))
		if len(values) == 0 || len(values) > MaxValues {
			problems = append(problems, fault.Invalid(field, "must have 1 to %d values", MaxValues))
			continue
		}
		for n := range values {
			switch text, isText := values[n].Text(); {
			case isText && text != "":
				problems = append(problems, checkText(field, text))
			case len(text) > maxText:
				problems = append(problems, fault.Invalid(field, "must have at most %d digits", maxText))
			}
		}
	}
	return fault.Join(problems...)
}

// checkClaim checks the name of a claim, or a path of names.
func checkClaim(field, claim string) error {
	if claim == "" || len(claim) > maxText {
		return fault.Invalid(field, "must be the name of a claim, of 1 to %d bytes", maxText)
	}
	return label.CheckText(field, claim)
}

func checkClaims(i *Issuer) error {
	var problems []error
	for _, c := range []struct{ field, claim string }{{"claims.scope", i.Claims.Scope}, {"claims.owner", i.Claims.Owner}, {"claims.plan", i.Claims.Plan}} {
		if c.claim != "" {
			problems = append(problems, checkClaim(c.field, c.claim))
		}
	}
	return fault.Join(problems...)
}

func checkScopeMap(i *Issuer) error {
	if len(i.ScopeMap) > MaxScopeMap {
		return fault.Invalid("scope_map", "must have at most %d words", MaxScopeMap)
	}
	var problems []error
	for _, word := range slices.Sorted(maps.Keys(i.ScopeMap)) {
		if err := checkText("scope_map", word); err != nil {
			problems = append(problems, err)
			continue
		}
		problems = append(problems, checkScope("scope_map."+word, i.ScopeMap[word]))
	}
	return fault.Join(problems...)
}

// checkScope checks that a text is one scope.
func checkScope(field, text string) error {
	scopes, err := apikey.ParseScopes(text)
	if err != nil {
		return fault.Invalid(field, "%s", fault.ProblemsOf(err)[0].Message)
	}
	if len(scopes) > 1 {
		return fault.Invalid(field, "must be one scope, such as read:orders")
	}
	return nil
}

func checkDefaultScopes(i *Issuer) error {
	if len(i.DefaultScopes) > apikey.MaxScopes {
		return fault.Invalid("default_scopes", "must have at most %d scopes", apikey.MaxScopes)
	}
	var problems []error
	for n, text := range i.DefaultScopes {
		field := fmt.Sprintf("default_scopes[%d]", n)
		if first := slices.Index(i.DefaultScopes, text); first < n {
			problems = append(problems, fault.Invalid(field, "is a duplicate of default_scopes[%d]: remove one", first))
			continue
		}
		problems = append(problems, checkScope(field, text))
	}
	return fault.Join(problems...)
}

func checkOwnerPrefix(i *Issuer) error {
	p := i.OwnerPrefix
	switch {
	case p == nil || *p == "":
		return nil
	case len(*p) > maxPrefix:
		return fault.Invalid("owner_prefix", "must have at most %d characters", maxPrefix)
	}
	return owner.CheckExternalID("owner_prefix", *p)
}

func checkClaimHeaders(i *Issuer) error {
	if len(i.ClaimHeaders) > MaxClaimHeaders {
		return fault.Invalid("claim_headers", "must have at most %d headers", MaxClaimHeaders)
	}
	names := make(map[string]string, len(i.ClaimHeaders))
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(i.ClaimHeaders)) {
		names[name] = "-" // only the names are checked here
		field := "claim_headers." + name
		if strings.EqualFold(name, gateway.Authorization) {
			problems = append(problems, fault.Invalid(field, "is reserved: the credential stands there"))
		}
		problems = append(problems, checkClaim(field, i.ClaimHeaders[name]))
	}
	return fault.Join(append([]error{gateway.CheckRequestHeaders("claim_headers", names)}, problems...)...)
}
