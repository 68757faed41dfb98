package storetest

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
)

func newWebhook(a *account.Account, types ...event.Type) *webhook.Webhook {
	return &webhook.Webhook{ID: id.New(id.Webhook), AccountID: a.ID, URL: "https://receiver.example/hook", SharesURL: true, Events: types, State: webhook.Active,
		Secret: []byte("sealed"), SecretSince: epoch(), CreatedAt: epoch(), Version: 1}
}

// insertWebhook inserts an active endpoint for the event types.
func (h *harness) insertWebhook(a *account.Account, types ...event.Type) *webhook.Webhook {
	h.Helper()
	w := newWebhook(a, types...)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertWebhook(ctx, w) })
	return w
}

func (h *harness) updateWebhook(w *webhook.Webhook) {
	h.Helper()
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateWebhook(ctx, w) })
}

func (h *harness) webhook(accountID, webhookID string) *webhook.Webhook {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (*webhook.Webhook, error) {
		return tx.Webhook(ctx, accountID, webhookID)
	})
}

// at returns an event of the type at the given time.
func (h *harness) at(a *account.Account, t event.Type, when time.Time) *event.Event {
	h.Helper()
	e, err := event.New(a.ID, t, when, json.RawMessage(`{"ü": "<>&"}`))
	if err != nil {
		h.Fatal(err)
	}
	return &e
}

// append appends events, some in each transaction.
func (h *harness) append(events ...*event.Event) {
	h.Helper()
	for some := range slices.Chunk(events, 100) {
		h.update(func(ctx context.Context, tx control.Tx) error {
			for _, e := range some {
				if err := tx.AppendEvent(ctx, e); err != nil {
					return err
				}
			}
			return nil
		})
	}
	h.fanOut(1000)
}

// Guarantee: an endpoint is stored with all fields, and an update writes all except the fixed ones.
func testWebhookRoundTrip(h *harness) {
	a := h.insertAccount("a")
	draw := func(t *rapid.T, w *webhook.Webhook) {
		w.URL = text().Draw(t, "url")
		w.Events = rapid.SliceOfNDistinct(rapid.SampledFrom(webhook.EventTypes()), 1, len(webhook.EventTypes()), rapid.ID[event.Type]).Draw(t, "events")
		w.State = rapid.SampledFrom([]webhook.State{webhook.Active, webhook.Disabled}).Draw(t, "state")
		w.DisabledReason = text().Draw(t, "reason")
		w.Secret = rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "secret")
		w.OldSecret = maybe(rapid.SliceOfN(rapid.Byte(), 1, 100)).Draw(t, "old_secret")
		w.SecretSince, w.OldUntil = moment().Draw(t, "secret_since"), maybe(moment()).Draw(t, "old_until")
		w.FailingSince = maybe(moment()).Draw(t, "failing_since")
		w.PausedUntil = maybe(moment()).Draw(t, "paused_until")
		w.Version = rapid.Int64Range(1, 1<<62).Draw(t, "version")
	}
	rapid.Check(h, func(t *rapid.T) {
		w := newWebhook(a)
		w.CreatedAt = moment().Draw(t, "created_at")
		draw(t, w)
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertWebhook(ctx, w) })
		same(t, "inserted", h.webhook(a.ID, w.ID), w)
		created := w.CreatedAt
		draw(t, w)
		w.CreatedAt = created.Add(time.Hour)
		h.updateWebhook(w)
		w.CreatedAt = created
		same(t, "updated", h.webhook(a.ID, w.ID), w)
	})
}

