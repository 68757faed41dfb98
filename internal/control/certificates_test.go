package control_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// certified creates a gateway with acme.
func (h *harness) certified(c *control.Actor, hostname string) (*gateway.Gateway, error) {
	p := gateway.Patch{Name: value(hostname), UpstreamURL: value("https://orders.internal"), Hostname: value(hostname), ACME: value(true)}
	return h.CreateGateway(ctx(), c, p, "")
}

// tenant creates an account with patterns of hostnames, and returns a caller with one of its keys.
func (h *harness) tenant(name string, hosts ...string) *control.Actor {
	h.tb.Helper()
	_, _, err := h.CreateAccount(ctx(), name, account.Starter, hosts)
	h.must(err)
	return h.caller(name, "admin")
}

// certificates returns the certificates of an account.
func (h *harness) certificates(c *control.Actor) []acme.Certificate {
	h.tb.Helper()
	return must[[]acme.Certificate](h)(h.Certificates(ctx(), c, control.CertificateFilter{}, control.Page{Limit: 100}))
}

// lead takes the lead.
func (h *harness) lead(process string) canary.Lead {
	h.tb.Helper()
	l, leads, err := h.db.TakeCanaryLead(ctx(), process)
	if err != nil || !leads {
		h.tb.Fatalf("the process does not lead: %v", err)
	}
	return l
}

// Guarantee: a gateway has a certificate as long as it has acme, and another one with another hostname. Each change reaches every node.
func TestCertificateFollowsItsGateway(t *testing.T) {
	h := newHarness(t)
	c := h.operator()
	g := must[*gateway.Gateway](h)(h.certified(c, "a.example.com"))
	first := h.certificates(c)
	if len(first) != 1 || first[0].Hostname != "a.example.com" || first[0].GatewayID != g.ID || first[0].State(h.clock.now()) != acme.Pending {
		t.Fatalf("got %+v", first)
	}
	update := func(p gateway.Patch) { h.must(second(h.UpdateGateway(ctx(), c, g.ID, p, nil))) }
	update(gateway.Patch{Timeout: value("5s")})
	if got := h.certificates(c); len(got) != 1 || got[0].ID != first[0].ID {
		t.Errorf("after another change: got %+v", got)
	}
	update(gateway.Patch{Hostname: value("b.example.com")})
	renamed := h.certificates(c)
	if len(renamed) != 1 || renamed[0].ID == first[0].ID || renamed[0].Hostname != "b.example.com" {
		t.Errorf("with another hostname: got %+v", renamed)
	}
	before := h.records(c.Account.ID)
	update(gateway.Patch{ACME: null[bool]()})
	if _, _, changes := h.records(c.Account.ID).since(before).summary(); !slices.ContainsFunc(changes, func(s string) bool { return s == "certificate "+renamed[0].ID }) {
		t.Errorf("got the changes %v, want one of the certificate", changes)
	}
	if got := h.certificates(c); len(got) != 0 {
		t.Errorf("without acme: got %+v", got)
	}
	update(gateway.Patch{ACME: value(true)})
	h.must(second(h.DeleteGateway(ctx(), c, g.ID, nil)))
	if got := h.certificates(c); len(got) != 0 {
		t.Errorf("without the gateway: got %+v", got)
	}
}

// Guarantee: docs/limits.md. A tenant may have 10 new names in a week, also counting those given up, and all tenants together 30 below a
// registered domain; a name of the week is not new. The 429 says when the next is possible, and it is. The operator has no such bound.
func TestNewNamesOfAWeek(t *testing.T) {
	h := newHarness(t)
	tenant := func(name string) *control.Actor { return h.tenant(name, "*.example.com", "*."+name+".test") }
	one := tenant("one")
	for n := range acme.NewNames {
		g := must[*gateway.Gateway](h)(h.certified(one, fmt.Sprintf("n%d.one.test", n)))
		h.must(second(h.DeleteGateway(ctx(), one, g.ID, nil)))
		h.clock.advance(time.Minute)
	}
	h.must(second(h.certified(one, "n0.one.test"))) // it was one of them
	_, err := h.certified(one, "another.one.test")
	var refused *fault.Error
	if !errors.As(err, &refused) || refused.Code != fault.RateLimitExceeded || refused.Limit.Scope != "account" || refused.Limit.Limit != acme.NewNames {
		t.Fatalf("got %v", err)
	}
	h.clock.advance(time.Unix(refused.Limit.ResetAt, 0).Sub(h.clock.now()))
	h.must(second(h.certified(one, "another.one.test")))
	left := acme.NewNamesOfDomain
	for i := range 4 {
		other := tenant(fmt.Sprintf("other%d", i))
		for n := range acme.NewNames {
			_, err := h.certified(other, fmt.Sprintf("n%d-%d.example.com", i, n))
			if left--; (err != nil) != (left < 0) || err != nil && fault.CodeOf(err) != fault.RateLimitExceeded {
				t.Fatalf("with %d left: got %v", left, err)
			}
		}
	}
	operator := h.operator()
	for n := range acme.NewNames + 1 {
		h.must(second(h.certified(operator, fmt.Sprintf("op%d.example.com", n))))
	}
}

