package storetest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

func (h *harness) deliveries(accountID string, f control.DeliveryFilter) []webhook.Delivery {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) ([]webhook.Delivery, error) {
		return tx.Deliveries(ctx, accountID, f, control.Page{Limit: 1000})
	})
}

func (h *harness) delivery(accountID, deliveryID string) *webhook.Delivery {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (*webhook.Delivery, error) {
		return tx.Delivery(ctx, accountID, deliveryID)
	})
}

// deliverAgain inserts a delivery of e to w at the given time.
func (h *harness) deliverAgain(e *event.Event, w *webhook.Webhook, by webhook.Trigger, when time.Time) *webhook.Delivery {
	h.Helper()
	d := &webhook.Delivery{ID: id.NewAt(id.Delivery, when), AccountID: w.AccountID, WebhookID: w.ID, EventID: e.ID, EventType: e.Type,
		State: webhook.Pending, Trigger: by, NextAttemptAt: when, CreatedAt: when}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertDelivery(ctx, d) })
	return d
}

// attempt records an attempt of d with the given status that ends at the given time, and
// returns the delivery after it.
func (h *harness) attempt(d *webhook.Delivery, state webhook.DeliveryState, status int, end time.Time) *webhook.Delivery {
	h.Helper()
	made := webhook.Attempt{StartedAt: end.Add(-time.Second), Duration: time.Second, Status: status, Response: []byte("ok")}
	if status == 0 {
		made.Error, made.Response = "connection refused", nil
	}
	var others []sender.Lease
	for _, job := range h.claim(sender.Claim{Now: end.Add(1000 * time.Hour), Until: end.Add(1001 * time.Hour)}) {
		if job.DeliveryID != d.ID {
			others = append(others, job.Lease)
			continue
		}
		made.Number = job.Attempt
		r := sender.Result{Lease: job.Lease, Attempt: made, State: state}
		if state == webhook.RetryScheduled {
			r.NextAttemptAt = end.Add(time.Minute)
		}
		h.finish(0, r)
	}
	h.release(others...)
	return h.delivery(d.AccountID, d.ID)
}

// Guarantee: for every combination of filters, the list has exactly the matching deliveries,
// newest first and page by page, with all attempts.
func testDeliveryList(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	types := append(webhook.EventTypes(), webhook.Test)
	states := []webhook.DeliveryState{webhook.Pending, webhook.RetryScheduled, webhook.Delivered, webhook.Failed}
	endpoints := []*webhook.Webhook{h.insertWebhook(a), h.insertWebhook(a), h.insertWebhook(b)}
	hooks := []string{id.New(id.Webhook)}
	for _, w := range endpoints {
		hooks = append(hooks, w.ID)
	}
	var all []webhook.Delivery
	last := map[*account.Account]*event.Event{}
	for i := range 120 {
		w := endpoints[i%3]
		unit := time.Microsecond
		if i%2 == 0 {
			unit = time.Hour
		}
		when := epoch().Add(time.Duration(i%7-3) * unit)
		account := a
		if w.AccountID == b.ID {
			account = b
		}
		e := last[account]
		if i%4 == 0 || e == nil { // the others are delivered again
			e = h.at(account, types[i%len(types)], when)
			h.append(e)
			last[account] = e
		}
		d := h.deliverAgain(e, w, webhook.ByHand, when)
		switch state := states[i/8%4]; state {
		case webhook.Pending:
		case webhook.Delivered:
			h.attempt(d, webhook.RetryScheduled, 500, when.Add(time.Second))
			h.attempt(d, state, 200, when.Add(time.Minute))
		default:
			h.attempt(d, state, 0, when.Add(time.Second))
		}
		if account == a {
			stored := h.delivery(a.ID, d.ID)
			stored.Payload = nil
			all = append(all, *stored)
		}
	}
	newestFirst(all, func(d *webhook.Delivery) string { return d.ID })
	of := []string{all[0].EventID, all[len(all)/2].EventID, all[len(all)-1].EventID, last[b].ID, id.New(id.Event)}
	rapid.Check(h, func(t *rapid.T) {
		f := control.DeliveryFilter{
			EventID: maybe(rapid.SampledFrom(of)).Draw(t, "event"), WebhookID: maybe(rapid.SampledFrom(hooks)).Draw(t, "webhook"), State: maybe(rapid.SampledFrom(states)).Draw(t, "state"),
			EventType: maybe(rapid.SampledFrom(types)).Draw(t, "type"), Since: bound().Draw(t, "since"), Until: bound().Draw(t, "until"),
		}
		var want []webhook.Delivery
		for _, d := range all {
			if (f.EventID == "" || d.EventID == f.EventID) && (f.WebhookID == "" || d.WebhookID == f.WebhookID) && (f.State == "" || d.State == f.State) &&
				(f.EventType == "" || d.EventType == f.EventType) && within(d.CreatedAt, f.Since, f.Until) {
				want = append(want, d)
			}
		}
		same(t, "deliveries", pages(t, h, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]webhook.Delivery, error) {
			return tx.Deliveries(ctx, a.ID, f, p)
		}, func(d *webhook.Delivery) string { return d.ID }), want)
	})
	missing(h, "another account's", func(ctx context.Context, tx control.ReadTx) (*webhook.Delivery, error) {
		return tx.Delivery(ctx, b.ID, all[0].ID)
	})
	empty(h, "an unknown state", func(ctx context.Context, tx control.ReadTx) ([]webhook.Delivery, error) {
		return tx.Deliveries(ctx, a.ID, control.DeliveryFilter{State: "lost"}, control.Page{Limit: 10})
	})
}