// Guarantee: an endpoint that does not exist or belongs to another account cannot be found or changed.
func testWebhookRules(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	w := h.insertWebhook(a, event.KeyCreated)
	h.rejected(fault.Conflict, func(ctx context.Context, tx control.Tx) error { return tx.InsertWebhook(ctx, w) })
	stolen := *w
	stolen.AccountID, stolen.URL = b.ID, "https://stolen.example"
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.UpdateWebhook(ctx, &stolen) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeleteWebhook(ctx, b.ID, w.ID) })
	missing(h, "another account's", func(ctx context.Context, tx control.ReadTx) (*webhook.Webhook, error) {
		return tx.Webhook(ctx, b.ID, w.ID)
	})
	empty(h, "Webhooks", func(ctx context.Context, tx control.ReadTx) ([]webhook.Webhook, error) {
		return tx.Webhooks(ctx, b.ID, control.Page{Limit: 10})
	})
	same(h, "untouched", h.webhook(a.ID, w.ID), w)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteWebhook(ctx, a.ID, w.ID) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeleteWebhook(ctx, a.ID, w.ID) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.UpdateWebhook(ctx, w) })

	// A URL is unique in an account, but for endpoints that share theirs.
	at := func(owner *account.Account, shares bool) *webhook.Webhook {
		w := newWebhook(owner, event.KeyCreated)
		w.URL, w.SharesURL = "https://receiver.example/sole", shares
		return w
	}
	first := at(a, false)
	for _, w := range []*webhook.Webhook{first, at(b, false), at(a, true)} {
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertWebhook(ctx, w) })
	}
	h.conflict("url", func(ctx context.Context, tx control.Tx) error { return tx.InsertWebhook(ctx, at(a, false)) })
	for url, want := range map[string]bool{first.URL: true, "https://receiver.example/free": false} {
		found := get(h, func(ctx context.Context, tx control.ReadTx) (string, error) {
			return tx.WebhookAt(ctx, a.ID, url, first.ID)
		})
		if (found != "") != want || found == first.ID {
			h.Errorf("got %q at %s; want another endpoint of the account: %v", found, url, want)
		}
	}
	missing(h, "a deleted one", func(ctx context.Context, tx control.ReadTx) (*webhook.Webhook, error) {
		return tx.Webhook(ctx, a.ID, w.ID)
	})
}

// Guarantee: an event creates a delivery for each active endpoint of its account that subscribes
// to its type, in the same transaction if there are few. An event of type webhook.test creates no delivery and
// is not listed.
func testFanOut(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	both := h.insertWebhook(a, event.KeyRevoked, event.KeyCreated)
	one := h.insertWebhook(a, event.KeyCreated)
	h.insertWebhook(b, event.KeyCreated)
	off := newWebhook(a, event.KeyCreated)
	off.State, off.DisabledReason = webhook.Disabled, "x"
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertWebhook(ctx, off) })
	created, revoked, test := h.at(a, event.KeyCreated, epoch()), h.at(a, event.KeyRevoked, epoch().Add(time.Second)), h.at(a, webhook.Test, epoch())
	h.append(created, revoked, test, h.at(a, event.KeyExpired, epoch()))
	h.rejected(fault.Internal, func(ctx context.Context, tx control.Tx) error {
		if err := tx.AppendEvent(ctx, h.at(a, event.KeyCreated, epoch())); err != nil {
			return err
		}
		return context.DeadlineExceeded
	})
	got := map[string]webhook.Delivery{}
	list := h.deliveries(a.ID, control.DeliveryFilter{})
	for _, d := range list {
		got[d.WebhookID+" "+d.EventID] = d
	}
	for _, want := range []struct {
		w *webhook.Webhook
		e *event.Event
	}{{both, created}, {one, created}, {both, revoked}} {
		d := got[want.w.ID+" "+want.e.ID]
		same(h, "delivery", d, webhook.Delivery{ID: d.ID, AccountID: a.ID, WebhookID: want.w.ID, EventID: want.e.ID, EventType: want.e.Type,
			State: webhook.Pending, Trigger: webhook.ByEvent, NextAttemptAt: want.e.CreatedAt, CreatedAt: want.e.CreatedAt})
		same(h, "payload", string(h.delivery(a.ID, d.ID).Payload), string(want.e.Payload))
	}
	same(h, "how many", len(list), 3)
	same(h, "the other account's", len(h.deliveries(b.ID, control.DeliveryFilter{})), 0)
	missing(h, "a test", func(ctx context.Context, tx control.ReadTx) (*event.Event, error) {
		return tx.Event(ctx, a.ID, test.ID)
	})
	missing(h, "another account's event", func(ctx context.Context, tx control.ReadTx) (*event.Event, error) {
		return tx.Event(ctx, b.ID, created.ID)
	})
	same(h, "event", get(h, func(ctx context.Context, tx control.ReadTx) (*event.Event, error) {
		return tx.Event(ctx, a.ID, created.ID)
	}), created)
	for _, e := range h.events(a.ID) {
		if e.ID == test.ID {
			h.Error("the test event is listed")
		}
	}
}

