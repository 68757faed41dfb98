package control_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
	"github.com/keygate/keygate/internal/webhook/sender/sendertest"
)

func (h *harness) endpoint(c *control.Actor, types ...string) *control.NewWebhook {
	h.tb.Helper()
	return must[*control.NewWebhook](h)(h.CreateWebhook(ctx(), c, control.WebhookInput{URL: "https://hooks.example/a?b=c", Events: types, AllowDuplicate: true}))
}

// deliver makes one attempt of every delivery that is due, and records the status.
func (h *harness) deliver(status int) []sender.Job {
	h.tb.Helper()
	now := h.clock.now()
	jobs := must[[]sender.Job](h)(sendertest.ClaimAll(ctx(), h.db, sender.Claim{Now: now, Token: now.String(), Until: now.Add(time.Minute)}, 1000))
	var results []sender.Result
	for _, j := range jobs {
		state := webhook.Delivered
		if status != 200 {
			state = webhook.Failed
		}
		results = append(results, sender.Result{Lease: j.Lease, State: state, Attempt: webhook.Attempt{Number: j.Attempt, StartedAt: now, Status: status}})
	}
	must[int](h)(h.db.FinishDeliveries(ctx(), results))
	return jobs
}

func (h *harness) unseal(sealed []byte) string {
	h.tb.Helper()
	return string(must[[]byte](h)(h.box.Open(sealed)))
}

// wantActions runs f, and fails unless f wrote audit records of exactly these actions, by c,
// and no event.
func (h *harness) wantActions(c *control.Actor, f func(), want ...audit.Action) {
	h.tb.Helper()
	before := h.logs(c.Account.ID)
	f()
	since := h.logs(c.Account.ID).since(before)
	var got []audit.Action
	for _, r := range since.audits {
		got = append(got, r.Action)
		if r.ActorKeyID != c.KeyID || r.Target == "" {
			h.tb.Errorf("got audit record of %s on %q by %q; want a target, by %q", r.Action, r.Target, r.ActorKeyID, c.KeyID)
		}
	}
	if !slices.Equal(got, want) || len(since.events) != 0 {
		h.tb.Errorf("got audit records %q and %d events; want %q and none", got, len(since.events), want)
	}
}

// Guarantee: an endpoint is created with its settings and each event type once. Its secret is
// returned once, stored encrypted, and never in an audit record.
func TestCreateWebhook(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "write")
	var made *control.NewWebhook
	h.wantActions(c, func() {
		made = h.endpoint(c, "key.created", "key.revoked", "key.created")
	}, "webhook.create")
	if made.State != webhook.Active || made.Version != 1 || !slices.Equal(made.Events, []event.Type{event.KeyCreated, event.KeyRevoked}) ||
		!strings.HasPrefix(made.Secret, "whsec_") || made.StandardSecret != "" {
		t.Errorf("got %+v; want it active, of version 1, with two event types and a made secret", made)
	}
	stored := must[*webhook.Webhook](h)(h.Webhook(ctx(), c, made.ID))
	if h.unseal(stored.Secret) != made.Secret {
		t.Error("got another stored secret than the returned one; want the same")
	}
	own := must[*control.NewWebhook](h)(h.CreateWebhook(ctx(), c, control.WebhookInput{URL: "https://a.example", Events: []string{"key.created"}, Secret: "correct horse battery"}))
	if own.Secret != "correct horse battery" || own.StandardSecret == "" {
		t.Errorf("got %+v; want the given secret, also in the standard form", own)
	}
	logged, err := json.Marshal(h.logs(c.Account.ID).audits)
	h.must(err)
	if strings.Contains(string(logged), made.Secret) || strings.Contains(string(logged), own.Secret) || !strings.Contains(string(logged), `"signing_secret":[null,"***"]`) {
		t.Errorf("got audit records %s; want *** instead of the secrets", logged)
	}
	if list := must[[]webhook.Webhook](h)(h.Webhooks(ctx(), c, control.Page{Limit: 10})); len(list) != 2 || list[0].ID != own.ID {
		t.Errorf("got endpoints %+v; want two, newest first", list)
	}
}

