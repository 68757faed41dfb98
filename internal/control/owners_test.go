package control_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/owner"
)

func (h *harness) owner(c *control.Actor, in control.OwnerInput) *owner.Owner {
	h.tb.Helper()
	return must[*owner.Owner](h)(h.CreateOwner(ctx(), c, in))
}

// Guarantee: suspending and resuming an owner each write an audit record, an event and one entry of the change log, once
// however often the call is repeated; other changes write an audit record of their own and no event.
func TestOwnerLife(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	before := h.records(c.Account.ID)
	o := h.owner(c, control.OwnerInput{ExternalID: "customer-42", Name: "Acme"})
	if audits, events, changes := h.records(c.Account.ID).since(before).summary(); !slices.Equal(audits, []string{"owner.create " + o.ID}) || events != nil || !slices.Equal(changes, []string{"owner " + o.ID}) {
		t.Errorf("got the audit records %q, the events %q and the changes %q", audits, events, changes)
	}
	change := func(p control.OwnerPatch) func() {
		return func() { o = must[*owner.Owner](h)(h.UpdateOwner(ctx(), c, o.ID, p, nil)) }
	}
	changed := []string{"owner " + o.ID}
	suspend := change(control.OwnerPatch{State: value("suspended")})
	h.wantRecords(c.Account.ID, suspend, []string{"owner.suspend " + o.ID}, []string{"owner.suspended " + o.ID}, changed)
	h.wantNoRecords(c.Account.ID, suspend)
	h.wantRecords(c.Account.ID, change(control.OwnerPatch{State: value("active"), Name: value("B"), TimeZone: value("Europe/Berlin"), AnchorDay: value(15)}),
		[]string{"owner.resume " + o.ID, "owner.update " + o.ID}, []string{"owner.resumed " + o.ID}, changed)
	h.wantRecords(c.Account.ID, change(control.OwnerPatch{Name: null[string](), TimeZone: null[string](), AnchorDay: null[int](), Metadata: null[map[string]string]()}),
		[]string{"owner.update " + o.ID}, nil, changed)
	if o.Version != 4 || o.Name != "" || o.TimeZone != "" || o.AnchorDay != 0 || o.ExternalID != "customer-42" {
		t.Errorf("got %+v, want no optional field at version 4", o)
	}
	_, err := h.UpdateOwner(ctx(), c, o.ID, control.OwnerPatch{Name: value("x")}, never)
	h.wantCode(err, fault.PreconditionFailed, "")
	h.wantRecords(c.Account.ID, func() { h.must(second(h.DeleteOwner(ctx(), c, o.ID, nil))) }, []string{"owner.delete " + o.ID}, nil, changed)
	_, err = h.DeleteOwner(ctx(), c, o.ID, nil)
	h.wantCode(err, fault.NotFound, "")
}

// Guarantee: what is wrong with an owner is said at its field.
func TestInvalidOwners(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	h.owner(c, control.OwnerInput{ExternalID: "taken"})
	for field, in := range map[string]control.OwnerInput{
		"external_id": {ExternalID: "caf\u00e9"}, "name": {ExternalID: "o", Name: "\u202e"}, "metadata": {ExternalID: "o", Metadata: map[string]string{"": "x"}},
		"time_zone": {ExternalID: "o", TimeZone: "Mars"}, "anchor_day": {ExternalID: "o", AnchorDay: 29},
	} {
		_, err := h.CreateOwner(ctx(), c, in)
		h.wantCode(err, fault.ValidationFailed, field)
	}
	for field, p := range map[string]control.OwnerPatch{
		"name": {Name: value("\u202e")}, "state": {State: value("gone")}, "metadata": {Metadata: value(map[string]string{"": "x"})},
		"time_zone": {TimeZone: value("Mars")}, "anchor_day": {AnchorDay: value(0)},
	} {
		_, err := h.UpdateOwner(ctx(), c, "own_x", p, nil) // before the 404
		h.wantCode(err, fault.ValidationFailed, field)
	}
	_, err := h.CreateOwner(ctx(), c, control.OwnerInput{ExternalID: "taken"})
	h.wantCode(err, fault.Conflict, "external_id")
	_, err = h.Owners(ctx(), c, control.OwnerFilter{State: "gone"}, control.Page{Limit: 1})
	h.wantCode(err, fault.ValidationFailed, "state")
	h.owner(h.caller("other", "admin"), control.OwnerInput{ExternalID: "taken"})
}

