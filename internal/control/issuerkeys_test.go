package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
)

// discovered returns valid settings of an issuer whose keys are found by discovery.
func discovered() *issuer.Settings {
	return &issuer.Settings{URL: "https://login.example.com/", Audiences: []string{"api"}}
}

// keySet returns a set with the key of RFC 8037 under each kid.
func keySet(t *testing.T, kids ...string) *jwk.Set {
	t.Helper()
	set, err := jwk.ParseSet([]byte(jwksOf(kids...)))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// claim claims all fetches that are due, and returns the names of their issuers.
func (h *harness) claim() (names []string) {
	h.tb.Helper()
	for _, i := range must[[]control.IssuerToFetch](h)(h.ClaimFetches(ctx(), 9, 9, func(string, string) bool { return true })) {
		names = append(names, i.Name)
	}
	return names
}

// fetched stores the result of a fetch of i: keys, or a problem.
func (h *harness) fetched(i *issuer.Issuer, keys *jwk.Set, problem string) control.RecordedFetch {
	h.tb.Helper()
	source, _ := i.FetchedFrom()
	return must[control.RecordedFetch](h)(h.RecordFetch(ctx(), control.KeyFetch{
		AccountID: i.AccountID, IssuerID: i.ID, Source: source, Keys: keys, Problem: problem, Next: 5 * time.Minute,
	}))
}

// kidsOf returns the identifiers of the keys that an issuer has seen, and checks that they are its present ones.
func (h *harness) kidsOf(c *control.Actor, issuerID string) (kids []string) {
	h.tb.Helper()
	i := must[*issuer.Issuer](h)(h.Issuer(ctx(), c, issuerID))
	for _, k := range i.Seen {
		kids = append(kids, k.ID)
	}
	set := must[*jwk.Set](h)(i.Keys())
	if len(set.Keys()) != len(kids) {
		h.tb.Errorf("got %d keys and seen %q", len(set.Keys()), kids)
	}
	return kids
}

// Guarantee: keys are due at once, are claimed by one node, and stay when a fetch fails; the first failure of several
// raises one event. What was fetched survives a restart.
func TestKeysOfAnIssuerAreFetched(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	i := h.issuer(c, "login", discovered())
	h.issuer(c, "by-hand", login("a"))
	if got := h.claim(); !slices.Equal(got, []string{"login"}) {
		t.Fatalf("got %q", got)
	}
	if got := h.claim(); got != nil {
		t.Errorf("another node claims %q as well", got)
	}
	if r := h.fetched(i, keySet(t, "a", "b"), ""); r != (control.RecordedFetch{Changed: true}) {
		t.Errorf("got %+v", r)
	}
	h.clock.advance(5*time.Minute - time.Second)
	if got := h.claim(); got != nil {
		t.Errorf("got %q before their time", got)
	}
	h.clock.advance(time.Second)
	if got := h.claim(); !slices.Equal(got, []string{"login"}) {
		t.Errorf("got %q", got)
	}
	before := h.records(c.Account.ID)
	if r := h.fetched(i, nil, "down"); r != (control.RecordedFetch{Problem: "down", Turned: true}) {
		t.Errorf("got %+v", r)
	}
	if r := h.fetched(i, nil, "still down"); r != (control.RecordedFetch{Problem: "still down"}) {
		t.Errorf("got %+v", r)
	}
	if _, events, _ := h.records(c.Account.ID).since(before).summary(); len(events) != 1 || !strings.HasPrefix(events[0], string(event.IssuerUnreachable)) {
		t.Errorf("got the events %q, want one", events)
	}
	h.reopen()
	if got := h.kidsOf(c, i.ID); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got the keys %q after a restart, want those that were fetched last", got)
	}
	now := must[*issuer.Issuer](h)(h.Issuer(ctx(), c, i.ID))
	if now.LastError != "still down" || must[int](h)(h.UnreachableIssuers(ctx())) != 1 || now.Version != i.Version {
		t.Errorf("got %+v", now)
	}
	if r := h.fetched(i, keySet(t, "b", "c"), ""); r != (control.RecordedFetch{Turned: true, Changed: true}) {
		t.Errorf("got %+v", r)
	}
	if got := h.kidsOf(c, i.ID); !slices.Equal(got, []string{"b", "c"}) || must[int](h)(h.UnreachableIssuers(ctx())) != 0 {
		t.Errorf("got the keys %q", got)
	}
}

