package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
)

// fillCertificates stores certificates of an account, each of a gateway of its own, past the bounds of a week.
func (h *harness) fillCertificates(accountID, suffix string, n int) {
	h.tb.Helper()
	const batch = 500
	for first := 0; first < n; first += batch {
		h.must(h.store.Update(ctx(), func(tx control.Tx) error {
			for i := first; i < min(first+batch, n); i++ {
				g := gateway.Gateway{ID: id.New(id.Gateway), AccountID: accountID, Name: fmt.Sprintf("n%d.%s", i, suffix), Hostname: fmt.Sprintf("n%d.%s", i, suffix),
					HostGiven: true, Timeout: gateway.DefaultTimeout, CreatedAt: h.clock.now(), Version: 1}
				g.Upstream = gateway.Upstream{Name: gateway.DefaultUpstream, URL: "https://orders.internal"}
				g.Requests.ACME = true
				if err := tx.InsertGateway(ctx(), &g); err != nil {
					return err
				}
				c := acme.Certificate{ID: id.New(id.Certificate), AccountID: accountID, GatewayID: g.ID, Hostname: g.Hostname, CreatedAt: h.clock.now(), Version: 1}
				c.NextAt = h.clock.now()
				if err := tx.InsertCertificate(ctx(), &c); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// Guarantee: docs/limits.md. An account has 1,000 certificates at most, and all accounts together 10,000, the operator's included; one more is
// a conflict that names the bound, leaves nothing behind, and is possible as soon as another gateway has no acme any more.
func TestCertificatesAreBounded(t *testing.T) {
	h := newHarness(t)
	one, two, operator := h.tenant("one", "*.one.test"), h.tenant("two", "*.two.test"), h.operator()
	wantFull := func(c *control.Actor, hostname, bound string) {
		t.Helper()
		h.wantNoRecords(c.Account.ID, func() {
			if _, err := h.certified(c, hostname); fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), bound) {
				t.Errorf("got %v, want a conflict that names %s", err, bound)
			}
		})
	}
	h.fillCertificates(one.Account.ID, "one.test", acme.MaxOfAccount-1)
	last := must[*gateway.Gateway](h)(h.certified(one, "last.one.test"))
	wantFull(one, "more.one.test", "1000")
	kept := must[*gateway.Gateway](h)(h.CreateGateway(ctx(), one, gateway.Patch{Name: value("kept"), UpstreamURL: value("https://orders.internal"), Hostname: value("kept.one.test")}, ""))
	_, err := h.UpdateGateway(ctx(), one, kept.ID, gateway.Patch{ACME: value(true)}, nil)
	h.wantCode(err, fault.Conflict, "")
	h.must(second(h.UpdateGateway(ctx(), one, last.ID, gateway.Patch{Hostname: value("renamed.one.test")}, nil))) // has the one that it gives up
	h.must(second(h.UpdateGateway(ctx(), one, last.ID, gateway.Patch{ACME: value(false)}, nil)))
	h.must(second(h.UpdateGateway(ctx(), one, kept.ID, gateway.Patch{ACME: value(true)}, nil)))

	h.fillCertificates(two.Account.ID, "two.test", acme.MaxInAll-acme.MaxOfAccount-1)
	ours := must[*gateway.Gateway](h)(h.certified(operator, "ours.example.com"))
	wantFull(operator, "more.example.com", "10000")
	third := h.tenant("third", "*.third.test")
	wantFull(third, "a.third.test", "10000")
	h.must(second(h.DeleteGateway(ctx(), operator, ours.ID, nil)))
	h.must(second(h.certified(third, "a.third.test")))
}

// Guarantee: the order of an account that is suspended meanwhile is not continued, and nothing of it is stored; nothing is due for the account
// until it is active again, when the attempt counts as one that has failed. What it has is served all the time.
func TestOrderOfASuspendedAccount(t *testing.T) {
	h := newHarness(t)
	c, l := h.tenant("one", "*.one.test"), h.lead("p")
	h.must(second(h.certified(c, "a.one.test")))
	of := h.certificates(c)[0]
	h.must(h.BeginOrder(ctx(), l, of.ID, acme.Challenge{Token: "t", KeyAuthorization: "k"}))
	h.patch(h.operator(), c.Account.ID, state(account.Suspended))
	for what, err := range map[string]error{
		"PutChallenge": h.PutChallenge(ctx(), l, of.ID, acme.Challenge{Token: "u", KeyAuthorization: "v"}),
		"FinishOrder":  h.FinishOrder(ctx(), l, of.ID, &acme.Issued{Chain: "x", Key: []byte("k")}),
		"FailOrder":    h.FailOrder(ctx(), l, of.ID, "no"),
		"NoteRenewal":  h.NoteRenewal(ctx(), l, of.ID, h.clock.now(), h.clock.now()),
		"NoteExpiring": h.NoteExpiring(ctx(), l, of.ID),
		"BeginOrder":   h.BeginOrder(ctx(), l, of.ID, acme.Challenge{}),
	} {
		if fault.CodeOf(err) != fault.Conflict {
			t.Errorf("%s of a suspended account: got %v", what, err)
		}
	}
	h.clock.advance(2 * acme.MinBackoff)
	due := func() int {
		return len(must[[]acme.Certificate](h)(h.DueCertificates(ctx(), 10)))
	}
	if n := due(); n != 0 {
		t.Errorf("%d certificates of a suspended account are due", n)
	}
	h.patch(h.operator(), c.Account.ID, state(account.Active))
	now := h.certificates(c)[0]
	if now.Failures != 1 || now.Chain != "" || now.Challenge.Token != "t" || due() != 1 {
		t.Errorf("after the suspension: got %+v", now)
	}
	h.must(h.BeginOrder(ctx(), l, of.ID, acme.Challenge{Token: "u", KeyAuthorization: "v"}))
}