// insertWebhooks adds n endpoints to the store without the checks of CreateWebhook.
func (h *harness) insertWebhooks(c *control.Actor, n int) {
	h.tb.Helper()
	h.must(h.db.Update(ctx(), func(tx control.Tx) error {
		for range n {
			w := webhook.Webhook{ID: id.New(id.Webhook), AccountID: c.Account.ID, URL: "https://hooks.example", Events: []event.Type{event.KeyRevoked},
				State: webhook.Disabled, SharesURL: true, Secret: []byte("sealed"), SecretSince: h.clock.now(), CreatedAt: h.clock.now(), Version: 1}
			if err := tx.InsertWebhook(ctx(), &w); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Guarantee: an account has at most 1,000 endpoints, in whatever state, also if many are created at
// the same time. A further endpoint is fault.Conflict until one is deleted; other accounts are not
// affected. A store that has more endpoints from an earlier version keeps them.
func TestAccountHasAtMost1000Webhooks(t *testing.T) {
	const most, clients = 1000, 8
	h := newHarness(t)
	c, other := h.caller("acme", "admin"), h.caller("other", "write")
	h.insertWebhooks(c, most-2)
	in := control.WebhookInput{URL: "https://hooks.example", Events: []string{"key.created"}, AllowDuplicate: true}
	var (
		creating sync.WaitGroup
		errs     [clients]error
	)
	for i := range clients {
		creating.Go(func() { _, errs[i] = h.CreateWebhook(ctx(), c, in) })
	}
	creating.Wait()
	created := 0
	for _, err := range errs {
		if err == nil {
			created++
			continue
		}
		h.wantCode(err, fault.Conflict, "")
		if !strings.Contains(err.Error(), "delete one") {
			t.Errorf("got the error %q; want one that says what to do", err)
		}
	}
	if created != 2 {
		t.Errorf("created %d endpoints at the same time; want 2", created)
	}
	h.endpoint(other, "key.created")
	list := must[[]webhook.Webhook](h)(h.Webhooks(ctx(), c, control.Page{Limit: 1}))
	must[*webhook.Webhook](h)(h.DeleteWebhook(ctx(), c, list[0].ID, nil))
	made := h.endpoint(c, "key.created")

	h.insertWebhooks(c, 5) // as an earlier version allowed
	_, err := h.CreateWebhook(ctx(), c, in)
	h.wantCode(err, fault.Conflict, "")
	must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), c, made.ID, control.WebhookPatch{URL: value("https://other.example")}, nil))
	if all := must[[]webhook.Webhook](h)(h.Webhooks(ctx(), c, control.Page{Limit: 2 * most})); len(all) != most+5 {
		t.Errorf("got %d endpoints; want %d", len(all), most+5)
	}
}

// Guarantee: an invalid endpoint is rejected with the name of the field, also if the endpoint
// to update does not exist, and writes no record.
func TestInvalidWebhooksAreRejected(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "write")
	made := h.endpoint(c, "key.created")
	h.wantActions(c, func() {
		for _, bad := range []struct {
			in    control.WebhookInput
			field string
		}{
			{control.WebhookInput{URL: "http://hooks.example", Events: []string{"key.created"}}, "url"},
			{control.WebhookInput{URL: "", Events: []string{"key.created"}}, "url"},
			{control.WebhookInput{URL: "https://hooks.example"}, "events"},
			{control.WebhookInput{URL: "https://hooks.example", Events: []string{"key.created", "webhook.test"}}, "events[1]"},
			{control.WebhookInput{URL: "https://hooks.example", Events: []string{"key.created"}, Secret: "short"}, "signing_secret"},
		} {
			_, err := h.CreateWebhook(ctx(), c, bad.in)
			h.wantCode(err, fault.ValidationFailed, bad.field)
		}
		for field, bad := range map[string]control.WebhookPatch{
			"url": {URL: null[string]()}, "events": {Events: value([]string{})}, "state": {State: value("paused")},
		} {
			for _, id := range []string{made.ID, "wh_unknown"} {
				_, err := h.UpdateWebhook(ctx(), c, id, bad, nil)
				h.wantCode(err, fault.ValidationFailed, field)
			}
		}
		_, err := h.RotateWebhookSecret(ctx(), c, made.ID, 169, nil)
		h.wantCode(err, fault.ValidationFailed, "overlap_hours")
	})
	_, err := h.CreateWebhook(ctx(), c, control.WebhookInput{URL: "http://10.0.0.1/", Events: []string{"key.created"}})
	if err == nil || !strings.Contains(err.Error(), "--webhook-allow-network") {
		t.Errorf("got error %v; want one that names --webhook-allow-network", err)
	}
}

// Guarantee: an update obeys If-Match, and increments the version and writes one audit record
// only if something changes.
func TestUpdateWebhook(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "write")
	made := h.endpoint(c, "key.created")
	patch := control.WebhookPatch{URL: value("https://b.example"), Events: value([]string{"key.rotated"})}
	_, err := h.UpdateWebhook(ctx(), c, made.ID, patch, func(v int64) bool { return v == 7 })
	h.wantCode(err, fault.PreconditionFailed, "")
	before := h.logs(c.Account.ID)
	got := must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), c, made.ID, patch, func(v int64) bool { return v == 1 }))
	if got.Version != 2 || got.URL != "https://b.example" || !slices.Equal(got.Events, []event.Type{event.KeyRotated}) {
		t.Errorf("got %+v; want version 2 with the new URL and event type", got)
	}
	if got = must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), c, made.ID, patch, nil)); got.Version != 2 {
		t.Errorf("got version %d after an update without a change; want 2", got.Version)
	}
	since := h.logs(c.Account.ID).since(before)
	if len(since.audits) != 1 || since.audits[0].Action != audit.WebhookUpdate || len(since.audits[0].Diff) != 2 {
		t.Errorf("got audit records %+v; want one webhook.update with two differences", since.audits)
	}
}

