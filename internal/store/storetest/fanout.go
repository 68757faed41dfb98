package storetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook"
)

// fanOut fans out all events, some rows at a time, and returns the numbers of rows.
func (h *harness) fanOut(limit int) (pieces []int) {
	h.Helper()
	after := ""
	for {
		accountID, written, err := h.FanOut(h.Context(), after, epoch(), limit)
		if err != nil {
			h.Fatalf("FanOut: %v", err)
		}
		if accountID == "" && after == "" {
			return pieces
		}
		if written > limit {
			h.Fatalf("FanOut wrote %d rows, want at most %d", written, limit)
		}
		if written > 0 {
			pieces = append(pieces, written)
			continue // with the same account
		}
		after = accountID
	}
}

// insertWebhooks inserts n active endpoints for the event types.
func (h *harness) insertWebhooks(n int, a *account.Account, types ...event.Type) []*webhook.Webhook {
	h.Helper()
	list := make([]*webhook.Webhook, n)
	for i := range list {
		list[i] = newWebhook(a, types...)
	}
	h.update(func(ctx context.Context, tx control.Tx) error {
		for _, w := range list {
			if err := tx.InsertWebhook(ctx, w); err != nil {
				return err
			}
		}
		return nil
	})
	return list
}

// fanOutModel is a model of what the store must have written: for each event, the endpoints that were
// subscribed when it was raised.
type fanOutModel struct {
	h       *harness
	account *account.Account
	hooks   []*webhook.Webhook
	want    map[string][]string // by event, sorted
}

func (m *fanOutModel) raise(t *rapid.T) {
	of := rapid.SampledFrom([]event.Type{event.KeyCreated, event.KeyRevoked}).Draw(t, "type")
	e := m.h.at(m.account, of, epoch())
	m.h.update(func(ctx context.Context, tx control.Tx) error { return tx.AppendEvent(ctx, e) })
	for _, w := range m.hooks {
		if w.State == webhook.Active && slices.Contains(w.Events, of) {
			m.want[e.ID] = append(m.want[e.ID], w.ID)
		}
	}
	slices.Sort(m.want[e.ID])
}

func (m *fanOutModel) create(*rapid.T) {
	m.hooks = append(m.hooks, m.h.insertWebhook(m.account, event.KeyCreated))
}

func (m *fanOutModel) change(t *rapid.T) {
	w := rapid.SampledFrom(m.hooks).Draw(t, "endpoint")
	w.Events = rapid.SampledFrom([][]event.Type{{event.KeyCreated}, {event.KeyRevoked}, {event.KeyCreated, event.KeyRevoked}}).Draw(t, "events")
	w.State = rapid.SampledFrom([]webhook.State{webhook.Active, webhook.Disabled}).Draw(t, "state")
	w.Version++
	m.h.updateWebhook(w)
}

func (m *fanOutModel) remove(t *rapid.T) {
	i := rapid.IntRange(0, len(m.hooks)-1).Draw(t, "endpoint")
	gone := m.hooks[i]
	m.hooks = slices.Delete(m.hooks, i, i+1)
	m.h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteWebhook(ctx, m.account.ID, gone.ID) })
}

func (m *fanOutModel) piece(t *rapid.T) {
	if _, _, err := m.h.FanOut(m.h.Context(), "", epoch(), rapid.IntRange(1, 30).Draw(t, "limit")); err != nil {
		t.Fatal(err)
	}
}

// check fans out the rest, and compares.
func (m *fanOutModel) check(t *rapid.T) {
	m.h.fanOut(60)
	got := map[string][]string{}
	for _, d := range m.h.deliveries(m.account.ID, control.DeliveryFilter{}) {
		got[d.EventID] = append(got[d.EventID], d.WebhookID)
	}
	for eventID, want := range m.want {
		if slices.Sort(got[eventID]); !slices.Equal(got[eventID], want) {
			t.Fatalf("an event has %d deliveries, want %d: one for each endpoint that was subscribed when it was raised", len(got[eventID]), len(want))
		}
	}
}