// Guarantee: deliveries that failed at or after a time are found for recovery until their event
// is redelivered to their endpoint. A redelivery that fails is found again.
func testRecover(h *harness) {
	a := h.insertAccount("a")
	w, other := h.insertWebhook(a), h.insertWebhook(a)
	found := func(since time.Time, limit int) []string {
		h.Helper()
		return names(get(h, func(ctx context.Context, tx control.ReadTx) ([]webhook.Delivery, error) {
			return tx.DeliveriesToRecover(ctx, w.ID, since, limit)
		}), func(d *webhook.Delivery) string { return d.ID })
	}
	var failed []*webhook.Delivery
	var events []*event.Event
	for i := range 4 {
		e := h.at(a, event.KeyCreated, epoch())
		h.append(e)
		failed = append(failed, h.attempt(h.deliverAgain(e, w, webhook.ByEvent, epoch()), webhook.Failed, 500, epoch().Add(time.Duration(i)*time.Hour)))
		h.attempt(h.deliverAgain(e, other, webhook.ByEvent, epoch()), webhook.Failed, 500, epoch().Add(time.Hour))
		events = append(events, e)
	}
	h.attempt(h.deliverAgain(events[0], w, webhook.ByHand, epoch()), webhook.Delivered, 200, epoch().Add(9*time.Hour))
	same(h, "all", found(epoch(), 10), []string{failed[1].ID, failed[2].ID, failed[3].ID})
	same(h, "since", found(epoch().Add(2*time.Hour), 10), []string{failed[2].ID, failed[3].ID})
	same(h, "later", found(epoch().Add(3*time.Hour+time.Microsecond), 10), []string(nil))
	same(h, "at most", found(epoch(), 2), []string{failed[1].ID, failed[2].ID})
	again := h.deliverAgain(events[2], w, webhook.ByRecover, epoch())
	same(h, "pending", found(epoch(), 10), []string{failed[1].ID, failed[3].ID})
	h.attempt(again, webhook.Failed, 500, epoch().Add(10*time.Hour))
	same(h, "failed again", found(epoch(), 10), []string{failed[1].ID, failed[3].ID, again.ID})
}

// oldDeliveries is a store with deliveries before and after the bounds of a trim.
type oldDeliveries struct {
	account    *account.Account
	webhook    *webhook.Webhook
	bound      time.Time // trims failed deliveries; delivered ones are trimmed an hour earlier
	events     map[string]*event.Event
	deliveries map[string]*webhook.Delivery // by name; deliveries to trim have a name with "old"

	test   *event.Event      // of a test delivery to trim
	shared *event.Event      // of a delivery to trim and of last
	last   *webhook.Delivery // not to trim
}

