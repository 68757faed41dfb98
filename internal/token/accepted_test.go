package token

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/issuer"
)

// Guarantee: a token gives the scopes, the owner, the plan and the headers that its claims say, through what the issuer
// maps (identity.md, section 2).
func TestWhatTokensGive(t *testing.T) {
	all := func(r *issuer.Issuer) {
		r.Claims = issuer.Claims{Scope: "realm_access.roles", Owner: "org.id", Plan: "https://example.com/plan"}
		r.ScopeMap = map[string]string{"Order Admin": "write:orders", "openid": "read:me", "read:b": "read:c"}
		r.ClaimHeaders = map[string]string{"X-Email": "email", "X-Level": "level"}
	}
	prefix := func(p string) func(*issuer.Issuer) {
		return func(r *issuer.Issuer) { r.Claims.Owner, r.OwnerPrefix = "org", &p }
	}
	for _, tc := range []struct {
		name   string
		change func(*issuer.Issuer)
		claims string
		want   string
	}{
		{"scope is the default claim", nil, `,"scope":"openid read:orders write read:orders"`, `[read:orders write]   []`},
		{"scp is used without scope", nil, `,"scp":["read","read:orders/items"]`, `[read read:orders/items]   []`},
		{"scope hides scp", nil, `,"scope":"","scp":"admin"`, `[]   []`},
		{"no scopes without claim and default", nil, ``, `[]   []`},
		{"default scopes", func(r *issuer.Issuer) { r.DefaultScopes = []string{"read:a", "read:b"} }, ``, `[read:a read:b]   []`},
		{"no default scopes where the claim is empty", func(r *issuer.Issuer) { r.DefaultScopes = []string{"read"} }, `,"scope":[]`, `[]   []`},
		{"another claim for the scopes hides scope", func(r *issuer.Issuer) { r.Claims.Scope = "roles" }, `,"scope":"admin"`, `[]   []`},
		{"a word of a list may have spaces, and words that are mapped are replaced", all, `,"realm_access":{"roles":["Order Admin","openid","read:b","x y"]}`, `[write:orders read:me read:c]   []`},
		{"wildcards and commas are no scopes", nil, `,"scope":"read:* read,write READ read:"`, `[]   []`},
		{"scopes are compared in normal form", nil, `,"scope":"read:%61 read:a"`, `[read:a]   []`},
		{"owner with the default prefix", all, `,"org":{"id":"acme"}`, `[] login/acme  []`},
		{"owner with a prefix", prefix("eu-"), `,"org":"acme"`, `[] eu-acme  []`},
		{"owner without a prefix", prefix(""), `,"org":"acme"`, `[] acme  []`},
		{"no owner without the claim", all, `,"org":{"name":"acme"}`, `[]   []`},
		{"no owner where none is configured", nil, `,"owner":"acme","plan":"gold"`, `[]   []`},
		{"plan", all, `,"https://example.com/plan":"gold"`, `[]  gold []`},
		{"headers", all, `,"email":"a@example.com","level":7.50`, `[]   [{X-Email a@example.com} {X-Level 7.50}]`},
		{"no header without the claim", all, `,"level":-1e3`, `[]   [{X-Level -1e3}]`},
		{"an empty header", all, `,"email":""`, `[]   [{X-Email }]`},
	} {
		p, refusal := check(valid(t, tc.claims), []*Issuer{compile(t, tc.change)}, now)
		if refusal != nil {
			t.Errorf("%s: %v", tc.name, refusal)
			continue
		}
		if got := fmt.Sprintf("[%s] %s %s %v", p.Scopes.String(), p.Owner, p.Plan, p.Headers); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

// Guarantee: claims of every form that the standards allow pass.
func TestFormsThatPass(t *testing.T) {
	required := func(json string) func(r *issuer.Issuer) {
		return func(r *issuer.Issuer) {
			var v issuer.Values
			if err := v.UnmarshalJSON([]byte(json)); err != nil {
				t.Fatal(err)
			}
			r.Required = map[string]issuer.Values{"x.y": v}
		}
	}
	typ := func(r *issuer.Issuer) { r.Type = "application/AT+JWT" }
	body := `{"iss":"https://login.example.com/","aud":"api","sub":"u1","exp":1767226200%s}`
	for _, tc := range []struct {
		name           string
		change         func(*issuer.Issuer)
		header, claims string
	}{
		{"no kid, and one key that fits", nil, `{"alg":"EdDSA"}`, fmt.Sprintf(body, "")},
		{"white space", nil, " {\"alg\" : \"EdDSA\"}\n", "\r\n\t" + fmt.Sprintf(body, " ")},
		{"several audiences", nil, `{"alg":"EdDSA"}`, strings.Replace(fmt.Sprintf(body, ""), `"api"`, `["x","https://api.example.com"]`, 1)},
		{"members that differ in case", nil, `{"alg":"EdDSA","ALG":"none","Crit":1}`, fmt.Sprintf(body, `,"Sub":"root","CNF":1`)},
		{"other members of the header", nil, `{"alg":"EdDSA","x5c":[],"x5t":"a","cty":"JWT"}`, fmt.Sprintf(body, "")},
		{"a typ where none is required", nil, `{"alg":"EdDSA","typ":"JWT"}`, fmt.Sprintf(body, "")},
		{"typ without application/", typ, `{"alg":"EdDSA","typ":"at+jwt"}`, fmt.Sprintf(body, "")},
		{"typ in other case", typ, `{"alg":"EdDSA","typ":"Application/At+Jwt"}`, fmt.Sprintf(body, "")},
		{"fractions", nil, `{"alg":"EdDSA"}`, fmt.Sprintf(body, `,"nbf":1767225600.25,"iat":1.7672256e9`)},
		{"nbf and iat at the leeway", nil, `{"alg":"EdDSA"}`, fmt.Sprintf(body, `,"nbf":1767225660,"iat":1767225660.0`)},
		{"exp within the leeway", nil, `{"alg":"EdDSA"}`, strings.Replace(fmt.Sprintf(body, ""), "1767226200", "1767225541", 1)},
		{"exp at max_lifetime", nil, `{"alg":"EdDSA"}`, strings.Replace(fmt.Sprintf(body, ""), "1767226200", "1767312000", 1)},
		{"a required claim in a list", required(`"b"`), `{"alg":"EdDSA"}`, fmt.Sprintf(body, `,"x":{"y":["a",1,"b"]}`)},
		{"one of several values", required(`["a","b"]`), `{"alg":"EdDSA"}`, fmt.Sprintf(body, `,"x":{"y":"b"}`)},
		{"a number that is written differently", required(`150`), `{"alg":"EdDSA"}`, fmt.Sprintf(body, `,"x.y":1.50e2`)},
		{"true", required(`true`), `{"alg":"EdDSA"}`, fmt.Sprintf(body, `,"x":{"y":true}`)},
	} {
		if _, refusal := check(mint(t, "ed", "EdDSA", tc.header, tc.claims), []*Issuer{compile(t, tc.change)}, now); refusal != nil {
			t.Errorf("%s: %v", tc.name, refusal)
		}
	}
}

// Guarantee: the times of a token are exact to the leeway: it passes until exp and the leeway, and not at that moment.
func TestTimesAreExact(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		leeway := time.Duration(rapid.IntRange(0, 300).Draw(r, "leeway")) * time.Second
		lifetime := time.Duration(rapid.IntRange(60, 400*86400).Draw(r, "max_lifetime")) * time.Second
		exp := now.Unix() + rapid.Int64Range(-1000, 401*86400).Draw(r, "exp")
		nbf := now.Unix() + rapid.Int64Range(-1000, 1000).Draw(r, "nbf")
		at := now.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(r, "at")))
		i := compile(t, func(rec *issuer.Issuer) { rec.Leeway, rec.MaxLifetime = leeway.String(), lifetime.String() })
		token := mint(t, "ed", "EdDSA", `{"alg":"EdDSA"}`, fmt.Sprintf(`{"iss":"https://login.example.com/","aud":"api","sub":"u1","nbf":%d,"exp":%d}`, nbf, exp))
		var want Reason
		switch {
		case at.Add(leeway).Before(time.Unix(nbf, 0)):
			want = NotYetValid
		case at.Add(lifetime).Before(time.Unix(exp, 0)):
			want = TooLongLived
		case !at.Before(time.Unix(exp, 0).Add(leeway)):
			want = Expired
		}
		p, refusal := check(token, []*Issuer{i}, at)
		switch {
		case refusal == nil && want == "":
			if !p.ExpiresAt.Equal(time.Unix(exp, 0)) || !p.RefusedAt.Equal(time.Unix(exp, 0).Add(leeway)) {
				r.Errorf("got the ends %s and %s", p.ExpiresAt, p.RefusedAt)
			}
		case refusal == nil || refusal.Reason != want:
			r.Errorf("got %v, want %q", refusal, want)
		}
	})
}

