package control_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

func (h *harness) endpoint(c *control.Caller, types ...string) *control.NewWebhook {
	h.tb.Helper()
	return must[*control.NewWebhook](h)(h.CreateWebhook(ctx(), c, control.WebhookInput{URL: "https://hooks.example/a?b=c", Events: types}))
}

// deliver makes one attempt of everything that is due, with the given status.
func (h *harness) deliver(status int) []sender.Job {
	h.tb.Helper()
	now := h.clock.now()
	jobs := must[[]sender.Job](h)(h.db.ClaimDeliveries(ctx(), sender.Claim{Now: now, Token: now.String(), Until: now.Add(time.Minute), Limit: 1000, EachLimit: 1000}))
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

// wantActions runs f and compares the actions that it left in the audit log; it
// must raise no event.
func (h *harness) wantActions(c *control.Caller, f func(), want ...audit.Action) {
	h.tb.Helper()
	before := h.logs(c.Account.ID)
	f()
	since := h.logs(c.Account.ID).since(before)
	var got []audit.Action
	for _, r := range since.audits {
		got = append(got, r.Action)
		if r.ActorKeyID != c.KeyID || r.Target == "" {
			h.tb.Errorf("audit record of %s on %q by %q", r.Action, r.Target, r.ActorKeyID)
		}
	}
	if !slices.Equal(got, want) || len(since.events) != 0 {
		h.tb.Errorf("audit records %q and %d events; want %q", got, len(since.events), want)
	}
}

// Guarantee: an endpoint is registered as asked, its secret is shown once and
// stored sealed, and stands in no audit record.
func TestCreateWebhook(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "write")
	var made *control.NewWebhook
	h.wantActions(c, func() {
		made = h.endpoint(c, "key.created", "key.revoked", "key.created")
	}, "webhook.create")
	if made.State != webhook.Active || made.Version != 1 || !slices.Equal(made.Events, []event.Type{event.KeyCreated, event.KeyRevoked}) ||
		!strings.HasPrefix(made.Secret, "whsec_") || made.StandardSecret != "" {
		t.Errorf("made %+v", made)
	}
	stored := must[*webhook.Webhook](h)(h.Webhook(ctx(), c, made.ID))
	if h.unseal(stored.Secret) != made.Secret {
		t.Error("the stored secret is not the one that was shown")
	}
	own := must[*control.NewWebhook](h)(h.CreateWebhook(ctx(), c, control.WebhookInput{URL: "https://a.example", Events: []string{"key.created"}, Secret: "correct horse battery"}))
	if own.Secret != "correct horse battery" || own.StandardSecret == "" {
		t.Errorf("made %+v of a given secret", own)
	}
	told, err := json.Marshal(h.logs(c.Account.ID).audits)
	h.must(err)
	if strings.Contains(string(told), made.Secret) || strings.Contains(string(told), own.Secret) || !strings.Contains(string(told), `"signing_secret":[null,"***"]`) {
		t.Errorf("the log tells %s", told)
	}
	if list := must[[]webhook.Webhook](h)(h.Webhooks(ctx(), c, control.Page{Limit: 10})); len(list) != 2 || list[0].ID != own.ID {
		t.Errorf("listed %+v", list)
	}
}

// Guarantee: a bad endpoint is refused with the field that is wrong, before the
// record is looked for, and nothing is left of it.
func TestWebhookValidation(t *testing.T) {
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
		t.Errorf("the refusal names no setting: %v", err)
	}
}

// Guarantee: a change holds to If-Match, makes one version and one record of what
// differs, and what changes nothing makes neither.
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
		t.Errorf("got %+v", got)
	}
	if got = must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), c, made.ID, patch, nil)); got.Version != 2 {
		t.Errorf("no change made version %d", got.Version)
	}
	since := h.logs(c.Account.ID).since(before)
	if len(since.audits) != 1 || since.audits[0].Action != audit.WebhookUpdate || len(since.audits[0].Diff) != 2 {
		t.Errorf("the log holds %+v", since.audits)
	}
}