// Guarantee: disabling an endpoint fails its pending deliveries with the reason, and it gets
// no more. Enabling it clears the reason and the time since which it fails.
func TestDisableWebhook(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	made := h.endpoint(c, "key.created")
	newKey := func() {
		must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read"}))
	}
	states := func() string {
		var all []string
		for _, d := range must[[]webhook.Delivery](h)(h.Deliveries(ctx(), c, control.DeliveryFilter{}, control.Page{Limit: 100})) {
			all = append(all, string(d.State))
		}
		return strings.Join(all, " ")
	}
	newKey()
	off := must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), c, made.ID, control.WebhookPatch{State: value("disabled")}, nil))
	if off.State != webhook.Disabled || off.DisabledReason == "" || off.Version != 2 {
		t.Errorf("got %+v; want it disabled with a reason, of version 2", off)
	}
	newKey()
	if got := states(); got != "failed" {
		t.Errorf("got deliveries %q of a disabled endpoint; want one, failed", got)
	}
	failed := must[[]webhook.Delivery](h)(h.Deliveries(ctx(), c, control.DeliveryFilter{}, control.Page{Limit: 1}))[0]
	if len(failed.Attempts) != 1 || !strings.Contains(failed.Attempts[0].Error, off.DisabledReason) {
		t.Errorf("got delivery %+v; want one attempt with the reason %q", failed, off.DisabledReason)
	}
	for name, call := range map[string]func() error{
		"test":      func() error { _, err := h.TestWebhook(ctx(), c, made.ID); return err },
		"recover":   func() error { _, err := h.RecoverWebhook(ctx(), c, made.ID, time.Time{}); return err },
		"redeliver": func() error { _, err := h.Redeliver(ctx(), c, failed.ID); return err },
	} {
		if err := call(); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("%s: got error %v for a disabled endpoint; want a conflict", name, err)
		}
	}
	on := must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), c, made.ID, control.WebhookPatch{State: value("active")}, nil))
	if on.State != webhook.Active || on.DisabledReason != "" || on.Version != 3 {
		t.Errorf("got %+v; want it active without a reason, of version 3", on)
	}
	newKey()
	if got := states(); got != "pending failed" {
		t.Errorf("got deliveries %q after enabling; want \"pending failed\"", got)
	}
	h.deliver(410)
	gone := must[*webhook.Webhook](h)(h.Webhook(ctx(), c, made.ID))
	if gone.State != webhook.Disabled || gone.FailingSince.IsZero() || gone.Version != 4 {
		t.Errorf("got %+v after a 410; want it disabled and failing, of version 4", gone)
	}
	on = must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), c, made.ID, control.WebhookPatch{State: value("active")}, nil))
	if on.State != webhook.Active || !on.FailingSince.IsZero() {
		t.Errorf("got %+v; want it active and not failing", on)
	}
}