// Guarantee: a token is checked against the issuer that it names, and no other of the gateway; a refusal says which.
func TestTokenOfOneOfSeveralIssuers(t *testing.T) {
	one, two := compile(t, nil), compile(t, func(r *issuer.Issuer) {
		r.ID, r.URL, r.Audiences = "iss_2", "https://two.example.com", []string{"two"}
	})
	token := valid(t, "")
	if p, refusal := check(token, []*Issuer{two, one}, now); refusal != nil || p.IssuerID != "iss_1" {
		t.Errorf("got %+v, %v", p, refusal)
	}
	if _, refusal := check(token, []*Issuer{two}, now); refusal == nil || refusal.Reason != UnknownIssuer || refusal.IssuerID != "" {
		t.Errorf("got %+v, want an unknown issuer", refusal)
	}
	other := `{"iss":"https://two.example.com","aud":"api","sub":"u1","exp":1767226200}`
	if _, refusal := check(mint(t, "ed", "EdDSA", `{"alg":"EdDSA"}`, other), []*Issuer{one, two}, now); refusal == nil || refusal.Reason != WrongAudience || refusal.IssuerID != "iss_2" {
		t.Errorf("got %+v, want the audience of the second issuer", refusal)
	}
}

// Guarantee: a subject of more than 255 bytes is recorded by its SHA-256, and a denial of that refuses it.
func TestLongSubject(t *testing.T) {
	subject := strings.Repeat("s", 256)
	i := compile(t, nil)
	token := mint(t, "ed", "EdDSA", `{"alg":"EdDSA"}`, fmt.Sprintf(`{"iss":"https://login.example.com/","aud":"api","sub":%q,"exp":1767226200}`, subject))
	p, refusal := check(token, []*Issuer{i}, now)
	if refusal != nil || p.Subject != subject || len(p.RecordedSubject()) != 64 {
		t.Fatalf("got %+v, %v", p, refusal)
	}
	i.denials.Put(issuer.Denial{ID: "1", Subject: p.RecordedSubject(), Until: now.Add(time.Hour)})
	if _, refusal := check(token, []*Issuer{i}, now); refusal == nil || refusal.Reason != Denied {
		t.Errorf("got %v, want it denied", refusal)
	}
}

