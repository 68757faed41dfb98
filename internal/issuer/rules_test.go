package issuer

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/jwk"
)

// edKey is a public key (RFC 8037, A.2).
const edKey = `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIuaPcHURo"}`

// valid returns an issuer that has only what is required.
func valid() *Issuer {
	return &Issuer{Name: "login", Settings: Settings{URL: "https://login.example.com/", Audiences: []string{"api"}}}
}

// Guarantee: a bad value of each field is an error that names the field and says what to do (identity.md, section 2).
func TestMistakes(t *testing.T) {
	long := strings.Repeat("a", 256)
	list := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint("a", i))
		}
		return list
	}
	claims := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("X-A", i)] = "read"
		}
		return m
	}
	required := func(text string) map[string]Values {
		var m map[string]Values
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	jwks := func(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }
	with := func(kid string) string { return strings.TrimSuffix(edKey, "}") + `,"kid":"` + kid + `"}` }
	for _, tc := range []struct {
		change      func(i *Issuer)
		field, want string
	}{
		{func(i *Issuer) { i.Name = "" }, "name", "1 to 64 characters"},
		{func(i *Issuer) { i.Name = "Login" }, "name", "1 to 64 characters"},
		{func(i *Issuer) { i.URL = "" }, "issuer", "is required"},
		{func(i *Issuer) { i.URL = "http://login.example.com" }, "issuer", "must start with https://"},
		{func(i *Issuer) { i.URL = "login.example.com" }, "issuer", "must start with https://"},
		{func(i *Issuer) { i.URL = "HTTPS://login.example.com" }, "issuer", "must start with https://"},
		{func(i *Issuer) { i.URL = "https://u:p@login.example.com" }, "issuer", "user or password"},
		{func(i *Issuer) { i.URL = "https://login.example.com?a" }, "issuer", "query"},
		{func(i *Issuer) { i.URL = "https://login.example.com#a" }, "issuer", "fragment"},
		{func(i *Issuer) { i.URL = "https://" }, "issuer", "a host"},
		{func(i *Issuer) { i.URL = "https://a..b" }, "issuer", "a host"},
		{func(i *Issuer) { i.URL = "https://login.example.com:0" }, "issuer", "port"},
		{func(i *Issuer) { i.URL = "https://login.example.com:" }, "issuer", "port"},
		{func(i *Issuer) { i.URL = "https://login.example.com/a b" }, "issuer", "must be a URL"},
		{func(i *Issuer) { i.URL = "https://ü.example" }, "issuer", "must be a URL"},
		{func(i *Issuer) { i.URL = "https://a.example/" + strings.Repeat("a", 2048) }, "issuer", "2048"},
		{func(i *Issuer) { i.JWKSURL = "http://login.example.com/keys" }, "jwks_url", "https://"},
		{func(i *Issuer) { i.JWKSURL, i.JWKS = "https://login.example.com/keys", jwks(edKey) }, "jwks_url", "must not be given with jwks"},
		{func(i *Issuer) { i.JWKS = `[]` }, "jwks", "must be a JSON object"},
		{func(i *Issuer) { i.JWKS = jwks() }, "jwks", "must have a public key for signatures"},
		{func(i *Issuer) { i.JWKS = jwks(`{"kty":"new"}`) }, "jwks", "must have a public key for signatures"},
		{func(i *Issuer) { i.JWKS = jwks(edKey, `{"kty":"oct","k":"c2VjcmV0"}`) }, "jwks.keys[1]", "which is secret"},
		{func(i *Issuer) { i.JWKS = jwks(`{"kty":"RSA","n":"AQAB","e":"AQAB"}`) }, "jwks.keys[0]", "RSA keys must have 2048 to 4096"},
		{func(i *Issuer) { i.JWKS = jwks(with("a"), with("b"), with("a")) }, "jwks.keys[2]", "must differ from keys[0]"},
		{func(i *Issuer) { i.JWKS = jwks(edKey, edKey) }, "jwks.keys[1]", "must differ from keys[0]"},
		{func(i *Issuer) { i.JWKS, i.Algorithms = jwks(edKey), []jwk.Algorithm{jwk.RS256} }, "algorithms", "fit no key of jwks"},
		{func(i *Issuer) { i.JWKS = jwks(edKey) + strings.Repeat(" ", 128<<10) }, "jwks", "131072 bytes"},
		{func(i *Issuer) { i.CA = "hello" }, "ca", "certificates in PEM"},
		{func(i *Issuer) { i.CA, i.JWKS = "hello", jwks(edKey) }, "ca", "must not be given with jwks"},
		{func(i *Issuer) { i.Audiences = nil }, "audiences", "is required"},
		{func(i *Issuer) { i.Audiences = list(17) }, "audiences", "at most 16"},
		{func(i *Issuer) { i.Audiences = []string{"a", "b", "a"} }, "audiences[2]", "is a duplicate of audiences[0]"},
		{func(i *Issuer) { i.Audiences = []string{"a", ""} }, "audiences[1]", "1 to 255 bytes"},
		{func(i *Issuer) { i.Audiences = []string{long} }, "audiences[0]", "1 to 255 bytes"},
		{func(i *Issuer) { i.Audiences = []string{"a\n"} }, "audiences[0]", "control characters"},
		{func(i *Issuer) { i.Algorithms = []jwk.Algorithm{} }, "algorithms", "at least one"},
		{func(i *Issuer) { i.Algorithms = []jwk.Algorithm{"RS256", "HS256"} }, "algorithms[1]", "such as HS256 and none, are not supported"},
		{func(i *Issuer) { i.Algorithms = []jwk.Algorithm{"none"} }, "algorithms[0]", "must be one of RS256, RS384"},
		{func(i *Issuer) { i.Algorithms = []jwk.Algorithm{"ES256", "ES256"} }, "algorithms[1]", "is a duplicate"},
		{func(i *Issuer) { i.Leeway = "6m" }, "leeway", "between 0s and 5m"},
		{func(i *Issuer) { i.Leeway = "-1s" }, "leeway", "between 0s and 5m"},
		{func(i *Issuer) { i.Leeway = "60" }, "leeway", "between 0s and 5m"},
		{func(i *Issuer) { i.MaxLifetime = "9601h" }, "max_lifetime", "between 1m and 9600h"},
		{func(i *Issuer) { i.MaxLifetime = "1d" }, "max_lifetime", "between 1m and 9600h"},
		{func(i *Issuer) { i.Type = "application/Logout+JWT" }, "typ", "no access token has"},
		{func(i *Issuer) { i.Type = "at jwt" }, "typ", "printable ASCII"},
		{func(i *Issuer) { i.Required = required(`{"":1}`) }, "required.", "name of a claim"},
		{func(i *Issuer) { i.Required = required(`{"a":[]}`) }, "required.a", "1 to 16 values"},
		{func(i *Issuer) { i.Required = required(`{"a":["` + long + `"]}`) }, "required.a", "1 to 255 bytes"},
		{func(i *Issuer) { i.Required = required(`{"a":` + strings.Repeat("1", 256) + `}`) }, "required.a", "255 digits"},
		{func(i *Issuer) { i.Claims.Scope = long }, "claims.scope", "name of a claim"},
		{func(i *Issuer) { i.Claims.Owner = "a\x00" }, "claims.owner", "control characters"},
		{func(i *Issuer) { i.Claims.Plan = long }, "claims.plan", "name of a claim"},
		{func(i *Issuer) { i.ScopeMap = map[string]string{"a": "read write"} }, "scope_map.a", "one scope"},
		{func(i *Issuer) { i.ScopeMap = map[string]string{"a": "reed"} }, "scope_map.a", "must be read, write, admin"},
		{func(i *Issuer) { i.ScopeMap = map[string]string{"": "read"} }, "scope_map", "1 to 255 bytes"},
		{func(i *Issuer) { i.ScopeMap = claims(101) }, "scope_map", "at most 100"},
		{func(i *Issuer) { i.DefaultScopes = []string{"read", "orders"} }, "default_scopes[1]", "must be read, write, admin"},
		{func(i *Issuer) { i.DefaultScopes = []string{"read", "read"} }, "default_scopes[1]", "is a duplicate"},
		{func(i *Issuer) { i.DefaultScopes = list(17) }, "default_scopes", "at most 16"},
		{func(i *Issuer) { p := " a"; i.OwnerPrefix = &p }, "owner_prefix", "must not begin or end with a space"},
		{func(i *Issuer) { p := long; i.OwnerPrefix = &p }, "owner_prefix", "at most 64"},
		{func(i *Issuer) { i.ClaimHeaders = claims(9) }, "claim_headers", "at most 8"},
		{func(i *Issuer) { i.ClaimHeaders = map[string]string{"Authorization": "a"} }, "claim_headers.Authorization", "is reserved"},
		{func(i *Issuer) { i.ClaimHeaders = map[string]string{"authorization": "a"} }, "claim_headers.authorization", "is reserved"},
		{func(i *Issuer) { i.ClaimHeaders = map[string]string{"Host": "a"} }, "claim_headers.Host", "is reserved"},
		{func(i *Issuer) { i.ClaimHeaders = map[string]string{"X_Forwarded_For": "a"} }, "claim_headers.X_Forwarded_For", "is reserved"},
		{func(i *Issuer) { i.ClaimHeaders = map[string]string{"X-A": "a", "x_a": "b"} }, "claim_headers.x_a", "is a duplicate"},
		{func(i *Issuer) { i.ClaimHeaders = map[string]string{"X-A": ""} }, "claim_headers.X-A", "name of a claim"},
		{func(i *Issuer) { i.ClaimHeaders = map[string]string{"X A": "a"} }, "claim_headers", "is not a valid header name"},
	} {
		i := valid()
		tc.change(i)
		problems := fault.ProblemsOf(i.Validate())
		if len(problems) != 1 || problems[0].Field != tc.field || !strings.Contains(problems[0].Message, tc.want) {
			t.Errorf("got %v, want one problem of %s that contains %q", problems, tc.field, tc.want)
		}
	}
}

