package control_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
)

// Guarantee: a denial writes one audit record and one change that nodes wait for, with its reason and whom it denies, and so
// does the end of it. It ends by default when every token of now has expired, and then does not exist any more.
func TestDenialLife(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	i := h.issuer(c, "login", login("a"))
	var d *issuer.Denial
	before := h.records(c.Account.ID)
	d = must[*issuer.Denial](h)(h.CreateDenial(ctx(), c, i.ID, &issuer.Denial{Subject: strings.Repeat("s", 300), Reason: "stolen"}))
	audits, events, changes := h.records(c.Account.ID).since(before).summary()
	if !slices.Equal(audits, []string{"denial.create " + d.ID}) || len(events) != 0 || !slices.Equal(changes, []string{"denial " + i.ID + "/" + d.ID}) {
		t.Errorf("got the audit records %q, the events %q and the changes %q", audits, events, changes)
	}
	if d.Subject != issuer.Recorded(strings.Repeat("s", 300)) || d.Until.Sub(d.CreatedAt) != 24*time.Hour || !strings.HasPrefix(d.ID, "den_") {
		t.Errorf("got %+v", d)
	}
	found := must[[]issuer.Denial](h)(h.Denials(ctx(), c, i.ID, control.DenialFilter{Subject: strings.Repeat("s", 300)}, control.Page{Limit: 9}))
	if len(found) != 1 || found[0] != *d {
		t.Errorf("got %+v, want %+v", found, d)
	}
	h.wantRecords(c.Account.ID, func() { h.must(second(h.DeleteDenial(ctx(), c, i.ID, d.ID))) }, []string{"denial.delete " + d.ID}, nil, []string{"denial " + i.ID + "/" + d.ID})
	d = must[*issuer.Denial](h)(h.CreateDenial(ctx(), c, i.ID, &issuer.Denial{JTI: "t"}))
	h.clock.advance(24 * time.Hour)
	for what, err := range map[string]error{"read": second(h.Denial(ctx(), c, i.ID, d.ID)), "lift": second(h.DeleteDenial(ctx(), c, i.ID, d.ID))} {
		if fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s one that has ended: got %v", what, err)
		}
	}
	wrong := &issuer.Denial{Subject: "u", JTI: "t", Until: d.Until, Reason: "\n"}
	if problems := fault.ProblemsOf(second(h.CreateDenial(ctx(), c, i.ID, wrong))); len(problems) != 3 {
		t.Errorf("got the problems %v, want one of each wrong field", problems)
	}
}

// Guarantee: no account sees or changes the denials of another one.
func TestDenialsOfAnotherAccount(t *testing.T) {
	h := newHarness(t)
	c, other := h.caller("acme", "admin"), h.caller("other", "admin")
	i := h.issuer(c, "login", login("a"))
	d := must[*issuer.Denial](h)(h.CreateDenial(ctx(), c, i.ID, &issuer.Denial{Subject: "u"}))
	for what, err := range map[string]error{
		"list":   second(h.Denials(ctx(), other, i.ID, control.DenialFilter{}, control.Page{Limit: 9})),
		"read":   second(h.Denial(ctx(), other, i.ID, d.ID)),
		"create": second(h.CreateDenial(ctx(), other, i.ID, &issuer.Denial{Subject: "u"})),
		"lift":   second(h.DeleteDenial(ctx(), other, i.ID, d.ID)),
	} {
		if fault.CodeOf(err) != fault.NotFound {
			t.Errorf("another account: %s: got %v, want not_found", what, err)
		}
	}
}

// Guarantee: the denials of an issuer are bounded, and those of all issuers of an account; further ones are a conflict until some
// are lifted. Other accounts are not affected.
func TestDenialsOfAnAccountAreBounded(t *testing.T) {
	h := newHarness(t)
	h.bounds = control.AccountBounds{IssuerDenials: 2, Denials: 3}
	h.serve(h.db)
	c, other := h.caller("acme", "admin"), h.caller("other", "admin")
	one, two, theirs := h.issuer(c, "one", login("a")), h.issuer(c, "two", login("a")), h.issuer(other, "one", login("a"))
	deny := func(c *control.Actor, i *issuer.Issuer) error {
		return second(h.CreateDenial(ctx(), c, i.ID, &issuer.Denial{Subject: "u"}))
	}
	for _, try := range []struct {
		actor *control.Actor
		of    *issuer.Issuer
		full  bool
	}{{c, one, false}, {c, one, false}, {c, one, true}, {c, two, false}, {c, two, true}, {other, theirs, false}} {
		if err := deny(try.actor, try.of); (fault.CodeOf(err) == fault.Conflict) != try.full || !try.full && err != nil {
			t.Errorf("%s: got %v, want a conflict: %v", try.of.Name, err, try.full)
		}
	}
	first := must[[]issuer.Denial](h)(h.Denials(ctx(), c, one.ID, control.DenialFilter{}, control.Page{Limit: 1}))[0]
	h.must(second(h.DeleteDenial(ctx(), c, one.ID, first.ID)))
	h.must(deny(c, two))
}
