package storetest

import (
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

func (h *harness) backlog(d time.Duration) webhook.Backlog {
	h.Helper()
	b, err := h.DeliveryBacklog(h.Context(), epoch().Add(d))
	if err != nil {
		h.Fatal(err)
	}
	return b
}

// Guarantee: the backlog counts the unfinished deliveries to active endpoints and has the time
// since which the oldest is due. Leased deliveries are not due.
func testBacklog(h *harness) {
	a := h.insertAccount("a")
	same(h, "nothing", h.backlog(0), webhook.Backlog{})
	first, second := h.insertWebhook(a, event.KeyCreated), h.insertWebhook(a, event.KeyCreated)
	h.append(h.at(a, event.KeyCreated, epoch()), h.at(a, event.KeyCreated, epoch().Add(time.Minute)))
	same(h, "none due", h.backlog(-time.Second), webhook.Backlog{Waiting: 4})
	same(h, "two due", h.backlog(time.Second), webhook.Backlog{Waiting: 4, Due: epoch()})
	jobs := h.claim(after(time.Second))
	same(h, "two are leased", []any{len(jobs), h.backlog(time.Second)}, []any{2, webhook.Backlog{Waiting: 4}})
	h.finish(0, result(jobs[0], webhook.Delivered, 200, 2*time.Second))
	h.release(jobs[1].Lease)
	same(h, "one delivered, one released", h.backlog(time.Hour), webhook.Backlog{Waiting: 3, Due: epoch()})
	first.State, second.State = webhook.Disabled, webhook.Disabled
	h.updateWebhook(first)
	h.updateWebhook(second)
	same(h, "disabled", h.backlog(time.Hour), webhook.Backlog{})
}

// Guarantee: a pause that begins with a failure is stored with its endpoint, and a sender that finds due deliveries
// learns of it. The deliveries that it postpones are not due, and show no earlier attempt than its end; others
// are. A success ends it: what it postponed is due from then on, not from before.
func testPausedEndpoint(h *harness) {
	a := h.insertAccount("a")
	w := h.insertWebhook(a, event.KeyCreated)
	until := epoch().Add(5 * time.Minute)
	h.append(h.at(a, event.KeyCreated, epoch()))
	failed := result(h.claim(after(0))[0], webhook.Failed, 500, time.Second)
	failed.PausedUntil = until
	h.finish(0, failed)
	again := h.at(a, event.KeyCreated, epoch().Add(2*time.Second))
	h.append(again)
	paused := func(d time.Duration) time.Time { return h.webhook(a.ID, w.ID).PausedAt(epoch().Add(d)) }
	same(h, "paused", []time.Time{paused(2 * time.Second), paused(5 * time.Minute)}, []time.Time{until, {}})
	found, _, err := h.AllDue(h.Context(), "", 10, epoch().Add(2*time.Second))
	if err != nil || len(found) != 1 || !found[0].PausedUntil.Equal(until) {
		h.Errorf("got %+v, %v; want one endpoint, paused until %v", found, err, until)
	}
	postponed := h.deliveries(a.ID, control.DeliveryFilter{State: webhook.Pending})[0]
	same(h, "next attempt in the list", postponed.NextAttemptAt, until)
	same(h, "next attempt", h.delivery(a.ID, postponed.ID).NextAttemptAt, until)
	same(h, "not due", h.backlog(time.Minute), webhook.Backlog{Waiting: 1})
	same(h, "the pause is over", h.backlog(6*time.Minute), webhook.Backlog{Waiting: 1, Due: until})
	byHand := h.deliverAgain(again, w, webhook.ByHand, epoch().Add(3*time.Second))
	same(h, "by hand", h.delivery(a.ID, byHand.ID).NextAttemptAt, epoch().Add(3*time.Second))

	claim := after(time.Minute)
	claim.Wants = []sender.Want{{WebhookID: w.ID, Limit: 10, SkipNew: true}}
	jobs := h.claim(claim)
	if len(jobs) != 1 {
		h.Fatalf("got %d jobs, want the one that was requested by hand", len(jobs))
	}
	h.finish(0, result(jobs[0], webhook.RetryScheduled, 500, time.Minute))
	same(h, "a retry is due", h.backlog(3*time.Minute), webhook.Backlog{Waiting: 2, Due: epoch().Add(2 * time.Minute)})
	h.finish(0, result(h.claim(sender.Claim{Now: claim.Now.Add(time.Minute), Until: claim.Until, Wants: claim.Wants})[0], webhook.Delivered, 200, 2*time.Minute))
	same(h, "a success ends it", []time.Time{paused(2 * time.Minute), h.webhook(a.ID, w.ID).PausedUntil}, []time.Time{{}, epoch().Add(2 * time.Minute)})
	same(h, "due since the success", h.backlog(3*time.Minute), webhook.Backlog{Waiting: 1, Due: epoch().Add(2 * time.Minute)})
}