// Guarantee: deleting an endpoint fails its pending deliveries, keeps its deliveries in the
// log, and makes a redelivery a conflict.
func TestDeleteWebhook(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	made := h.endpoint(c, "key.created")
	must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read"}))
	h.wantActions(c, func() {
		must[*webhook.Webhook](h)(h.DeleteWebhook(ctx(), c, made.ID, nil))
	}, "webhook.delete")
	_, err := h.DeleteWebhook(ctx(), c, made.ID, nil)
	h.wantCode(err, fault.NotFound, "")
	list := must[[]webhook.Delivery](h)(h.Deliveries(ctx(), c, control.DeliveryFilter{WebhookID: made.ID}, control.Page{Limit: 10}))
	if len(list) != 1 || list[0].State != webhook.Failed || list[0].Attempts[0].Error != "not sent: the endpoint was deleted" {
		t.Fatalf("got deliveries %+v; want one, failed because the endpoint was deleted", list)
	}
	_, err = h.Redeliver(ctx(), c, list[0].ID)
	h.wantCode(err, fault.Conflict, "")
	if d := must[*control.DeliveryDetail](h)(h.Delivery(ctx(), c, list[0].ID)); len(d.Payload) == 0 || d.RequestHeaders[webhook.FieldSignature] != "" {
		t.Errorf("got delivery %+v; want its payload, and no signature", d)
	}
}

// Guarantee: during the overlap, deliveries are signed with both secrets. The log shows the
// header of the last attempt, without a signature whose secret is no longer stored.
func TestRotateWebhookSecret(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	made := h.endpoint(c, "key.created")
	test := func() *webhook.Delivery { return must[*webhook.Delivery](h)(h.TestWebhook(ctx(), c, made.ID)) }
	detail := func(d *webhook.Delivery) *control.DeliveryDetail {
		return must[*control.DeliveryDetail](h)(h.Delivery(ctx(), c, d.ID))
	}
	first := test()
	if shown := detail(first); shown.RequestHeaders[webhook.FieldSignature] != "" || shown.RequestHeaders[webhook.FieldAttempt] != "1" {
		t.Errorf("got header %v before an attempt; want no signature, and attempt 1", shown.RequestHeaders)
	}
	h.deliver(200)
	if shown := detail(first); shown.RequestHeaders[webhook.FieldSignature] != webhook.Sign(made.Secret, shown.Payload) {
		t.Errorf("got header %v after an attempt; want the signature with the secret", shown.RequestHeaders)
	}
	h.clock.advance(time.Second)
	rotated := must[*control.NewWebhook](h)(h.RotateWebhookSecret(ctx(), c, made.ID, 24, func(v int64) bool { return v == 1 }))
	if rotated.Secret == made.Secret || rotated.Version != 2 || h.unseal(rotated.OldSecret) != made.Secret || !rotated.OldUntil.Equal(h.clock.now().Add(24*time.Hour)) {
		t.Errorf("got %+v; want a new secret, version 2, and the old secret for 24 hours", rotated)
	}
	if shown := detail(first); shown.RequestHeaders[webhook.FieldSignature] != "" {
		t.Errorf("got header %v of an attempt before the rotation; want no signature", shown.RequestHeaders)
	}
	second := test()
	h.deliver(200)
	shown := detail(second)
	if shown.RequestHeaders[webhook.FieldSignature] != webhook.Sign(rotated.Secret, shown.Payload) ||
		shown.RequestHeaders[webhook.FieldPreviousSignature] != webhook.Sign(made.Secret, shown.Payload) {
		t.Errorf("got header %v during the overlap; want the signatures with both secrets", shown.RequestHeaders)
	}
	h.clock.advance(24 * time.Hour)
	third := test()
	h.deliver(200)
	if shown := detail(third); shown.RequestHeaders[webhook.FieldPreviousSignature] != "" || shown.RequestHeaders[webhook.FieldSignature] == "" {
		t.Errorf("got header %v after the overlap; want one signature", shown.RequestHeaders)
	}
	last := must[*control.NewWebhook](h)(h.RotateWebhookSecret(ctx(), c, made.ID, 0, nil))
	if last.OldSecret != nil || !last.OldUntil.IsZero() {
		t.Errorf("got %+v after a rotation without overlap; want no old secret", last)
	}
	for _, r := range h.logs(c.Account.ID).audits {
		if r.Action == audit.WebhookRotateSecret && (len(r.Diff) != 1 || r.Diff["signing_secret"] != [2]any{"***", "***"}) {
			t.Errorf("got diff %v; want signing_secret alone, as ***", r.Diff)
		}
	}
}