// Guarantee: AppendEvents writes all events with their deliveries, or none, if these are few.
func testAppendEvents(h *harness) {
	a := h.insertAccount("a")
	h.insertWebhook(a, event.RateLimitExceeded)
	first, second := h.at(a, event.RateLimitExceeded, epoch()), h.at(a, event.GatewayUpstreamError, epoch())
	if err := h.AppendEvents(h.Context(), []event.Event{*first, *second}); err != nil {
		h.Fatal(err)
	}
	again := []event.Event{*h.at(a, event.RateLimitExceeded, epoch()), *first}
	if err := h.AppendEvents(h.Context(), again); fault.CodeOf(err) != fault.Conflict {
		h.Fatalf("appending an existing event returned %v, want a conflict", err)
	}
	same(h, "events", len(h.events(a.ID)), 2)
	same(h, "deliveries", len(h.deliveries(a.ID, control.DeliveryFilter{})), 1)
}

// Guarantee: for every filter, the list has exactly the matching events, page by page: in the reverse
// order of appending, whatever their times are; with a bound of time, the newest first. A page after an
// event that is not there any more has the older events.
func testEventList(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	types := webhook.EventTypes()
	var all []event.Event
	rapid.Check(h, func(t *rapid.T) { // to generate many different events
		when := epoch().Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "when")) * rapid.SampledFrom([]time.Duration{time.Microsecond, time.Hour}).Draw(t, "unit"))
		e := h.at(rapid.SampledFrom([]*account.Account{a, b}).Draw(t, "account"), rapid.SampledFrom(types).Draw(t, "type"), when)
		h.append(e)
		if e.AccountID == a.ID {
			all = append(all, *e)
		}
	})
	slices.Reverse(all)
	byTime := slices.Clone(all)
	newestFirst(byTime, func(e *event.Event) string { return e.ID })
	rapid.Check(h, func(t *rapid.T) {
		f := control.EventFilter{Type: maybe(rapid.SampledFrom(types)).Draw(t, "type"), Since: bound().Draw(t, "since"), Until: bound().Draw(t, "until")}
		var want []event.Event
		list := all
		if f.HasTime() {
			list = byTime
		}
		for _, e := range list {
			if (f.Type == "" || e.Type == f.Type) && within(e.CreatedAt, f.Since, f.Until) {
				want = append(want, e)
			}
		}
		same(t, "events", pages(t, h, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]event.Event, error) {
			return tx.Events(ctx, a.ID, f, p)
		}, func(e *event.Event) string { return e.ID }), want)
	})
	gone := id.NewAt(id.Event, epoch())
	older := slices.DeleteFunc(byTime, func(e event.Event) bool { return e.ID >= gone })
	same(h, "events after one that is gone", get(h, func(ctx context.Context, tx control.ReadTx) ([]event.Event, error) {
		return tx.Events(ctx, a.ID, control.EventFilter{}, control.Page{Limit: len(all) + 1, After: gone})
	}), older)
}

// bound draws a bound of a filter by time.
func bound() *rapid.Generator[time.Time] {
	return maybe(rapid.Custom(func(t *rapid.T) time.Time {
		return epoch().Add(time.Duration(rapid.IntRange(-4, 4).Draw(t, "bound")) * rapid.SampledFrom([]time.Duration{time.Microsecond, time.Hour}).Draw(t, "unit"))
	}))
}

func within(t, since, until time.Time) bool {
	return (since.IsZero() || !t.Before(since)) && (until.IsZero() || t.Before(until))
}

func newestFirst[T any](list []T, name func(*T) string) {
	slices.SortFunc(list, func(x, y T) int {
		if name(&x) > name(&y) {
			return -1
		}
		return 1
	})
}

// pages reads a whole list in pages of a random length.
func pages[T any](t *rapid.T, h *harness, list func(ctx context.Context, tx control.ReadTx, p control.Page) ([]T, error), name func(*T) string) []T {
	limit := rapid.IntRange(1, 30).Draw(t, "limit")
	var all []T
	ends := map[string]bool{}
	for after := ""; ; {
		page := get(h, func(ctx context.Context, tx control.ReadTx) ([]T, error) {
			return list(ctx, tx, control.Page{Limit: limit, After: after})
		})
		all = append(all, page...)
		if len(page) > limit {
			t.Fatalf("a page of %d has %d records", limit, len(page))
		}
		if len(page) < limit {
			return all
		}
		if after = name(&page[len(page)-1]); ends[after] {
			t.Fatalf("the pages do not end")
		}
		ends[after] = true
	}
}