// Guarantee: a disabled endpoint gets nothing, what waited for it fails with the
// reason, and enabling it clears the reason and the row of failures.
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
		t.Errorf("disabled: %+v", off)
	}
	newKey()
	if states() != "failed" {
		t.Errorf("deliveries of a disabled endpoint: %s", states())
	}
	failed := must[[]webhook.Delivery](h)(h.Deliveries(ctx(), c, control.DeliveryFilter{}, control.Page{Limit: 1}))[0]
	if len(failed.Attempts) != 1 || !strings.Contains(failed.Attempts[0].Error, off.DisabledReason) {
		t.Errorf("the log does not say why: %+v", failed)
	}
	for name, call := range map[string]func() error{
		"test":      func() error { _, err := h.TestWebhook(ctx(), c, made.ID); return err },
		"recover":   func() error { _, err := h.RecoverWebhook(ctx(), c, made.ID, time.Time{}); return err },
		"redeliver": func() error { _, err := h.Redeliver(ctx(), c, failed.ID); return err },
	} {
		if err := call(); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("%s of a disabled endpoint gave %v", name, err)
		}
	}
	on := must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), c, made.ID, control.WebhookPatch{State: value("active")}, nil))
	if on.State != webhook.Active || on.DisabledReason != "" || on.Version != 3 {
		t.Errorf("enabled: %+v", on)
	}
	newKey()
	if states() != "pending failed" {
		t.Errorf("after enabling: %s", states())
	}
	h.deliver(410)
	gone := must[*webhook.Webhook](h)(h.Webhook(ctx(), c, made.ID))
	if gone.State != webhook.Disabled || gone.FailingSince.IsZero() || gone.Version != 4 {
		t.Errorf("after 410: %+v", gone)
	}
	on = must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), c, made.ID, control.WebhookPatch{State: value("active")}, nil))
	if on.State != webhook.Active || !on.FailingSince.IsZero() {
		t.Errorf("enabled: %+v", on)
	}
}

// Guarantee: what was not delivered to a deleted endpoint fails, its log stays,
// and nothing can be sent to it again.
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
		t.Fatalf("the log holds %+v", list)
	}
	_, err = h.Redeliver(ctx(), c, list[0].ID)
	h.wantCode(err, fault.Conflict, "")
	if d := must[*control.DeliveryDetail](h)(h.Delivery(ctx(), c, list[0].ID)); len(d.Payload) == 0 || d.RequestHeaders[webhook.FieldSignature] != "" {
		t.Errorf("the delivery is shown as %+v", d)
	}
}

// Guarantee: during the overlap both secrets sign, and the log shows the header
// fields that an attempt had, without what can no longer be known.
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
		t.Errorf("before an attempt: %v", shown.RequestHeaders)
	}
	h.deliver(200)
	if shown := detail(first); shown.RequestHeaders[webhook.FieldSignature] != webhook.Sign(made.Secret, shown.Payload) {
		t.Errorf("after an attempt: %v", shown.RequestHeaders)
	}
	h.clock.advance(time.Second)
	rotated := must[*control.NewWebhook](h)(h.RotateWebhookSecret(ctx(), c, made.ID, 24, func(v int64) bool { return v == 1 }))
	if rotated.Secret == made.Secret || rotated.Version != 2 || h.unseal(rotated.OldSecret) != made.Secret || !rotated.OldUntil.Equal(h.clock.now().Add(24*time.Hour)) {
		t.Errorf("rotated: %+v", rotated)
	}
	if shown := detail(first); shown.RequestHeaders[webhook.FieldSignature] != "" {
		t.Errorf("signed with a secret of later: %v", shown.RequestHeaders)
	}
	second := test()
	h.deliver(200)
	shown := detail(second)
	if shown.RequestHeaders[webhook.FieldSignature] != webhook.Sign(rotated.Secret, shown.Payload) ||
		shown.RequestHeaders[webhook.FieldPreviousSignature] != webhook.Sign(made.Secret, shown.Payload) {
		t.Errorf("during the overlap: %v", shown.RequestHeaders)
	}
	h.clock.advance(24 * time.Hour)
	third := test()
	h.deliver(200)
	if shown := detail(third); shown.RequestHeaders[webhook.FieldPreviousSignature] != "" || shown.RequestHeaders[webhook.FieldSignature] == "" {
		t.Errorf("after the overlap: %v", shown.RequestHeaders)
	}
	last := must[*control.NewWebhook](h)(h.RotateWebhookSecret(ctx(), c, made.ID, 0, nil))
	if last.OldSecret != nil || !last.OldUntil.IsZero() {
		t.Errorf("without overlap: %+v", last)
	}
	for _, r := range h.logs(c.Account.ID).audits {
		if r.Action == audit.WebhookRotateSecret && (len(r.Diff) != 1 || r.Diff["signing_secret"] != [2]any{"***", "***"}) {
			t.Errorf("the log tells %v", r.Diff)
		}
	}
}