// Guarantee: a tenant may ask for 5 renewals of a name in a week (429), the operator for any number. A renewal makes the next attempt due
// at once, and is in the audit log.
func TestRenewalsOfAWeek(t *testing.T) {
	h := newHarness(t)
	for name, c := range map[string]*control.Actor{"tenant": h.tenant("one", "*.one.test"), account.Default: h.operator()} {
		h.must(second(h.certified(c, "a.one.test"))) // the other has given it up
		of := h.certificates(c)[0]
		l := h.lead("p")
		for n := range acme.Renewals + 1 {
			h.must(h.BeginOrder(ctx(), l, of.ID, acme.Challenge{Token: "t", KeyAuthorization: "k"}))
			h.must(h.FailOrder(ctx(), l, of.ID, "no"))
			renewed, err := h.RenewCertificate(ctx(), c, of.ID)
			switch {
			case n < acme.Renewals || name == account.Default:
				h.must(err)
				if renewed.NextAt.After(h.clock.now()) {
					t.Errorf("the next attempt is at %v", renewed.NextAt)
				}
			case fault.CodeOf(err) != fault.RateLimitExceeded:
				t.Errorf("got %v for one too many", err)
			}
			h.clock.advance(time.Second)
		}
		h.must(second(h.DeleteGateway(ctx(), c, of.GatewayID, nil)))
	}
}

// Guarantee: a hostname that is given up and taken again is ordered anew, so for a tenant it counts as a renewal that was asked for; with
// acme turned off and on, with the gateway, and with another hostname between. For the operator there is no bound.
func TestHostnamesAreNotTakenAgainAtWill(t *testing.T) {
	h := newHarness(t)
	for name, c := range map[string]*control.Actor{"tenant": h.tenant("one", "*.one.test"), account.Default: h.operator()} {
		g := must[*gateway.Gateway](h)(h.certified(c, "a.one.test"))
		update := func(p gateway.Patch) error { return second(h.UpdateGateway(ctx(), c, g.ID, p, nil)) }
		again := []func() error{
			func() error {
				h.must(update(gateway.Patch{ACME: value(false)}))
				return update(gateway.Patch{ACME: value(true)})
			},
			func() error {
				h.must(second(h.DeleteGateway(ctx(), c, g.ID, nil)))
				var err error
				g, err = h.certified(c, "a.one.test")
				return err
			},
			func() error {
				h.must(update(gateway.Patch{Hostname: value("b.one.test"), ACME: value(false)}))
				return update(gateway.Patch{Hostname: value("a.one.test"), ACME: value(true)})
			},
		}
		for n := range acme.Renewals + 1 {
			h.clock.advance(time.Second)
			switch err := again[n%len(again)](); {
			case n < acme.Renewals || name == account.Default:
				h.must(err)
			case fault.CodeOf(err) != fault.RateLimitExceeded:
				t.Errorf("got %v for one too many", err)
			}
		}
		h.must(second(h.DeleteGateway(ctx(), c, g.ID, nil)))
	}
}

// Guarantee: what an order comes to is stored only by the process that leads. A failure backs off and raises certificate.failed once, a
// success certificate.renewed, and a certificate that was not renewed in time certificate.expiring, once.
func TestOrdersAreThoseOfTheLeader(t *testing.T) {
	h := newHarness(t)
	c := h.operator()
	h.must(second(h.certified(c, "a.example.com")))
	of, l := h.certificates(c)[0], h.lead("p")
	events := func(do func()) []string {
		before := h.records(c.Account.ID)
		do()
		_, list, _ := h.records(c.Account.ID).since(before).summary()
		return list
	}
	wrong := canary.Lead{Claimant: "p", Epoch: l.Epoch + 1}
	for what, err := range map[string]error{
		"BeginOrder":   h.BeginOrder(ctx(), wrong, of.ID, acme.Challenge{}),
		"PutChallenge": h.PutChallenge(ctx(), wrong, of.ID, acme.Challenge{}),
		"FinishOrder":  h.FinishOrder(ctx(), wrong, of.ID, &acme.Issued{}),
		"FailOrder":    h.FailOrder(ctx(), wrong, of.ID, "no"),
		"NoteRenewal":  h.NoteRenewal(ctx(), wrong, of.ID, h.clock.now(), h.clock.now()),
		"NoteExpiring": h.NoteExpiring(ctx(), wrong, of.ID),
		"PutAccount":   h.PutCertificateAccount(ctx(), wrong, &acme.Account{Directory: "d"}),
	} {
		if fault.CodeOf(err) != fault.Conflict {
			t.Errorf("%s without the lead: got %v", what, err)
		}
	}
	fail := func() []string {
		return events(func() {
			h.must(h.BeginOrder(ctx(), l, of.ID, acme.Challenge{Token: "t", KeyAuthorization: "k"}))
			h.must(h.FailOrder(ctx(), l, of.ID, "no"))
		})
	}
	first, again := fail(), fail()
	if len(first) != 1 || len(again) != 0 {
		t.Errorf("got the events %v, then %v, want one", first, again)
	}
	failed := h.certificates(c)[0]
	if failed.LastError != "no" || failed.NextAt.Sub(h.clock.now()) != 2*acme.MinBackoff || failed.Challenge != (acme.Challenge{}) || failed.State(h.clock.now()) != acme.Failed {
		t.Errorf("got %+v", failed)
	}
	now := h.clock.now()
	issued := acme.Issued{Chain: "x", Key: []byte("k"), NotBefore: now, NotAfter: now.Add(90 * 24 * time.Hour), RenewAt: now.Add(60 * 24 * time.Hour)}
	if got := events(func() { h.must(h.FinishOrder(ctx(), l, of.ID, &issued)) }); len(got) != 1 {
		t.Errorf("got the events %v, want one", got)
	}
	stored := h.certificates(c)[0]
	if stored.State(now) != acme.Valid || stored.Failures != 0 || stored.LastError != "" || !stored.NextAt.Equal(issued.RenewAt) {
		t.Errorf("got %+v", stored)
	}
	if got := events(func() { h.must(h.NoteExpiring(ctx(), l, of.ID)); h.must(h.NoteExpiring(ctx(), l, of.ID)) }); len(got) != 1 {
		t.Errorf("got the events %v, want one", got)
	}
}
