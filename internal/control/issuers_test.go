package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
)

// jwksOf returns a JWK Set with the key of RFC 8037 under each kid.
func jwksOf(kids ...string) string {
	keys := make([]string, len(kids))
	for n, kid := range kids {
		keys[n] = fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","kid":%q,"alg":"EdDSA","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIuaPcHURo"}`, kid)
	}
	return `{"keys":[` + strings.Join(keys, ",") + `]}`
}

// login returns valid settings of an issuer.
func login(kids ...string) *issuer.Settings {
	return &issuer.Settings{URL: "https://login.example.com/", Audiences: []string{"api"}, JWKS: jwksOf(kids...)}
}

func (h *harness) issuer(c *control.Actor, name string, settings *issuer.Settings) *issuer.Issuer {
	h.tb.Helper()
	return must[*issuer.Issuer](h)(h.CreateIssuer(ctx(), c, name, settings))
}

// Guarantee: each change of an issuer writes one audit record, and one that changes nothing writes none. A key keeps the
// time when it was seen first.
func TestIssuerLife(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	var i *issuer.Issuer
	before := h.records(c.Account.ID)
	i = h.issuer(c, "login", login("a"))
	if audits, events, changes := h.records(c.Account.ID).since(before).summary(); !slices.Equal(audits, []string{"issuer.create " + i.ID}) || len(events) != 0 || len(changes) != 1 {
		t.Errorf("got the audit records %q, the events %q and the changes %q", audits, events, changes)
	}
	if i.Version != 1 || len(i.Seen) != 1 || i.Seen[0].ID != "a" || i.Seen[0].Algorithm != jwk.EdDSA || !strings.HasPrefix(i.ID, "iss_") {
		t.Fatalf("got %+v", i)
	}
	since := i.Seen[0].FirstSeen
	h.clock.advance(time.Minute)
	change := func(change func(*issuer.Issuer)) func() {
		return func() { i = must[*issuer.Issuer](h)(h.UpdateIssuer(ctx(), c, i.ID, change, nil)) }
	}
	h.wantRecords(c.Account.ID, change(func(i *issuer.Issuer) { i.JWKS = jwksOf("b", "a") }), []string{"issuer.update " + i.ID}, nil, []string{"issuer " + i.ID})
	if i.Version != 2 || len(i.Seen) != 2 || !i.Seen[0].FirstSeen.After(since) || !i.Seen[1].FirstSeen.Equal(since) {
		t.Errorf("got %+v, want the old key to keep its time %s", i.Seen, since)
	}
	h.wantNoRecords(c.Account.ID, change(func(i *issuer.Issuer) { i.Leeway = "60s" }))
	h.must(second(h.Issuer(ctx(), c, i.ID)))
	h.wantRecords(c.Account.ID, func() { h.must(second(h.DeleteIssuer(ctx(), c, i.ID, nil))) }, []string{"issuer.delete " + i.ID}, nil, []string{"issuer " + i.ID})
	if _, err := h.Issuer(ctx(), c, i.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("got %v, want it gone", err)
	}
}