func newOldDeliveries(h *harness) *oldDeliveries {
	a := h.insertAccount("a")
	o := &oldDeliveries{account: a, webhook: h.insertWebhook(a), bound: epoch(), events: map[string]*event.Event{}, deliveries: map[string]*webhook.Delivery{}}
	add := func(name string, state webhook.DeliveryState, end time.Time) {
		e := h.at(a, event.KeyCreated, epoch().Add(-100*24*time.Hour))
		h.append(e)
		d := h.deliverAgain(e, o.webhook, webhook.ByEvent, e.CreatedAt)
		if state != webhook.Pending {
			h.attempt(d, state, 500, end)
		}
		o.events[name], o.deliveries[name] = e, d
	}
	before := o.bound.Add(-time.Microsecond)
	for i := range 3 {
		add(fmt.Sprintf("old delivered %d", i), webhook.Delivered, before.Add(-time.Hour))
		add(fmt.Sprintf("old failed %d", i), webhook.Failed, before)
	}
	add("young delivered", webhook.Delivered, o.bound.Add(-time.Hour))
	add("young failed", webhook.Failed, o.bound)
	add("waiting", webhook.Pending, time.Time{})
	add("to retry", webhook.RetryScheduled, o.bound.Add(-1000*time.Hour))
	o.test, o.shared = h.at(a, webhook.Test, epoch()), h.at(a, event.KeyRevoked, epoch())
	h.append(o.test, o.shared)
	h.attempt(h.deliverAgain(o.test, o.webhook, webhook.ByTest, epoch()), webhook.Failed, 500, before)
	h.attempt(h.deliverAgain(o.shared, o.webhook, webhook.ByEvent, epoch()), webhook.Failed, 500, before)
	o.last = h.attempt(h.deliverAgain(o.shared, o.webhook, webhook.ByHand, epoch()), webhook.Failed, 500, o.bound)
	return o
}

// Guarantee: retention of delivered and of failed deliveries is separate. Waiting deliveries are
// never removed, nor is the payload of an event that a delivery needs.
func testTrimDeliveries(h *harness) {
	o := newOldDeliveries(h)
	h.run("a trimmed event is not listed, and its deliveries keep the payload", func(h *harness) {
		for more := true; more; {
			h.update(func(ctx context.Context, tx control.Tx) (err error) {
				more, err = tx.Trim(ctx, time.Unix(0, 0), time.Unix(0, 0), epoch().Add(time.Hour), 0, 3)
				return err
			})
		}
		same(h, "listed", len(h.events(o.account.ID)), 0)
		missing(h, "a trimmed event", func(ctx context.Context, tx control.ReadTx) (*event.Event, error) {
			return tx.Event(ctx, o.account.ID, o.shared.ID)
		})
		for name, d := range o.deliveries {
			same(h, name, string(h.delivery(o.account.ID, d.ID).Payload), string(o.events[name].Payload))
		}
	})
	h.run("deliveries are trimmed in batches", func(h *harness) {
		rounds := 0
		for more := true; more; rounds++ {
			h.update(func(ctx context.Context, tx control.Tx) (err error) {
				more, err = tx.TrimDeliveries(ctx, o.bound.Add(-time.Hour), o.bound, 2)
				return err
			})
		}
		same(h, "rounds of two", rounds, 3)
	})
	h.run("only old deliveries are removed, with their events", func(h *harness) { o.checkRemoved(h) })
	h.run("a shared event is kept for the last delivery", func(h *harness) {
		same(h, "payload", string(h.delivery(o.account.ID, o.last.ID).Payload), string(o.shared.Payload))
	})
	h.run("the event of a removed test delivery is removed", func(h *harness) {
		if err := h.AppendEvents(h.Context(), []event.Event{*o.test}); err != nil {
			h.Errorf("the event still exists: %v", err)
		}
	})
	h.run("waiting deliveries can be claimed", func(h *harness) {
		if jobs := h.claim(sender.Claim{Now: o.bound.Add(time.Hour), Until: o.bound.Add(2 * time.Hour)}); len(jobs) != 2 {
			h.Errorf("%d deliveries are waiting, want 2", len(jobs))
		}
	})
}

// checkRemoved checks that the old deliveries and their events were removed, and no others.
func (o *oldDeliveries) checkRemoved(h *harness) {
	h.Helper()
	left := map[string]bool{}
	for _, d := range h.deliveries(o.account.ID, control.DeliveryFilter{}) {
		left[d.ID] = true
	}
	for name, d := range o.deliveries {
		// An event that was removed can be inserted again.
		err := h.AppendEvents(h.Context(), []event.Event{*o.events[name]})
		if strings.HasPrefix(name, "old") {
			if left[d.ID] {
				h.Errorf("%s: the delivery still exists", name)
			}
			if fault.CodeOf(err) == fault.Conflict {
				h.Errorf("%s: its event still exists", name)
			}
			continue
		}
		if !left[d.ID] {
			h.Errorf("%s: the delivery was removed", name)
		}
		if fault.CodeOf(err) != fault.Conflict {
			h.Errorf("%s: its event was removed (inserting it again returned %v)", name, err)
		}
	}
}
