package token

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/go-jose/go-jose/v4"

	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
)

// badToken is an entry of testdata/refused.txt: its lines by their names.
type badToken map[string]string

// badTokens reads testdata/refused.txt.
func badTokens(t testing.TB) []badToken {
	t.Helper()
	content, err := os.ReadFile("testdata/refused.txt")
	if err != nil {
		t.Fatal(err)
	}
	var list []badToken
	for block := range strings.SplitSeq(string(content), "\n\n") {
		b := badToken{"header": `{"alg":"RS256","kid":"rsa"}`, "claims": "{ISS,AUD,SUB,EXP}", "signer": "rsa"}
		for line := range strings.Lines(block) {
			if name, value, found := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); found && line[0] != '#' {
				b[name] = value
			}
		}
		if b["name"] != "" {
			list = append(list, b)
		}
	}
	return list
}

// changes alter a compact token of three parts.
var changes = map[string]func(p []string) string{
	"empty":        func([]string) string { return "" },
	"no signature": func(p []string) string { return p[0] + "." + p[1] },
	"fourth part":  func(p []string) string { return strings.Join(p, ".") + "." + p[2] },
	"five parts":   func(p []string) string { return strings.Join(p, ".") + ".." },
	"json serialization": func(p []string) string {
		return fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, p[0], p[1], p[2])
	},
	"empty header": func(p []string) string { return "." + p[1] + "." + p[2] },
	"empty claims": func(p []string) string { return p[0] + ".." + p[2] },
	"8193 bytes": func(p []string) string {
		return strings.Join(p, ".") + strings.Repeat("A", 8193-len(strings.Join(p, ".")))
	},
	"megabyte": func([]string) string { return strings.Repeat("A.", 1<<19) },
	"padding":  func(p []string) string { return encode(`{"alg":"RS256","kid":"rsa" }`) + "==." + p[1] + "." + p[2] },
	"standard base64": func(p []string) string {
		return p[0] + "." + base64.RawStdEncoding.EncodeToString([]byte(`{"x":"???>>>"}`)) + "." + p[2]
	},
	"line break":       func(p []string) string { return p[0] + "." + p[1] + "." + p[2][:8] + "\n" + p[2][8:] },
	"space at the end": func(p []string) string { return strings.Join(p, ".") + " " },
	"trailing bits":    func(p []string) string { return p[0] + "." + strings.TrimSuffix(encode(`{"a":1}`), "Q") + "R." + p[2] },
	"cut claims":       func(p []string) string { return p[0] + "." + encode(`{"a":1}`)[:9] + "." + p[2] },
	"byte order mark":  func(p []string) string { return encode("\ufeff"+`{"alg":"RS256"}`) + "." + p[1] + "." + p[2] },
	"utf-16": func(p []string) string {
		var wide []byte
		for _, unit := range utf16.Encode([]rune(`{"sub":"u1"}`)) {
			wide = append(wide, byte(unit), byte(unit>>8))
		}
		return p[0] + "." + encode(string(wide)) + "." + p[2]
	},
	"deep": func(p []string) string { return p[0] + "." + encode(`{"a":`+strings.Repeat("[", 5000)) + "." + p[2] },
	"other claims": func(p []string) string {
		return p[0] + "." + encode(`{"iss":"https://login.example.com/","aud":"api","sub":"root","exp":1767226200}`) + "." + p[2]
	},
	"other header":     func(p []string) string { return encode(`{"kid":"rsa","alg":"RS256"}`) + "." + p[1] + "." + p[2] },
	"cut signature":    func(p []string) string { return p[0] + "." + p[1] + "." + p[2][:len(p[2])-6] + "AA" },
	"longer signature": func(p []string) string { return p[0] + "." + p[1] + "." + p[2][:len(p[2])-2] + "AAAA" },
}

// compact returns the token of the entry.
func (b badToken) compact(t testing.TB) string {
	t.Helper()
	words := make([]string, 65)
	for i := range words {
		words[i] = fmt.Sprintf("read:r%d", i)
	}
	fill := strings.NewReplacer("ISS", `"iss":"https://login.example.com/"`, "AUD", `"aud":"api"`, "SUB", `"sub":"u1"`, "EXP", `"exp":1767226200`,
		"SCOPES65", strings.Join(words, " "), `\xff`, "\xff")
	alg := b["alg"]
	if alg == "" {
		alg = "RS256"
		var header struct{ Alg string }
		if json.Unmarshal([]byte(b["header"]), &header) == nil && jwk.Algorithm(header.Alg).Valid() {
			alg = header.Alg
		}
	}
	token := mint(t, b["signer"], alg, b["header"], fill.Replace(b["claims"]))
	if change := b["change"]; change != "" {
		if changes[change] == nil {
			t.Fatalf("there is no change %q", change)
		}
		token = changes[change](strings.Split(token, "."))
	}
	return token
}

