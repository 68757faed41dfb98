package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
	"github.com/keygate/keygate/internal/webhook/sender/sendertest"
)

// Guarantee: a test sends an event of the type webhook.test without data, which is in no list
// of events.
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
		t.Errorf("got payload %s, sent by %s; want an empty webhook.test, sent by a test", shown.Payload, shown.Trigger)
	}
	_, err := h.Event(ctx(), c, d.EventID)
	h.wantCode(err, fault.NotFound, "")
	_, err = h.TestWebhook(ctx(), c, "wh_unknown")
	h.wantCode(err, fault.NotFound, "")
}

// Guarantee: a redelivery is a new delivery of the same event with the same bytes. The
// redelivery of a pending delivery is a conflict.
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
		var again *control.Redelivery
		h.wantActions(c, func() {
			again = must[*control.Redelivery](h)(h.Redeliver(ctx(), c, first.ID))
		}, "delivery.redeliver")
		if !again.New || again.ID == first.ID || again.EventID != first.EventID || again.Trigger != webhook.ByHand || again.State != webhook.Pending {
			t.Errorf("got %+v; want a new pending delivery of the same event, sent by hand", again)
		}
		a, b := must[*control.DeliveryDetail](h)(h.Delivery(ctx(), c, first.ID)), must[*control.DeliveryDetail](h)(h.Delivery(ctx(), c, again.ID))
		if !bytes.Equal(a.Payload, b.Payload) {
			t.Errorf("got payload %s; want %s", b.Payload, a.Payload)
		}
		first = again.Delivery
	}
}

// Guarantee: the redelivery of a delivery whose retry is scheduled makes the retry due now, wakes the sender and adds no
// delivery. It is audited with both times. A retry that is due already stays as it is.
func TestRedeliverBringsRetryForward(t *testing.T) {
	h := newHarness(t)
	var woken atomic.Int32
	h.wake = func() { woken.Add(1) }
	h.serve(h.db)
	c := h.caller("acme", "admin")
	h.endpoint(c, "key.created")
	must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read"}))
	now := h.clock.now()
	job := must[[]sender.Job](h)(sendertest.ClaimAll(ctx(), h.db, sender.Claim{Now: now, Token: "t", Until: now.Add(time.Minute)}, 1))[0]
	at := now.Add(time.Hour)
	must[int](h)(h.db.FinishDeliveries(ctx(), []sender.Result{{Lease: job.Lease, State: webhook.RetryScheduled, NextAttemptAt: at,
		Attempt: webhook.Attempt{Number: 1, StartedAt: now, Status: 500}}}))
	h.clock.advance(time.Second)
	due := h.clock.now()
	for range 2 {
		woken.Store(0)
		h.wantActions(c, func() {
			d := must[*control.Redelivery](h)(h.Redeliver(ctx(), c, job.DeliveryID))
			if d.New || d.ID != job.DeliveryID || d.State != webhook.RetryScheduled || !d.NextAttemptAt.Equal(due) {
				t.Errorf("got %+v; want the same delivery, due at %v", d, due)
			}
		}, "delivery.redeliver")
		if woken.Load() == 0 {
			t.Error("the sender was not woken")
		}
		h.clock.advance(time.Second)
	}
	var diffs []audit.Diff
	for _, r := range h.logs(c.Account.ID).audits {
		if r.Action == audit.DeliveryRedeliver {
			diffs = append(diffs, r.Diff)
		}
	}
	want := [2]any{at.Format(time.RFC3339Nano), due.Format(time.RFC3339Nano)}
	if len(diffs) != 2 || diffs[0]["next_attempt_at"] != want || len(diffs[1]) != 0 {
		t.Errorf("got audited %v; want next_attempt_at %v, and then nothing", diffs, want)
	}
	if list := must[[]webhook.Delivery](h)(h.Deliveries(ctx(), c, control.DeliveryFilter{}, control.Page{Limit: 10})); len(list) != 1 {
		t.Errorf("got %d deliveries; want 1", len(list))
	}
}

