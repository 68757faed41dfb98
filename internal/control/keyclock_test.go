package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
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
	must[*control.PushResult](h)(h.PushSpec(ctx(), caller, g.ID, spec("/b"), false, nil))
	hook := must[*control.NewWebhook](h)(h.CreateWebhook(ctx(), caller, control.WebhookInput{URL: "https://example.com/", Events: []string{"key.created"}}))
	sent := must[*webhook.Delivery](h)(h.TestWebhook(ctx(), caller, hook.ID))
	made := map[string]id.Kind{
		h.gateway(caller).ID: id.Gateway, h.route(caller, g.ID, "/a", "GET").ID: id.Route, h.owner(caller, control.OwnerInput{ExternalID: "o"}).ID: id.Owner,
		h.plan(caller, control.PlanInput{Name: "p"}).ID:                                                     id.Plan,
		must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "k", Scope: "read"})).ID: id.Key,
		hook.ID: id.Webhook, sent.ID: id.Delivery,
	}
	for _, e := range h.records(caller.Account.ID).since(before).events {
		made[e.ID] = id.Event
	}
	for _, r := range must[[]gateway.Revision](h)(h.Revisions(ctx(), caller, g.ID, 10, 0)) {
		made[r.ID] = id.Revision
	}
	h.fanOut()
	for _, d := range must[[]webhook.Delivery](h)(h.Deliveries(ctx(), caller, control.DeliveryFilter{WebhookID: hook.ID}, control.Page{Limit: 100})) {
		made[d.ID] = id.Delivery
	}
	kinds := map[id.Kind]int{}
	for got, kind := range made {
		kinds[kind]++
		if got < id.Lowest(kind, now) || got >= id.Lowest(kind, h.clock.now().Add(time.Second)) {
			t.Errorf("%s does not have the time %v", got, now)
		}
	}
	if kinds[id.Revision] != 1 || kinds[id.Event] == 0 || kinds[id.Delivery] < 2 { // the test's, and that of an event
		t.Errorf("got identifiers of these kinds: %v; want a revision, an event and two deliveries among them", kinds)
	}
}