// Guarantee: everything that the contract allows is accepted, and all mistakes come at once.
func TestValid(t *testing.T) {
	empty, prefix := "", "eu-"
	for n, change := range []func(i *Issuer){
		func(*Issuer) {},
		func(i *Issuer) { i.URL = "https://kubernetes.default.svc.cluster.local" },
		func(i *Issuer) { i.URL = "https://key_cloak:8443/realms/main" },
		func(i *Issuer) { i.URL = "https://[2001:db8::1]:8443/" },
		func(i *Issuer) { i.URL = "https://localhost:8443" },
		func(i *Issuer) { i.JWKSURL = "https://login.example.com/keys?v=2" },
		func(i *Issuer) { i.JWKS = `{"keys":[{"kty":"new"},` + edKey + `]}` },
		func(i *Issuer) { i.Algorithms = jwk.Algorithms() },
		func(i *Issuer) { i.Leeway, i.MaxLifetime = "0s", "9600h" },
		func(i *Issuer) { i.Type = "application/at+jwt" },
		func(i *Issuer) { i.OwnerPrefix = &empty },
		func(i *Issuer) { i.OwnerPrefix = &prefix },
		func(i *Issuer) {
			i.Required = map[string]Values{"realm_access.roles": {{kind: '"', text: "admin"}}, "a": {{kind: '"'}, {kind: 't'}}}
		},
		func(i *Issuer) { i.ScopeMap = map[string]string{"Order Admin": "write:orders"} },
		func(i *Issuer) { i.ClaimHeaders = map[string]string{"X-Email": "https://example.com/email"} },
	} {
		i := valid()
		change(i)
		if err := i.Validate(); err != nil {
			t.Errorf("%d: %v", n, err)
		}
	}
	i := &Issuer{Settings: Settings{Leeway: "x", Type: "dpop+jwt"}}
	var fields []string
	for _, p := range fault.ProblemsOf(i.Validate()) {
		fields = append(fields, p.Field)
	}
	if want := []string{"name", "issuer", "audiences", "leeway", "typ"}; !slices.Equal(fields, want) {
		t.Errorf("got the fields %v, want %v", fields, want)
	}
}