// Guarantee: a test delivers an event that stands nowhere else.
func TestTestWebhook(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "write")
	made := h.endpoint(c, "key.created")
	var d *webhook.Delivery
	h.wantActions(c, func() {
		d = must[*webhook.Delivery](h)(h.TestWebhook(ctx(), c, made.ID))
	}, "webhook.test")
	shown := must[*control.DeliveryDetail](h)(h.Delivery(ctx(), c, d.ID))
	var sent struct {
		ID, Type string
		Data     map[string]any
	}
	h.must(json.Unmarshal(shown.Payload, &sent))
	if sent.ID != d.EventID || sent.Type != "webhook.test" || sent.Data == nil || len(sent.Data) != 0 || shown.Trigger != webhook.ByTest {
		t.Errorf("sends %s", shown.Payload)
	}
	_, err := h.Event(ctx(), c, d.EventID)
	h.wantCode(err, fault.NotFound, "")
	_, err = h.TestWebhook(ctx(), c, "wh_unknown")
	h.wantCode(err, fault.NotFound, "")
}

// Guarantee: a redelivery is a new delivery of the same event with the same bytes;
// one that is still to come is a conflict.
func TestRedeliver(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	h.endpoint(c, "key.created")
	must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read"}))
	first := must[[]webhook.Delivery](h)(h.Deliveries(ctx(), c, control.DeliveryFilter{}, control.Page{Limit: 1}))[0]
	_, err := h.Redeliver(ctx(), c, first.ID)
	h.wantCode(err, fault.Conflict, "")
	for _, status := range []int{500, 200} {
		h.deliver(status)
		h.clock.advance(time.Second)
		var again *webhook.Delivery
		h.wantActions(c, func() {
			again = must[*webhook.Delivery](h)(h.Redeliver(ctx(), c, first.ID))
		}, "delivery.redeliver")
		if again.ID == first.ID || again.EventID != first.EventID || again.Trigger != webhook.ByHand || again.State != webhook.Pending {
			t.Errorf("made %+v", again)
		}
		a, b := must[*control.DeliveryDetail](h)(h.Delivery(ctx(), c, first.ID)), must[*control.DeliveryDetail](h)(h.Delivery(ctx(), c, again.ID))
		if !bytes.Equal(a.Payload, b.Payload) {
			t.Errorf("%s became %s", a.Payload, b.Payload)
		}
		first = *again
	}
}

// Guarantee: recovery takes everything that failed since and was not delivered
// again, each event once however many there are, and again only what failed again.
func TestRecoverWebhook(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	made := h.endpoint(c, "key.created")
	const keys = 450
	recover := func(since time.Time) int {
		return must[int](h)(h.RecoverWebhook(ctx(), c, made.ID, since))
	}
	h.must(h.store.Update(ctx(), func(tx control.Tx) error {
		for range keys {
			e := must[event.Event](h)(event.New(c.Account.ID, event.KeyCreated, h.clock.now(), struct{}{}))
			if err := tx.AppendEvent(ctx(), &e); err != nil {
				return err
			}
		}
		return nil
	}))
	h.deliver(500)
	failedAt := h.clock.now()
	h.clock.advance(time.Minute)
	if n := recover(failedAt.Add(time.Microsecond)); n != 0 {
		t.Errorf("%d recovered that had failed before", n)
	}
	if n := recover(failedAt); n != keys {
		t.Errorf("%d recovered, want %d", n, keys)
	}
	if n := recover(failedAt); n != 0 {
		t.Errorf("%d recovered twice", n)
	}
	if jobs := h.deliver(500); len(jobs) != keys || jobs[0].Attempt != 1 {
		t.Errorf("%d deliveries, of which the first makes attempt %d", len(jobs), jobs[0].Attempt)
	}
	h.clock.advance(time.Minute)
	if n := recover(failedAt); n != keys {
		t.Errorf("%d recovered that failed again, want %d", n, keys)
	}
	h.deliver(200)
	total := 0
	for _, r := range h.logs(c.Account.ID).audits {
		if r.Action == audit.WebhookRecover {
			n, err := r.Diff["deliveries"][1].(json.Number).Int64()
			h.must(err)
			total += int(n)
		}
	}
	if total != 2*keys {
		t.Errorf("the log tells of %d deliveries, want %d", total, 2*keys)
	}
	_, err := h.RecoverWebhook(ctx(), c, "wh_unknown", failedAt)
	h.wantCode(err, fault.NotFound, "")
}