// Guarantee: recovery redelivers every event that has failed since the given time and was not
// delivered afterwards, each once. A second recovery redelivers only events that failed again.
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
	h.fanOut()
	h.deliver(500)
	failedAt := h.clock.now()
	h.clock.advance(time.Minute)
	if n := recover(failedAt.Add(time.Microsecond)); n != 0 {
		t.Errorf("got %d recovered that failed before the given time; want 0", n)
	}
	if n := recover(failedAt); n != keys {
		t.Errorf("got %d recovered; want %d", n, keys)
	}
	if n := recover(failedAt); n != 0 {
		t.Errorf("got %d recovered by a second call; want 0", n)
	}
	if jobs := h.deliver(500); len(jobs) != keys || jobs[0].Attempt != 1 {
		t.Errorf("got %d deliveries; want %d, the first with attempt 1", len(jobs), keys)
	}
	h.clock.advance(time.Minute)
	if n := recover(failedAt); n != keys {
		t.Errorf("got %d recovered that failed again; want %d", n, keys)
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
		t.Errorf("got %d deliveries in the audit log; want %d", total, 2*keys)
	}
	_, err := h.RecoverWebhook(ctx(), c, "wh_unknown", failedAt)
	h.wantCode(err, fault.NotFound, "")
}

// Guarantee: the sender is woken after every commit that may have added a delivery, and after
// no other call.
func TestSenderIsWokenForNewDeliveries(t *testing.T) {
	h := newHarness(t)
	var woken atomic.Int32
	h.wake = func() { woken.Add(1) }
	h.serve(h.db)
	c := h.caller("acme", "admin")
	made := h.endpoint(c, "key.created", "key.expired")
	woken.Store(0)
	wantWoken := func(what string, want bool, f func()) {
		t.Helper()
		f()
		if got := woken.Swap(0) > 0; got != want {
			t.Errorf("%s: got woken %t; want %t", what, got, want)
		}
	}
	expires := h.clock.now().Add(time.Minute).Format(time.RFC3339)
	wantWoken("a new key", true, func() {
		must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", ExpiresAt: expires}))
	})
	wantWoken("a test", true, func() { must[*webhook.Delivery](h)(h.TestWebhook(ctx(), c, made.ID)) })
	wantWoken("no expiry", false, func() { must[int](h)(h.NotifyExpired(ctx())) })
	h.clock.advance(time.Hour)
	wantWoken("an expiry", true, func() { must[int](h)(h.NotifyExpired(ctx())) })
	wantWoken("a refused call", false, func() { _, _ = h.TestWebhook(ctx(), c, "wh_unknown") })
	wantWoken("an update", false, func() {
		must[*webhook.Webhook](h)(h.UpdateWebhook(ctx(), c, made.ID, control.WebhookPatch{URL: value("https://c.example")}, nil))
	})
	if list := must[[]webhook.Delivery](h)(h.Deliveries(ctx(), c, control.DeliveryFilter{EventType: event.KeyExpired}, control.Page{Limit: 10})); len(list) != 1 {
		t.Errorf("got %d deliveries of an expiry; want 1", len(list))
	}
}

// Guarantee: every committed change of an endpoint is in the change log, so that the senders of all nodes
// hand back its deliveries before the call returns. The change log has no other entries.
func TestChangesOfEndpointsAreInTheChangeLog(t *testing.T) {
	h := newHarness(t)
	var recalled []string
	h.pub.follow = func(_ context.Context, only ...snapshot.Change) error {
		for _, c := range only {
			if c.Kind == snapshot.WebhookChange {
				recalled = append(recalled, c.ID)
			}
		}
		return nil
	}
	c := h.caller("acme", "admin")
	made := h.endpoint(c, "key.created")
	patch := func(p control.WebhookPatch) func() error {
		return func() error { _, err := h.UpdateWebhook(ctx(), c, made.ID, p, nil); return err }
	}
	for _, tc := range []struct {
		what    string
		changes bool
		call    func() error
	}{
		{"another address", true, patch(control.WebhookPatch{URL: value("https://c.example")})},
		{"the same address", false, patch(control.WebhookPatch{URL: value("https://c.example")})},
		{"a test", false, func() error { _, err := h.TestWebhook(ctx(), c, made.ID); return err }},
		{"a rotation", true, func() error { _, err := h.RotateWebhookSecret(ctx(), c, made.ID, 0, nil); return err }},
		{"disabling", true, patch(control.WebhookPatch{State: value("disabled")})},
		{"an If-Match that does not match", false, func() error {
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
		var want []string
		if tc.changes {
			want = []string{made.ID}
		}
		if !slices.Equal(recalled, want) {
			t.Errorf("%s: got recalled endpoints %q; want %q", tc.what, recalled, want)
		}
	}
}