// Guarantee: the stored form keeps everything, and settings that are not set take nothing of it.
func TestStoredForm(t *testing.T) {
	small, err := json.Marshal(valid().Settings)
	if err != nil || string(small) != `{"issuer":"https://login.example.com/","audiences":["api"]}` {
		t.Errorf("got %s, %v", small, err)
	}
	prefix := ""
	s := Settings{
		URL: "https://a.example", JWKSURL: "https://a.example/keys", CA: "ca", Audiences: []string{"a", "b"}, Algorithms: []jwk.Algorithm{jwk.ES384},
		Leeway: "0s", MaxLifetime: "1h", Type: "at+jwt", Required: map[string]Values{"a": {{kind: '"', text: "x"}}, "b": {{kind: 't'}, {kind: 'f'}}},
		Claims: Claims{Scope: "s", Owner: "o", Plan: "p"}, ScopeMap: map[string]string{"a": "read"}, DefaultScopes: []string{"read"},
		OwnerPrefix: &prefix, ClaimHeaders: map[string]string{"X-A": "a"}, ForwardToken: true,
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Settings
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("%s: got %+v, %v; want %+v", text, back, err, s)
	}
}

// Guarantee: a difference names exactly the fields whose value in force differs, in the order of the table; a default that
// is written out is none.
func TestDiff(t *testing.T) {
	before, after := valid(), valid()
	after.Leeway, after.MaxLifetime, after.Algorithms = "60s", "24h", DefaultAlgorithms()
	prefix := "login/"
	after.OwnerPrefix = &prefix
	if d := Diff(before, after); d != nil {
		t.Errorf("got %v, want no difference", d)
	}
	after.Audiences, after.ForwardToken, after.Leeway = []string{"b"}, true, "30s"
	want := []Change{{"audiences", []string{"api"}, []string{"b"}}, {"leeway", "60s", "30s"}, {"forward_token", false, true}}
	if d := Diff(before, after); !reflect.DeepEqual(d, want) {
		t.Errorf("got %v, want %v", d, want)
	}
	if d := Diff(nil, before); len(d) == 0 || d[0] != (Change{Field: "name", After: "login"}) {
		t.Errorf("a new issuer: got %v", d)
	}
	if d := Diff(before, nil); len(d) == 0 || d[0] != (Change{Field: "name", Before: "login"}) {
		t.Errorf("a deleted issuer: got %v", d)
	}
}