// Guarantee: a key whose owner does not exist creates it with the account's default plan, in the same transaction; further
// keys of it do not, a move to another owner may, and a rotation keeps the owner.
func TestKeysCreateTheirOwners(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	p := h.plan(c, planOf("free"))
	h.must(second(h.UpdateOwnAccount(ctx(), c, control.OwnAccountPatch{DefaultPlan: control.ChoosePlan("", "free")}, nil)))
	before := h.records(c.Account.ID)
	in := control.KeyInput{Name: "k", Scope: "read", Owner: "customer-42"}
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), c, in))
	audits, events, changes := h.records(c.Account.ID).since(before).summary()
	if !slices.Equal(audits, []string{"owner.create " + k.OwnerID, "key.create " + k.ID}) || !slices.Equal(events, []string{"key.created " + k.ID}) ||
		!slices.Equal(changes, []string{"owner " + k.OwnerID, "key " + k.ID}) {
		t.Errorf("got the audit records %q, the events %q and the changes %q", audits, events, changes)
	}
	if o := must[*owner.Owner](h)(h.Owner(ctx(), c, k.OwnerID)); o.ExternalID != "customer-42" || o.PlanID != p.ID || o.Plan != "free" {
		t.Errorf("got the owner %+v, want it with the plan free", o)
	}
	if again := must[*control.NewKey](h)(h.CreateKey(ctx(), c, in)); again.OwnerID != k.OwnerID {
		t.Errorf("got the owner %s for the second key, want %s", again.OwnerID, k.OwnerID)
	}
	moved := must[*apikey.Key](h)(h.UpdateKey(ctx(), c, k.ID, control.KeyPatch{Owner: value("customer-43")}, nil))
	if moved.OwnerID == k.OwnerID || moved.OwnerID == "" {
		t.Errorf("got the owner %q, want another one", moved.OwnerID)
	}
	next := must[*control.NewKey](h)(h.RotateKey(ctx(), c, k.ID, 1, "", nil))
	if next.Owner != "customer-43" || next.OwnerID != moved.OwnerID {
		t.Errorf("got the owner %s %s after a rotation, want %s", next.Owner, next.OwnerID, moved.OwnerID)
	}
	none := must[*apikey.Key](h)(h.UpdateKey(ctx(), c, next.ID, control.KeyPatch{Owner: null[string]()}, nil))
	if none.Owner != "" || none.OwnerID != "" {
		t.Errorf("got the owner %q, want none", none.Owner)
	}
	_, err := h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Owner: " x"})
	h.wantCode(err, fault.ValidationFailed, "owner")
}

// Guarantee: an owner with an active key cannot be deleted; with revoked and expired keys it can, and they keep its
// external ID.
func TestOwnersWithActiveKeysStay(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Owner: "o"}))
	h.must(second(h.UpdateOwner(ctx(), c, k.OwnerID, control.OwnerPatch{State: value("suspended")}, nil)))
	_, err := h.DeleteOwner(ctx(), c, k.OwnerID, nil)
	h.wantCode(err, fault.Conflict, "")
	h.must(second(h.RevokeKey(ctx(), c, k.ID, nil)))
	h.must(second(h.DeleteOwner(ctx(), c, k.OwnerID, nil)))
	if gone := must[*apikey.Key](h)(h.Key(ctx(), c, k.ID)); gone.Owner != "o" {
		t.Errorf("got the owner %q, want that of the revoked key", gone.Owner)
	}
	again := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Owner: "o"}))
	if again.OwnerID == k.OwnerID || len(again.Warnings) != 0 {
		t.Errorf("got the owner %s and the warnings %q, want a new owner", again.OwnerID, again.Warnings)
	}
}