// Guarantee: keys that come from elsewhere count no more, those are due at once, and the result of a fetch from the former
// source is not stored. Other changes of an issuer leave its keys.
func TestKeysOfFormerSourcesCountNoMore(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	old := h.issuer(c, "login", discovered())
	h.claim()
	h.fetched(old, keySet(t, "a"), "")
	update := func(change func(i *issuer.Issuer)) {
		h.must(second(h.UpdateIssuer(ctx(), c, old.ID, change, nil)))
	}
	update(func(i *issuer.Issuer) { i.Name, i.Leeway = "sso", "0s" })
	if got, due := h.kidsOf(c, old.ID), h.claim(); !slices.Equal(got, []string{"a"}) || due != nil {
		t.Errorf("got the keys %q, and %q is due", got, due)
	}
	// In this order: keys of a jwks_url do not come from the issuer's own address.
	for _, step := range []struct {
		name   string
		change func(i *issuer.Issuer)
	}{
		{"issuer", func(i *issuer.Issuer) { i.URL = "https://other.example.com/" }},
		{"jwks_url", func(i *issuer.Issuer) { i.JWKSURL = "https://other.example.com/keys" }},
		{"ca", func(i *issuer.Issuer) { i.CA = string(certificatetest.New(t, "login").Cert) }},
	} {
		name := step.name
		update(step.change)
		if got, due := h.kidsOf(c, old.ID), h.claim(); got != nil || !slices.Equal(due, []string{"sso"}) {
			t.Errorf("%s: got the keys %q, and %q is due", name, got, due)
		}
		if r := h.fetched(old, keySet(t, "a"), ""); r != (control.RecordedFetch{}) || h.kidsOf(c, old.ID) != nil {
			t.Errorf("%s: the keys of the former source are stored: %+v", name, r)
		}
		h.fetched(must[*issuer.Issuer](h)(h.Issuer(ctx(), c, old.ID)), keySet(t, "b"), "")
	}
	update(func(i *issuer.Issuer) { i.JWKS, i.JWKSURL, i.CA = jwksOf("hand"), "", "" })
	h.clock.advance(time.Hour)
	if got, due := h.kidsOf(c, old.ID), h.claim(); !slices.Equal(got, []string{"hand"}) || due != nil {
		t.Errorf("got the keys %q, and %q is due", got, due)
	}
	if _, err := h.RefreshIssuer(ctx(), c, old.ID); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a refresh of given keys: %v", err)
	}
	h.must(second(h.DeleteIssuer(ctx(), c, old.ID, nil)))
	if r := h.fetched(old, keySet(t, "a"), ""); r != (control.RecordedFetch{}) {
		t.Errorf("a deleted issuer: %+v", r)
	}
}

// Guarantee: what is fetched for all issuers of an account takes at most 4 MiB. A fetch that would take more fails, and
// the keys stay; one that takes less than before does not.
func TestFetchedKeysOfAnAccountAreBounded(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	many := make([]string, jwk.MaxKeys)
	for n := range many {
		many[n] = fmt.Sprintf("%d%s", n, strings.Repeat("x", 250))
	}
	var list []*issuer.Issuer
	full := false
	for n := 0; n < issuer.MaxIssuers && !full; n++ {
		i := h.issuer(c, fmt.Sprint("i", n), discovered())
		h.fetched(i, keySet(t, "small"), "")
		r := h.fetched(i, keySet(t, many...), "")
		if full = r.Problem != ""; full && (r.Changed || len(h.kidsOf(c, i.ID)) != 1) {
			t.Errorf("got %+v, want the keys to stay", r)
		}
		list = append(list, i)
	}
	var use control.IssuerUse
	h.must(h.store.View(ctx(), func(tx control.ReadTx) (err error) {
		use, err = tx.IssuerUse(ctx(), c.Account.ID, "")
		return err
	}))
	if !full || use.Fetched > issuer.MaxFetchedBytes || use.Fetched < issuer.MaxFetchedBytes*9/10 {
		t.Errorf("got %d bytes of %d issuers", use.Fetched, len(list))
	}
	if r := h.fetched(list[0], keySet(t, "one"), ""); r.Problem != "" {
		t.Errorf("fewer keys: %+v", r)
	}
}

// Guarantee: keys of an account that is suspended are not fetched.
func TestKeysOfSuspendedAccountsAreNotFetched(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	i := h.issuer(c, "login", discovered())
	h.patch(h.operator(), c.Account.ID, state(account.Suspended))
	if got := h.claim(); got != nil {
		t.Errorf("got %q", got)
	}
	if _, err := h.IssuerToFetch(ctx(), c.Account.ID, i.ID); err == nil {
		t.Error("a token fetches them")
	}
}