// issuer returns the issuer that the entry is about.
func (b badToken) issuer(t testing.TB) *Issuer {
	t.Helper()
	r := record()
	r.DefaultScopes = []string{"read"}
	r.Type, r.Claims.Owner, r.Claims.Plan = b["typ"], b["owner"], b["plan"]
	if claim := b["header-claim"]; claim != "" {
		r.ClaimHeaders = map[string]string{"X-Email": claim}
	}
	if b["required"] != "" {
		if err := json.Unmarshal([]byte(b["required"]), &r.Required); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Validate(); err != nil && !strings.Contains(err.Error(), "1024 bits") { // the weak key is there on purpose
		t.Fatal(err)
	}
	denials := &issuer.Denials{}
	denials.Put(issuer.Denial{ID: "1", Subject: "denied", Until: now.Add(time.Hour)})
	denials.Put(issuer.Denial{ID: "2", JTI: "denied", Until: now.Add(time.Hour)})
	if strings.Contains(b["claims"], `"iat":1767139199`) {
		denials.Put(issuer.Denial{ID: "3", IssuedBefore: now.Add(-24 * time.Hour), Until: now.Add(time.Hour)})
	}
	i, err := NewIssuer(r, nil, denials, 1)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// check checks a token as a Verifier does that has not seen it.
func check(compact string, issuers []*Issuer, at time.Time) (*Principal, *Refusal) {
	t, refusal := Parse(compact)
	if refusal != nil {
		return nil, refusal
	}
	i, k, refusal := t.issuedBy(issuers)
	if refusal != nil {
		return nil, refusal
	}
	if !k.Verify(t.Algorithm, compact) {
		return nil, refuse(BadSignature, "").of(i)
	}
	return i.principal(t, at)
}

// Guarantee: every token of the corpus is refused, and for its reason (identity.md, section 4). Only one that has
// expired is token_expired.
func TestBadTokensAreRefused(t *testing.T) {
	used := map[string]bool{}
	for _, b := range badTokens(t) {
		t.Run(b["name"], func(t *testing.T) {
			used[b["change"]] = true
			p, refusal := check(b.compact(t), []*Issuer{b.issuer(t)}, now)
			switch {
			case refusal == nil:
				t.Fatalf("it was accepted: %+v", p)
			case refusal.Error() != b["reason"]:
				t.Errorf("got the reason\n%s, want\n%s", refusal, b["reason"])
			case refusal.Expired() != strings.HasPrefix(b["reason"], string(Expired)):
				t.Errorf("expired: got %v", refusal.Expired())
			}
		})
	}
	for _, change := range slices.Sorted(maps.Keys(changes)) {
		if !used[change] {
			t.Errorf("no token of the corpus has the change %q", change)
		}
	}
}

// Guarantee: each reason but those that other tests are about has a token in the corpus.
func TestEveryReasonIsInTheCorpus(t *testing.T) {
	content, err := os.ReadFile("testdata/refused.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []Reason{
		TooLong, NotCompact, NotBase64URL, NotJSON, HeaderRefused, AlgorithmRefused, UnknownIssuer, UnknownKey, AmbiguousKey, UnfitKey, BadSignature,
		WrongAudience, BadSubject, WrongType, Bound, RequirementNotMet, NotYetValid, IssuedInFuture, BadTime, BadExpiry, TooLongLived, BadScopes,
		TooManyScopes, BadOwner, BadPlan, BadHeaderValue, Denied, Expired,
	} {
		if !strings.Contains(string(content), "reason: "+string(reason)) {
			t.Errorf("no token is refused because %s", reason)
		}
	}
}

// Guarantee: a token of several mistakes is refused for the one that the contract names first.
func TestOrderOfChecks(t *testing.T) {
	r := record()
	r.Type, r.Required, r.DefaultScopes = "at+jwt", map[string]issuer.Values{"tenant": {{}}}, []string{"read"}
	i, err := NewIssuer(r, nil, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	header, claims := map[string]any{"crit": 1, "alg": "none", "typ": 1, "kid": "p521"}, map[string]any{"iss": "", "aud": 1, "sub": 1, "cnf": 1, "nbf": "", "iat": "", "exp": 1.5}
	signer := "other"
	for _, step := range []struct {
		want   Reason
		repair func()
	}{
		{HeaderRefused, func() { delete(header, "crit") }},
		{AlgorithmRefused, func() { header["alg"] = "RS384" }},
		{UnknownIssuer, func() { claims["iss"] = r.URL }},
		{AlgorithmRefused, func() { header["alg"] = "RS256" }},
		{UnfitKey, func() { header["kid"] = "rsa" }},
		{BadSignature, func() { signer = "rsa" }},
		{WrongAudience, func() { claims["aud"] = []string{"x", "api"} }},
		{BadSubject, func() { claims["sub"] = "u1" }},
		{WrongType, func() { header["typ"] = "at+jwt" }},
		{Bound, func() { delete(claims, "cnf") }},
		{RequirementNotMet, func() { i.required = nil }},
		{BadTime, func() { claims["nbf"] = now.Unix() + 1e6 }},
		{NotYetValid, func() { delete(claims, "nbf") }},
		{BadTime, func() { claims["iat"] = now.Unix() + 1e6 }},
		{IssuedInFuture, func() { delete(claims, "iat") }},
		{BadExpiry, func() { claims["exp"] = now.Unix() + 1e6 }},
		{TooLongLived, func() { claims["exp"] = 0 }},
		{Expired, func() {}},
	} {
		h, _ := json.Marshal(header)
		c, _ := json.Marshal(claims)
		_, refusal := check(mint(t, signer, "RS256", string(h), string(c)), []*Issuer{i}, now)
		if refusal == nil || refusal.Reason != step.want {
			t.Fatalf("header %s, claims %s: got %v, want %s", h, c, refusal, step.want)
		}
		step.repair()
	}
}

// Guarantee: what the library go-jose does not verify is not accepted either, whatever part of a valid token is
// altered, and what is accepted the library verifies with the same claims.
func TestLibraryAgrees(t *testing.T) {
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(keySet()), &keys); err != nil {
		t.Fatal(err)
	}
	i := compile(t, nil)
	for _, alg := range []struct{ alg, kid string }{
		{"RS256", "rsa"}, {"RS512", "rsa-512"}, {"PS256", "rsa"}, {"ES256", "p256"}, {"ES384", "p384"}, {"EdDSA", "ed"},
	} {
		signer := strings.TrimSuffix(alg.kid, "-512")
		whole := mint(t, signer, alg.alg, fmt.Sprintf(`{"alg":%q,"kid":%q}`, alg.alg, alg.kid), `{"iss":"https://login.example.com/","aud":"api","sub":"u1","exp":1767226200}`)
		if !compareWithLibrary(t, whole, i, &keys) {
			t.Errorf("%s: a valid token was refused", alg.alg)
		}
		for at := 0; at < len(whole); at += 3 {
			for _, c := range []byte("A_.9") {
				altered := whole[:at] + string(c) + whole[at+1:]
				if compareWithLibrary(t, altered, i, &keys) != (altered == whole) {
					t.Errorf("%s: altered at %d: accepted %v", alg.alg, at, altered != whole)
				}
			}
		}
	}
	for _, b := range badTokens(t) {
		compareWithLibrary(t, b.compact(t), b.issuer(t), &keys)
	}
}

// compareWithLibrary reports whether a token is accepted, and fails the test if it is and the library does not verify
// it.
func compareWithLibrary(t testing.TB, compact string, i *Issuer, keys *jose.JSONWebKeySet) bool {
	t.Helper()
	p, refusal := check(compact, []*Issuer{i}, now)
	if refusal != nil {
		return false
	}
	signed, err := jose.ParseSignedCompact(compact, []jose.SignatureAlgorithm{jose.RS256, jose.RS512, jose.PS256, jose.ES256, jose.ES384, jose.EdDSA})
	if err != nil {
		t.Errorf("%s is accepted, but the library says %v", compact, err)
		return true
	}
	payload, err := signed.Verify(keys)
	var claims struct{ Sub string }
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Sub != p.Subject {
		t.Errorf("%s is accepted for %q, but the library says %q, %v", compact, p.Subject, claims.Sub, err)
	}
	return true
}

// FuzzParse checks that no text makes the parser fail, and that nothing without a valid signature is accepted.
func FuzzParse(f *testing.F) {
	for _, b := range badTokens(f) {
		if token := b.compact(f); len(token) <= MaxBytes {
			f.Add(token)
		}
	}
	f.Add(valid(f, ""))
	i := compile(f, nil)
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(keySet()), &keys); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, compact string) { compareWithLibrary(t, compact, i, &keys) })
}