// Guarantee: an issuer decides which scopes its tokens have, so only who has the word admin for issuers may create or
// change one. No account sees or changes the issuers of another one.
func TestWhoMayChangeIssuers(t *testing.T) {
	h := newHarness(t)
	owner, other := h.caller("acme", "admin"), h.caller("other", "admin")
	i := h.issuer(owner, "login", login("a"))
	rename := func(i *issuer.Issuer) { i.Name = "renamed" }
	for scope, allowed := range map[string]bool{"read": false, "write": false, "write:issuers": false, "admin:keys write": false, "admin:issuers": true, "admin": true} {
		c := *owner
		scopes, err := apikey.ParseScopes(scope)
		if err != nil {
			t.Fatal(err)
		}
		c.Scope = scopes
		made, createErr := h.CreateIssuer(ctx(), &c, "of-"+strings.NewReplacer(" ", "-", ":", "-").Replace(scope), login("a"))
		_, updateErr := h.UpdateIssuer(ctx(), &c, i.ID, rename, nil)
		for _, err := range []error{createErr, updateErr} {
			if allowed && err != nil || !allowed && fault.CodeOf(err) != fault.Forbidden {
				t.Errorf("%s: got %v, %v", scope, made, err)
			}
		}
	}
	_, read := h.Issuer(ctx(), other, i.ID)
	_, update := h.UpdateIssuer(ctx(), other, i.ID, rename, nil)
	_, remove := h.DeleteIssuer(ctx(), other, i.ID, nil)
	for _, err := range []error{read, update, remove} {
		if fault.CodeOf(err) != fault.NotFound {
			t.Errorf("another account: got %v, want not found", err)
		}
	}
	if list := must[[]issuer.Issuer](h)(h.Issuers(ctx(), other, control.IssuerFilter{}, control.Page{Limit: 10})); len(list) != 0 {
		t.Errorf("another account lists %+v", list)
	}
}

// Guarantee: invalid settings, a name that is in use and a version that has passed are refused, and change nothing.
func TestMistakesInIssuers(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	i := h.issuer(c, "login", login("a"))
	h.issuer(c, "other", login("a"))
	h.wantNoRecords(c.Account.ID, func() {
		_, taken := h.CreateIssuer(ctx(), c, "login", login("a"))
		_, takenLater := h.UpdateIssuer(ctx(), c, i.ID, func(i *issuer.Issuer) { i.Name = "other" }, nil)
		_, old := h.UpdateIssuer(ctx(), c, i.ID, func(i *issuer.Issuer) { i.Name = "x" }, func(version int64) bool { return version == 7 })
		_, invalid := h.CreateIssuer(ctx(), c, "x", &issuer.Settings{URL: "http://x", Audiences: []string{"a"}})
		_, invalidLater := h.UpdateIssuer(ctx(), c, i.ID, func(i *issuer.Issuer) { i.JWKSURL = "https://login.example.com/keys" }, nil)
		got := []fault.Code{fault.CodeOf(taken), fault.CodeOf(takenLater), fault.CodeOf(old), fault.CodeOf(invalid), fault.CodeOf(invalidLater)}
		if want := []fault.Code{fault.Conflict, fault.Conflict, fault.PreconditionFailed, fault.ValidationFailed, fault.ValidationFailed}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// Guarantee: an account has at most 256 issuers, and their settings take at most 4 MiB together. One that has more can
// change its issuers as long as they do not grow.
func TestIssuersOfAnAccountAreBounded(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	large := login("a")
	large.JWKS = strings.TrimSuffix(large.JWKS, "}") + `,"x":"` + strings.Repeat("x", 120<<10) + `"}`
	var last *issuer.Issuer
	made := 0
	for ; made < 100; made++ {
		i, err := h.CreateIssuer(ctx(), c, fmt.Sprint("i", made), large)
		if fault.CodeOf(err) == fault.Conflict {
			break
		}
		h.must(err)
		last = i
	}
	if made < 30 || made > 34 {
		t.Errorf("got %d issuers of 120 KiB, want as many as 4 MiB have room for", made)
	}
	_, grown := h.UpdateIssuer(ctx(), c, last.ID, func(i *issuer.Issuer) { i.ScopeMap = map[string]string{strings.Repeat("a", 255): "read"} }, nil)
	if _, err := h.UpdateIssuer(ctx(), c, last.ID, func(i *issuer.Issuer) { i.JWKS = jwksOf("a") }, nil); err != nil {
		t.Errorf("an issuer that becomes smaller: %v", err)
	}
	if grown != nil && fault.CodeOf(grown) != fault.Conflict {
		t.Errorf("got %v", grown)
	}
	full := h.caller("second", "admin")
	for n := range issuer.MaxIssuers {
		h.issuer(full, fmt.Sprint("i", n), login("a"))
	}
	if _, err := h.CreateIssuer(ctx(), full, "more", login("a")); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("got %v, want a conflict", err)
	}
}
