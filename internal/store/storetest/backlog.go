package storetest

import (
	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/webhook"
)

// Guarantee: the backlog counts the unfinished deliveries to active endpoints and has the time
// since which the oldest is due. Leased deliveries are not due.
func testBacklog(h *harness) {
	backlog := func(d time.Duration) webhook.Backlog {
		h.Helper()
		b, err := h.DeliveryBacklog(h.Context(), epoch().Add(d))
		if err != nil {
			h.Fatal(err)
		}
		return b
	}
	a := h.insertAccount("a")
	same(h, "nothing", backlog(0), webhook.Backlog{})
	first, second := h.insertWebhook(a, event.KeyCreated), h.insertWebhook(a, event.KeyCreated)
	h.append(h.at(a, event.KeyCreated, epoch()), h.at(a, event.KeyCreated, epoch().Add(time.Minute)))
	same(h, "none due", backlog(-time.Second), webhook.Backlog{Waiting: 4})
	same(h, "two due", backlog(time.Second), webhook.Backlog{Waiting: 4, Due: epoch()})
	jobs := h.claim(after(time.Second))
	same(h, "two are leased", []any{len(jobs), backlog(time.Second)}, []any{2, webhook.Backlog{Waiting: 4}})
	h.finish(0, result(jobs[0], webhook.Delivered, 200, 2*time.Second))
	h.release(jobs[1].Lease)
	same(h, "one delivered, one released", backlog(time.Hour), webhook.Backlog{Waiting: 3, Due: epoch()})
	first.State, second.State = webhook.Disabled, webhook.Disabled
	h.updateWebhook(first)
	h.updateWebhook(second)
	same(h, "disabled", backlog(time.Hour), webhook.Backlog{})
}
