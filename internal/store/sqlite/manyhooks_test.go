package sqlite

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// Guarantee: a claim finds the due deliveries of an endpoint however many of another endpoint were
// due before, and takes as many as allowed, in several transactions.
func TestClaimBehindManyDue(t *testing.T) {
	db, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "keygate.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	m := &mail{db: db, begin: begin, account: account.Account{ID: id.New(id.Account), Name: "a", Plan: account.Scale, CreatedAt: begin}}
	m.update(t, func(ctx context.Context, tx control.Tx) error { return tx.InsertAccount(ctx, &m.account) })
	m.register(t, 3)
	for _, tc := range []struct{ due, claimed int }{{fewDue - 2, fewDue - 1}, {2, fewDue + 1}} {
		m.enqueue(t, begin, slices.Repeat(m.hooks[:1], tc.due)...)
		m.enqueue(t, begin.Add(time.Minute), m.hooks[1])
		m.enqueue(t, begin.Add(time.Hour), m.hooks[2])
		now := begin.Add(2 * time.Minute)
		jobs, err := db.ClaimDeliveries(t.Context(), sender.Claim{Now: now, Token: id.New("token"), Until: now.Add(time.Minute), Limit: 5000, EachLimit: 4000})
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]int{}
		for _, j := range jobs {
			of[j.Endpoint.WebhookID]++
		}
		if of[m.hooks[0].ID] != tc.claimed-1 || of[m.hooks[1].ID] == 0 || of[m.hooks[2].ID] != 0 {
			t.Errorf("claimed %d, %d and %d deliveries of the three endpoints; want %d, at least 1, and 0",
				of[m.hooks[0].ID], of[m.hooks[1].ID], of[m.hooks[2].ID], tc.claimed-1)
		}
		if next, err := db.NextDelivery(t.Context(), now); err != nil || !next.Equal(now.Add(time.Minute)) {
			t.Errorf("the next delivery is due at %v (%v), want the end of the leases", next, err)
		}
		if _, err := db.ReleaseAllDeliveries(t.Context()); err != nil {
			t.Fatal(err)
		}
		if next, err := db.NextDelivery(t.Context(), now); err != nil || !next.Equal(begin.Add(time.Hour)) {
			t.Errorf("after the release the next delivery is due at %v (%v), want %v", next, err, begin.Add(time.Hour))
		}
	}
}

// register adds endpoints that subscribe to none of the events of the tests.
func (m *mail) register(tb testing.TB, n int) {
	tb.Helper()
	m.update(tb, func(ctx context.Context, tx control.Tx) error {
		for range n {
			w := webhook.Webhook{ID: id.New(id.Webhook), AccountID: m.account.ID, URL: "https://receiver.example", State: webhook.Active,
				Events: []event.Type{event.KeyRevoked}, Secret: []byte("sealed"), SecretSince: m.begin, CreatedAt: m.begin, Version: 1}
			if err := tx.InsertWebhook(ctx, &w); err != nil {
				return err
			}
			m.hooks = append(m.hooks, w)
		}
		return nil
	})
}

// enqueue adds a delivery to each of the endpoints.
func (m *mail) enqueue(tb testing.TB, due time.Time, hooks ...webhook.Webhook) {
	tb.Helper()
	m.update(tb, func(ctx context.Context, tx control.Tx) error {
		for i := range hooks {
			e, err := event.New(m.account.ID, webhook.Test, m.begin, struct{}{}) // events of this type create no deliveries
			if err != nil {
				return err
			}
			if err := tx.AppendEvent(ctx, &e); err != nil {
				return err
			}
			err = tx.InsertDelivery(ctx, &webhook.Delivery{ID: id.NewAt(id.Delivery, m.begin), AccountID: m.account.ID, WebhookID: hooks[i].ID, EventID: e.ID,
				EventType: e.Type, State: webhook.Pending, Trigger: webhook.ByEvent, NextAttemptAt: due, CreatedAt: m.begin})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkManyEndpoints claims one due delivery while deliveries to 10,000 other endpoints are
// waiting.
func BenchmarkManyEndpoints(b *testing.B) {
	db, err := Open(b.Context(), Config{Path: filepath.Join(b.TempDir(), "keygate.db")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	m := &mail{db: db, begin: now, account: account.Account{ID: id.New(id.Account), Name: "bench", Plan: account.Scale, CreatedAt: now}}
	m.update(b, func(ctx context.Context, tx control.Tx) error { return tx.InsertAccount(ctx, &m.account) })
	const endpoints = 10_000
	m.register(b, endpoints)
	m.enqueue(b, now.Add(time.Hour), m.hooks...)
	b.Run("one due", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			m.enqueue(b, now, m.hooks[endpoints/2])
			b.StartTimer()
			if n := m.sendAt(b, now, 512); n != 1 {
				b.Fatal(n)
			}
		}
	})
	b.Run("event", func(b *testing.B) { // to which none of them subscribes
		for b.Loop() {
			m.update(b, func(ctx context.Context, tx control.Tx) error {
				for range 10 {
					e, err := event.New(m.account.ID, event.KeyExpired, now, struct{}{})
					if err != nil {
						return err
					}
					if err := tx.AppendEvent(ctx, &e); err != nil {
						return err
					}
				}
				return nil
			})
		}
	})
	b.Run("next", func(b *testing.B) {
		for b.Loop() {
			if _, err := db.NextDelivery(b.Context(), now); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("all due", func(b *testing.B) {
		later := now.Add(2 * time.Hour)
		for b.Loop() {
			jobs, err := db.ClaimDeliveries(b.Context(), sender.Claim{Now: later, Token: id.New("token"), Until: later.Add(time.Minute), Limit: 8192, EachLimit: 16})
			if err != nil || len(jobs) != 8192 {
				b.Fatal(len(jobs), err)
			}
			b.StopTimer()
			if _, err := db.ReleaseAllDeliveries(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}