// Guarantee: every field of the stored form is in the table, under the name that it has there.
func TestEveryFieldIsInTheTable(t *testing.T) {
	names := map[string]bool{"name": true}
	of := reflect.TypeFor[Settings]()
	for n := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(n).Tag.Get("json"), ",")
		names[name] = true
	}
	for _, f := range Fields() {
		if !names[f.Name] || f.Doc == "" {
			t.Errorf("%s is no field, or has no text", f.Name)
		}
		delete(names, f.Name)
	}
	if len(names) > 0 {
		t.Errorf("not in the table: %v", names)
	}
}

// Guarantee: values are equal if their types and values are, however they are written, also after they were stored.
func TestValues(t *testing.T) {
	for _, same := range [][]string{
		{"1", "1.0", "10e-1", "0.1E1", "100E-2"}, {"0", "-0", "0.0", "0e99"}, {`"1"`, `"\u0031"`}, {"true"}, {"false"}, {`""`},
		{"9007199254740993"}, {"9007199254740992"}, {"1e400"}, {"-1"}, {"0.1"}, {"-0.001", "-1e-3"}, {"123456789012345678901234567890"}, {"1e-9"},
	} {
		first, ok := ParseValue([]byte(same[0]))
		if !ok {
			t.Fatalf("%s is no value", same[0])
		}
		for _, text := range same {
			v, ok := ParseValue([]byte(text))
			stored, err := json.Marshal(v)
			var back Value
			if !ok || v != first || err != nil || json.Unmarshal(stored, &back) != nil || back != v {
				t.Errorf("%s and %s: got %+v and %+v; stored as %s, %v: %+v", same[0], text, first, v, stored, err, back)
			}
		}
	}
	for _, text := range []string{"null", "{}", "[]", "[1]"} {
		if _, ok := ParseValue([]byte(text)); ok {
			t.Errorf("%s is a value", text)
		}
	}
	for _, different := range [][2]string{{"1", `"1"`}, {"1", "true"}, {"1", "-1"}, {"1", "10"}, {"0.1", "0.01"}, {`""`, "0"}, {`"true"`, "true"}} {
		a, _ := ParseValue([]byte(different[0]))
		if b, _ := ParseValue([]byte(different[1])); a == b {
			t.Errorf("%s and %s are equal", different[0], different[1])
		}
	}
}

// Guarantee: a number of seconds is read exactly to the nanosecond, and saturates far away.
func TestSeconds(t *testing.T) {
	for text, want := range map[string][2]int64{
		"0": {0, 0}, "1767225600": {1767225600, 0}, "1.7672256e9": {1767225600, 0}, "1767225600.25": {1767225600, 250_000_000}, "0.000000001": {0, 1},
		"0.0000000001": {0, 0}, "-0.5": {-1, 500_000_000}, "-1": {-1, 0}, "1e400": {1 << 53, 0}, "-1e400": {-1 << 53, 0}, "1e-400": {0, 0},
		"9007199254740991.5": {1<<53 - 1, 500_000_000}, "9007199254740993": {1 << 53, 0}, "9999999999999999": {1 << 53, 0}, "1e99999999999999999999": {1 << 53, 0},
		"100": {100, 0}, "12.000000000999999999": {12, 0},
	} {
		v, _ := ParseValue([]byte(text))
		if seconds, nanoseconds, ok := v.Seconds(); !ok || seconds != want[0] || nanoseconds != want[1] {
			t.Errorf("%s: got %d, %d, %v; want %v", text, seconds, nanoseconds, ok, want)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		s, n := rapid.Int64Range(0, 1<<52).Draw(r, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(r, "nanoseconds")
		v, _ := ParseValue(fmt.Appendf(nil, "%d.%09d", s, n))
		if seconds, nanoseconds, ok := v.Seconds(); !ok || seconds != s || nanoseconds != n {
			r.Errorf("got %d, %d, %v", seconds, nanoseconds, ok)
		}
	})
	for _, text := range []string{`"1"`, "true"} {
		v, _ := ParseValue([]byte(text))
		if _, _, ok := v.Seconds(); ok {
			t.Errorf("%s is a number", text)
		}
	}
}
