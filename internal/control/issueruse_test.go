package control_test

import (
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/issuer"
)

// Guarantee: a gateway names issuers of its own account alone, no two of which have the same claim iss, whichever of both is
// changed; and an issuer that a gateway names is neither deleted nor renamed.
func TestIssuersOfGateways(t *testing.T) {
	h := newHarness(t)
	c, other := h.caller("acme", "admin"), h.caller("rival", "admin")
	i := h.issuer(c, "login", login("a"))
	same := h.issuer(c, "same", login("a"))
	elsewhere := *login("a")
	elsewhere.URL = "https://other.example.com/"
	spare := h.issuer(c, "spare", &elsewhere)
	h.issuer(other, "theirs", login("a"))
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), c, gateway.Patch{Name: text("o"), UpstreamURL: text("https://example.com")}, ""))
	name := func(names ...string) error {
		return second(h.UpdateGateway(ctx(), c, g.ID, gateway.Patch{Issuers: value(names)}, nil))
	}
	for field, names := range map[string][]string{"issuers[0]": {"theirs"}, "issuers[1]": {"login", "same"}, "issuers[2]": {"login", "spare", "missing"}} {
		if problems := fault.ProblemsOf(name(names...)); len(problems) != 1 || problems[0].Field != field {
			t.Errorf("%q: got %v, want a problem of %s", names, problems, field)
		}
	}
	before := h.records(c.Account.ID)
	h.must(name("login", "spare"))
	if _, _, changes := h.records(c.Account.ID).since(before).summary(); !slices.Equal(changes, []string{"upstream " + g.ID}) {
		t.Errorf("got the changes %q, want one that earlier versions refuse to read", changes)
	}
	conflict := func(what string, err error) {
		t.Helper()
		if fault.CodeOf(err) != fault.Conflict {
			t.Errorf("%s: got %v, want a conflict", what, err)
		}
	}
	conflict("delete an issuer in use", second(h.DeleteIssuer(ctx(), c, i.ID, nil)))
	conflict("rename an issuer in use", second(h.UpdateIssuer(ctx(), c, i.ID, func(i *issuer.Issuer) { i.Name = "new" }, nil)))
	conflict("give it the claim iss of another one", second(h.UpdateIssuer(ctx(), c, spare.ID, func(i *issuer.Issuer) { i.URL = login("a").URL }, nil)))
	h.must(second(h.DeleteIssuer(ctx(), c, same.ID, nil)))
	h.must(name())
	h.must(second(h.DeleteIssuer(ctx(), c, i.ID, nil)))
}

// Guarantee: a rollback to a revision whose file names issuers names them again; if one is gone, it changes nothing and says which.
func TestRollbackNamesIssuers(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	h.issuer(c, "login", login("a"))
	g := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), c, gateway.Patch{Name: text("o"), UpstreamURL: text("https://example.com")}, ""))
	push := func(issuers string) {
		t.Helper()
		h.must(second(h.PushConfiguration(ctx(), c, g.ID, []byte("gateway: {issuers: "+issuers+"}\nroutes: []"), false, nil)))
	}
	named := func() []string { return must[*gateway.Gateway](h)(h.Gateway(ctx(), c, g.ID)).Requests.Issuers }
	push("[login]")
	push("[]")
	result := must[*control.PushResult](h)(h.Rollback(ctx(), c, g.ID, 1, false, nil))
	if got := named(); !slices.Equal(got, []string{"login"}) {
		t.Fatalf("got the issuers %q after a rollback: %+v", got, result)
	}
	push("[]")
	all := must[[]issuer.Issuer](h)(h.Issuers(ctx(), c, control.IssuerFilter{}, control.Page{Limit: 9}))
	h.must(second(h.DeleteIssuer(ctx(), c, all[0].ID, nil)))
	for _, dryRun := range []bool{true, false} {
		problems := fault.ProblemsOf(second(h.Rollback(ctx(), c, g.ID, 1, dryRun, nil)))
		if len(problems) != 1 || problems[0].Field != "gateway.issuers[0]" || named() != nil {
			t.Errorf("dry run %t: got %+v and the issuers %q", dryRun, problems, named())
		}
	}
}
