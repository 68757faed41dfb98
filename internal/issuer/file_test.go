package issuer_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
)

const wholeFile = `issuers:
  - name: login
    issuer: https://login.example.com/
    audiences: [https://api.example.com, "b: c"]
    algorithms: ["ES384","RS256"]
    leeway: 0s
    max_lifetime: 1h
    typ: at+jwt
    required: {"level":[1,2.5],"ok":true,"tenant":"t1"}
    claims: {"scope":"realm_access.roles","owner":"org_id"}
    scope_map:
      "Order: Admin": write:orders
    default_scopes: [read]
    owner_prefix: ""
    claim_headers:
      X-Email: email
    forward_token: true
  - name: fetched
    issuer: https://sso.example.com
    jwks_url: https://sso.example.com/keys
    audiences: [api]
  - name: given
    issuer: https://given.example.com
    jwks: {"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIuaPcHURo"}]}
    audiences: [api]
    algorithms: ["EdDSA"]
`

// Guarantee: a file of issuers that is written is read as the same issuers, and written as the same file.
func TestFileIsReadAsWritten(t *testing.T) {
	f, err := issuer.ParseFile([]byte(wholeFile))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.Encode()); got != wholeFile {
		t.Errorf("got the file\n%s\nwant\n%s", got, wholeFile)
	}
	login := &f.Issuers[0]
	if login.Claims.Owner != "org_id" || login.Prefix() != "" || len(login.Required["level"]) != 2 || f.Issuers[1].Prefix() != "fetched/" || !strings.Contains(f.Issuers[2].JWKS, `"crv":"Ed25519"`) {
		t.Errorf("got %+v", f.Issuers)
	}
	asJSON := `{"$schema": "x", "issuers": [{"name": "a", "issuer": "https://a.example", "audiences": ["b"], "jwks": null, "ca": null, "leeway": null, "required": null, "claims": {"scope": null}}]}`
	if g, err := issuer.ParseFile([]byte(asJSON)); err != nil || len(g.Issuers) != 1 || g.Issuers[0].LeewayText() != "60s" {
		t.Errorf("got %+v and %v of JSON", g, err)
	}
	if got := string((&issuer.File{}).Encode()); got != "issuers: []\n" {
		t.Errorf("got %q of no issuers", got)
	}
}

// Guarantee: whatever the texts of an issuer are, a file reads them as they were written, and what it has in force is the
// same.
func TestAnyTextsInFiles(t *testing.T) {
	text := rapid.StringMatching(`[ -~äß€😀\x{2028}]{1,20}`).Filter(func(s string) bool { return strings.TrimSpace(s) == s })
	rapid.Check(t, func(t *rapid.T) {
		value, _ := issuer.ParseValue([]byte(rapid.SampledFrom([]string{"1", "-0.25", "1e30", "true", "false"}).Draw(t, "value")))
		i := issuer.Issuer{Name: rapid.StringMatching(`[a-z0-9_-]{1,9}`).Draw(t, "name"), Settings: issuer.Settings{
			URL: "https://a.example/" + rapid.StringMatching(`[a-z~]{0,9}`).Draw(t, "issuer"), Audiences: rapid.SliceOfNDistinct(text, 1, 3, rapid.ID).Draw(t, "audiences"),
			Algorithms: rapid.SampledFrom([][]jwk.Algorithm{nil, {jwk.PS512}}).Draw(t, "algorithms"), Required: map[string]issuer.Values{text.Draw(t, "claim"): {value}},
			Claims: issuer.Claims{Scope: text.Draw(t, "scope"), Plan: text.Draw(t, "plan")}, ScopeMap: map[string]string{text.Draw(t, "word"): "read:orders"},
			ForwardToken: rapid.Bool().Draw(t, "forward"),
		}}
		if i.Validate() != nil {
			t.Skip("not a valid issuer")
		}
		content := (&issuer.File{Issuers: []issuer.FileIssuer{{Issuer: i}}}).Encode()
		f, err := issuer.ParseFile(content)
		if err != nil || len(f.Issuers) != 1 {
			t.Fatalf("%s\ngot %v", content, err)
		}
		if diff := issuer.Diff(&i, &f.Issuers[0].Issuer); len(diff) > 0 {
			t.Fatalf("%s\nis read with the differences %+v", content, diff)
		}
	})
}

// Guarantee: every mistake of a file of issuers is reported once, at its position and with its field.
func TestMistakesInFilesOfIssuers(t *testing.T) {
	const ok = "name: a, issuer: https://a.example, audiences: [b]"
	for _, c := range []struct{ text, want string }{
		{"issuers: {}", "issuers"},
		{"issuers: []\nroutes: []", "routes"},
		{"issuers: []\nplans: []", "plans"},
		{"issuers: [7]", "issuers[0]"},
		{"issuers: [{name: a}]", "issuers[0].issuer issuers[0].audiences"},
		{"issuers: [{" + ok + "}, {" + ok + "}]", "issuers[1].name"},
		{"issuers: [{" + ok + ", state: ok}]", "issuers[0].state"},
		{"issuers: [{name: A, issuer: http://a.example, audiences: []}]", "issuers[0].name issuers[0].issuer issuers[0].audiences"},
		{"issuers: [{name: a, issuer: https://a.example, audiences: b}]", "issuers[0].audiences"},
		{"issuers: [{" + ok + ", jwks: [], leeway: 5}]", "issuers[0].jwks issuers[0].leeway"},
		{"issuers: [{" + ok + ", jwks: {keys: [{kty: oct, k: AA}]}}]", "issuers[0].jwks.keys[0]"},
		{"issuers: [{" + ok + ", jwks: {keys: [0x1F]}}]", "issuers[0].jwks.keys[0]"},
		{"issuers: [{" + ok + ", jwks_url: https://a.example, jwks: {keys: []}}]", "issuers[0].jwks_url issuers[0].jwks"},
		{"issuers: [{" + ok + ", algorithms: [HS256, RS256]}]", "issuers[0].algorithms[0]"},
		{"issuers: [{" + ok + ", algorithms: []}]", "issuers[0].algorithms"},
		{"issuers: [{" + ok + ", required: {a: {}, b: null, c: [[1]]}}]", "issuers[0].required.a issuers[0].required.b issuers[0].required.c"},
		{"issuers: [{" + ok + ", claims: {email: a}}]", "issuers[0].claims.email"},
		{"issuers: [{" + ok + ", claims: a, scope_map: {a: reed}, claim_headers: {Host: a}}]", "issuers[0].claims issuers[0].scope_map.a issuers[0].claim_headers.Host"},
		{"issuers: [{" + ok + ", default_scopes: [read, read], forward_token: 'yes', typ: dpop+jwt, owner_prefix: ' '}]", "issuers[0].default_scopes[1] issuers[0].forward_token issuers[0].typ issuers[0].owner_prefix"},
		{"issuers: [{" + ok + ", ca: ''}]", "issuers[0].ca"},
	} {
		_, err := issuer.ParseFile([]byte(c.text))
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			got = append(got, p.Field)
			if p.Line == 0 {
				t.Errorf("%s: %s has no position", c.text, p.Field)
			}
		}
		want := strings.Fields(c.want)
		slices.Sort(got)
		slices.Sort(want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got problems of %v, want %v: %v", c.text, got, want, err)
		}
	}
}
