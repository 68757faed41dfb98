package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
)

// Guarantee: a clock that was ahead for a moment ends no key for good: what was notified meanwhile is active again,
// can be changed, and expires at its time.
func TestClockAheadEndsNoKey(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read", Level: "account", ExpiresAt: "2026-03-02T12:00:00Z"}))
	h.clock.advance(48 * time.Hour)
	if got := must[int](h)(h.NotifyExpired(ctx())); got != 1 {
		t.Fatalf("got %d events with the clock ahead; want 1", got)
	}
	h.clock.advance(-48 * time.Hour)
	h.reopen()
	if got := must[*apikey.Key](h)(h.Key(ctx(), caller, k.ID)); got.State(h.clock.now()) != apikey.Active {
		t.Errorf("with a clock that is right again the key is %s; want active", got.State(h.clock.now()))
	}
	if v := must[*control.Verification](h)(h.VerifyKey(ctx(), caller, k.Secret, "", "GET", "/v1/keys")); !v.Valid {
		t.Errorf("got the verification %+v; want it valid", v)
	}
	active := must[[]apikey.Key](h)(h.Keys(ctx(), caller, control.KeyFilter{State: apikey.Active}, control.Page{Limit: 100}))
	if !slices.ContainsFunc(active, func(a apikey.Key) bool { return a.ID == k.ID }) {
		t.Errorf("got the active keys %+v; want the key among them", active)
	}
	must[*apikey.Key](h)(h.UpdateKey(ctx(), caller, k.ID, control.KeyPatch{Name: value("renamed")}, nil))
	h.clock.advance(24 * time.Hour)
	if got := must[*apikey.Key](h)(h.Key(ctx(), caller, k.ID)); got.State(h.clock.now()) != apikey.Expired {
		t.Errorf("at its expiry the key is %s; want expired", got.State(h.clock.now()))
	}
}

// Guarantee: identifiers have the time of the server's clock, which ignores short steps ahead, and not that of the machine's.
// So nothing that was made while that was ahead stays first in lists.
func TestIdentifiersHaveTheTimeOfTheClock(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	now := h.clock.now()
	before := h.records(caller.Account.ID)
	made := map[id.Kind]string{
		id.Gateway: h.gateway(caller).ID, id.Route: h.route(caller, g.ID, "/a", "GET").ID, id.Owner: h.owner(caller, control.OwnerInput{ExternalID: "o"}).ID,
		id.Plan:    h.plan(caller, control.PlanInput{Name: "p"}).ID,
		id.Key:     must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read"})).ID,
		id.Webhook: must[*control.NewWebhook](h)(h.CreateWebhook(ctx(), caller, control.WebhookInput{URL: "https://example.com/", Events: []string{"key.created"}})).ID,
	}
	made[id.Event] = h.records(caller.Account.ID).since(before).events[0].ID
	for kind, got := range made {
		if got < id.Lowest(kind, now) || got >= id.Lowest(kind, h.clock.now().Add(time.Second)) {
			t.Errorf("%s does not have the time %v", got, now)
		}
	}
}