// Guarantee: verify says that the owner of a key is suspended, after everything that is wrong with the key itself and
// before its scope, and a new key of a suspended owner has a warning.
func TestVerifyOfSuspendedOwners(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	g, other := h.gateway(c), h.gateway(c)
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Owner: "o", GatewayID: g.ID}))
	account := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Owner: "o", Level: "account"}))
	h.must(second(h.UpdateOwner(ctx(), c, k.OwnerID, control.OwnerPatch{State: value("suspended")}, nil)))
	if late := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Owner: "o"})); len(late.Warnings) != 1 || !strings.Contains(late.Warnings[0], "suspended") {
		t.Errorf("got the warnings %q, want that the owner is suspended", late.Warnings)
	}
	want := func(secret, gatewayID, method, code string) {
		t.Helper()
		if v := must[*control.Verification](h)(h.VerifyKey(ctx(), c, secret, gatewayID, method, "")); v.Code != code {
			t.Errorf("got %q, want %q", v.Code, code)
		}
	}
	want(k.Secret, g.ID, "DELETE", "owner_suspended")
	want(k.Secret, other.ID, "", "scope_insufficient")
	want(account.Secret, "", "", "")
	h.must(second(h.UpdateOwner(ctx(), c, k.OwnerID, control.OwnerPatch{State: value("active")}, nil)))
	want(k.Secret, g.ID, "", "")
	h.must(second(h.UpdateOwner(ctx(), c, k.OwnerID, control.OwnerPatch{State: value("suspended")}, nil)))
	h.must(second(h.RevokeKey(ctx(), c, k.ID, nil)))
	want(k.Secret, g.ID, "", "key_invalid")
}

// Guarantee: keys that are created at the same time for an owner that does not exist all succeed, and have one owner. It
// holds on both engines.
func TestKeysOfOneNewOwnerAtOnce(t *testing.T) {
	for name, open := range engines() {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			engine := open(t, h, nil)
			t.Cleanup(func() { h.must(engine.Close()) })
			h.serve(engine)
			c := h.caller("acme", "admin")
			for round := range 5 {
				var of sync.Map
				var group sync.WaitGroup
				for range 6 {
					group.Go(func() {
						k, err := h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Owner: fmt.Sprint("o", round)})
						if err != nil {
							t.Errorf("create a key: %v", err)
							return
						}
						of.Store(k.OwnerID, true)
					})
				}
				group.Wait()
				owners := 0
				of.Range(func(any, any) bool { owners++; return true })
				if owners != 1 {
					t.Errorf("got %d owners, want 1", owners)
				}
			}
		})
	}
}

// Guarantee: an account has at most as many owners and plans as its bounds say; the next is a conflict that changes
// nothing, even as the owner of a key.
func TestOwnersAndPlansAreBounded(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	h.bounds = control.AccountBounds{Owners: 1, Plans: 1}
	h.serve(h.db)
	h.owner(c, control.OwnerInput{ExternalID: "first"})
	h.plan(c, planOf("first"))
	h.wantNoRecords(c.Account.ID, func() {
		_, err := h.CreateOwner(ctx(), c, control.OwnerInput{ExternalID: "second"})
		h.wantCode(err, fault.Conflict, "")
		_, err = h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Owner: "second"})
		h.wantCode(err, fault.Conflict, "")
		_, err = h.CreatePlan(ctx(), c, planOf("second"))
		h.wantCode(err, fault.Conflict, "")
	})
	h.must(second(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Owner: "first"})))
}