// Guarantee: the endpoints, deliveries and events of another account are not found.
func TestWebhooksOfAnotherAccount(t *testing.T) {
	h := newHarness(t)
	a, b := h.caller("acme", "admin"), h.caller("beta", "admin")
	made := h.endpoint(a, "key.created")
	d := must[*webhook.Delivery](h)(h.TestWebhook(ctx(), a, made.ID))
	e := h.logs(a.Account.ID).events[0]
	for name, call := range map[string]func() error{
		"get":       func() error { _, err := h.Webhook(ctx(), b, made.ID); return err },
		"update":    func() error { _, err := h.UpdateWebhook(ctx(), b, made.ID, control.WebhookPatch{}, nil); return err },
		"delete":    func() error { _, err := h.DeleteWebhook(ctx(), b, made.ID, nil); return err },
		"rotate":    func() error { _, err := h.RotateWebhookSecret(ctx(), b, made.ID, 0, nil); return err },
		"test":      func() error { _, err := h.TestWebhook(ctx(), b, made.ID); return err },
		"recover":   func() error { _, err := h.RecoverWebhook(ctx(), b, made.ID, time.Time{}); return err },
		"delivery":  func() error { _, err := h.Delivery(ctx(), b, d.ID); return err },
		"redeliver": func() error { _, err := h.Redeliver(ctx(), b, d.ID); return err },
		"event":     func() error { _, err := h.Event(ctx(), b, e.ID); return err },
	} {
		if err := call(); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s: got error %v; want not found", name, err)
		}
	}
	if list := must[[]webhook.Delivery](h)(h.Deliveries(ctx(), b, control.DeliveryFilter{WebhookID: made.ID}, control.Page{Limit: 10})); len(list) != 0 {
		t.Errorf("got deliveries %+v of another account; want none", list)
	}
}

// Guarantee: contract 3, /v1/webhooks. In an account, a second endpoint with a URL is a conflict that names the first,
// unless the call allows it.
func TestURLsOfWebhooksAreUnique(t *testing.T) {
	h := newHarness(t)
	caller, other := h.caller("acme", "admin"), h.caller("other", "admin")
	in := control.WebhookInput{URL: "https://hooks.example/a", Events: []string{"key.created"}}
	create := func(c *control.Actor, in control.WebhookInput) (*control.NewWebhook, error) {
		return h.CreateWebhook(ctx(), c, in)
	}
	first := must[*control.NewWebhook](h)(create(caller, in))
	must[*control.NewWebhook](h)(create(other, in))
	named := func(what string, err error) {
		t.Helper()
		if h.wantCode(err, fault.Conflict, "url"); !strings.Contains(fault.MessageOf(err), first.ID) {
			t.Errorf("%s: got %q; want it to name %s", what, fault.MessageOf(err), first.ID)
		}
	}
	named("creation", second(create(caller, in)))
	free := in
	free.URL = "https://hooks.example/b"
	w := must[*control.NewWebhook](h)(create(caller, free))
	move := control.WebhookPatch{URL: value(in.URL)}
	named("moving", second(h.UpdateWebhook(ctx(), caller, w.ID, move, nil)))
	move.AllowDuplicate = true
	must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), caller, w.ID, move, nil))
	must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), caller, w.ID, control.WebhookPatch{URL: value(in.URL), State: value("disabled")}, nil))
	in.AllowDuplicate = true
	must[*control.NewWebhook](h)(create(caller, in))
}