// Guarantee: the principal of a token depends on the claims that the issuer names, and on no other claim.
func TestOtherClaimsChangeNothing(t *testing.T) {
	i := compile(t, func(r *issuer.Issuer) { r.Claims.Owner = "org" })
	plain, refusal := check(valid(t, `,"scope":"read","org":"o"`), []*Issuer{i}, now)
	if refusal != nil {
		t.Fatal(refusal)
	}
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.StringMatching(`[a-zA-Z_:./-]{1,20}`).Draw(r, "name")
		switch name {
		case "iss", "aud", "sub", "exp", "nbf", "iat", "jti", "cnf", "scope", "org":
			return
		}
		value := rapid.SampledFrom([]string{"1", `"admin"`, "null", `{"sub":"root","scope":"admin"}`, `["a",[]]`, "true"}).Draw(r, "value")
		p, refusal := check(valid(t, fmt.Sprintf(`,%q:%s,"scope":"read","org":"o"`, name, value)), []*Issuer{i}, now)
		if refusal != nil || !reflect.DeepEqual(p, plain) {
			r.Errorf("got %+v, %v; want %+v", p, refusal, plain)
		}
	})
	if want := (apikey.Scopes{{Word: apikey.Read}}); !reflect.DeepEqual(plain.Scopes, want) {
		t.Errorf("got the scopes %v", plain.Scopes)
	}
}