// Guarantee: the sender is woken after every commit that may have left something
// to deliver, and not by others.
func TestWake(t *testing.T) {
	h := newHarness(t)
	var woken atomic.Int32
	h.wake = func() { woken.Add(1) }
	h.serve(h.db)
	c := h.caller("acme", "admin")
	made := h.endpoint(c, "key.created", "key.expired")
	woken.Store(0)
	wants := func(what string, want bool, f func()) {
		t.Helper()
		f()
		if got := woken.Swap(0) > 0; got != want {
			t.Errorf("%s: woken %v", what, got)
		}
	}
	expires := h.clock.now().Add(time.Minute).Format(time.RFC3339)
	wants("a new key", true, func() {
		must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", ExpiresAt: expires}))
	})
	wants("a test", true, func() { must[*webhook.Delivery](h)(h.TestWebhook(ctx(), c, made.ID)) })
	wants("no expiry", false, func() { must[int](h)(h.NotifyExpired(ctx())) })
	h.clock.advance(time.Hour)
	wants("an expiry", true, func() { must[int](h)(h.NotifyExpired(ctx())) })
	wants("a refused call", false, func() { _, _ = h.TestWebhook(ctx(), c, "wh_unknown") })
	wants("an update", false, func() {
		must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), c, made.ID, control.WebhookPatch{URL: value("https://c.example")}, nil))
	})
	if list := must[[]webhook.Delivery](h)(h.Deliveries(ctx(), c, control.DeliveryFilter{EventType: event.KeyExpired}, control.Page{Limit: 10})); len(list) != 1 {
		t.Errorf("%d deliveries of an expiry", len(list))
	}
}

// Guarantee: whatever changes an endpoint recalls what a sender holds for it, once
// the change is committed; nothing else does.
func TestRecallOfChanged(t *testing.T) {
	h := newHarness(t)
	var recalled []string
	h.recall = func(webhookID string) { recalled = append(recalled, webhookID) }
	h.serve(h.db)
	c := h.caller("acme", "admin")
	made := h.endpoint(c, "key.created")
	patch := func(p control.WebhookPatch) func() error {
		return func() error { _, err := h.UpdateWebhook(ctx(), c, made.ID, p, nil); return err }
	}
	for _, tc := range []struct {
		what string
		want bool
		call func() error
	}{
		{"another address", true, patch(control.WebhookPatch{URL: value("https://c.example")})},
		{"the same address", false, patch(control.WebhookPatch{URL: value("https://c.example")})},
		{"a test", false, func() error { _, err := h.TestWebhook(ctx(), c, made.ID); return err }},
		{"a rotation", true, func() error { _, err := h.RotateWebhookSecret(ctx(), c, made.ID, 0, nil); return err }},
		{"disabling", true, patch(control.WebhookPatch{State: value("disabled")})},
		{"a condition that does not hold", false, func() error {
			_, err := h.DeleteWebhook(ctx(), c, made.ID, func(int64) bool { return false })
			if fault.CodeOf(err) != fault.PreconditionFailed {
				return fmt.Errorf("deleted: %w", err)
			}
			return nil
		}},
		{"deletion", true, func() error { _, err := h.DeleteWebhook(ctx(), c, made.ID, nil); return err }},
	} {
		recalled = nil
		if err := tc.call(); err != nil {
			t.Fatal(tc.what, err)
		}
		if got := len(recalled) == 1 && recalled[0] == made.ID; got != tc.want || len(recalled) > 1 {
			t.Errorf("%s recalled %v", tc.what, recalled)
		}
	}
}

// Guarantee: the endpoints, deliveries and events of another account do not exist.
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
			t.Errorf("%s gave %v", name, err)
		}
	}
	if list := must[[]webhook.Delivery](h)(h.Deliveries(ctx(), b, control.DeliveryFilter{WebhookID: made.ID}, control.Page{Limit: 10})); len(list) != 0 {
		t.Errorf("listed %+v", list)
	}
}