// Guarantee: an event with many subscribed endpoints gets one delivery for each that was subscribed when it was raised,
// and for no other, however endpoints change before it is fanned out.
func testFanOutModel(h *harness) {
	rapid.Check(h, func(t *rapid.T) {
		m := &fanOutModel{h: h, account: h.insertAccount(newWebhook(&account.Account{}).ID), want: map[string][]string{}}
		m.hooks = h.insertWebhooks(rows.DirectDeliveries+3, m.account, event.KeyCreated, event.KeyRevoked)
		steps := []func(*rapid.T){m.raise, m.raise, m.create, m.change, m.change, m.remove, m.piece}
		for range rapid.IntRange(3, 15).Draw(t, "steps") {
			if len(m.hooks) < 5 {
				m.create(t)
			}
			rapid.SampledFrom(steps).Draw(t, "step")(t)
		}
		m.check(t)
	})
}

// Guarantee: several processes that fan out the same events write each delivery once.
func testFanOutAtOnce(h *harness) {
	a := h.insertAccount("a")
	h.insertWebhooks(50, a, event.KeyCreated)
	const events = 12
	h.update(func(ctx context.Context, tx control.Tx) error {
		for range events {
			if err := tx.AppendEvent(ctx, h.at(a, event.KeyCreated, epoch())); err != nil {
				return err
			}
		}
		return nil
	})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				accountID, written, err := h.FanOut(h.Context(), "", epoch(), 20)
				if err != nil {
					h.Error(err)
				}
				if err != nil || accountID == "" || written == 0 { // the others have the rest
					return
				}
			}
		})
	}
	all.Wait()
	h.fanOut(20)
	got := map[string]int{}
	for _, d := range h.deliveries(a.ID, control.DeliveryFilter{}) {
		got[d.EventID+d.WebhookID]++
	}
	same(h, "deliveries", len(got), events*50)
	for _, n := range got {
		same(h, "deliveries of an event to an endpoint", n, 1)
	}
}

// Guarantee: a transaction fans out events of one account, and the next transaction events of the next account.
// A created delivery is due at once, and is not older than its event. Removed events and endpoints do not stop
// the fan-out.
func testFanOutTurns(h *harness) {
	first, second := h.insertAccount("a"), h.insertAccount("b")
	if second.ID < first.ID {
		first, second = second, first
	}
	for _, a := range []*account.Account{first, second} {
		h.insertWebhooks(30, a, event.KeyCreated)
		h.update(func(ctx context.Context, tx control.Tx) error {
			return tx.AppendEvent(ctx, h.at(a, event.KeyCreated, epoch()))
		})
	}
	waiting := func(of string, want map[string]int) {
		h.Helper()
		got, err := h.FanOutBacklog(h.Context())
		same(h, "events to fan out "+of, []any{got, err}, []any{want, error(nil)})
	}
	waiting("before", map[string]int{first.ID: 1, second.ID: 1})
	turn := func(after, want string) {
		h.Helper()
		got, _, err := h.FanOut(h.Context(), after, epoch().Add(-time.Hour), 10)
		if err != nil || got != want {
			h.Errorf("FanOut behind %q returned %q and %v, want %q", after, got, err, want)
		}
	}
	turn("", first.ID)
	turn(first.ID, second.ID)
	turn(second.ID, "")
	list := h.deliveries(first.ID, control.DeliveryFilter{})
	same(h, "deliveries", len(list), 10)
	same(h, "created at", list[0].CreatedAt, epoch())
	same(h, "due at", list[0].NextAttemptAt, epoch())
	h.update(func(ctx context.Context, tx control.Tx) error {
		_, err := tx.Trim(ctx, epoch(), epoch(), epoch().Add(time.Hour), 0, 100)
		return err
	})
	h.fanOut(10)
	waiting("afterwards", map[string]int{})
}
