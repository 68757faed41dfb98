package sqlite

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// register adds endpoints that subscribe to none of the events of the tests.
func (m *mail) register(tb testing.TB, n int) {
	tb.Helper()
	m.update(tb, func(ctx context.Context, tx control.Tx) error {
		for range n {
			w := webhook.Webhook{ID: id.New(id.Webhook), AccountID: m.account.ID, URL: "https://receiver.example", SharesURL: true, State: webhook.Active,
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
	m := &mail{db: db, begin: now, account: account.Account{ID: id.New(id.Account), Name: "bench", Tier: account.Scale, CreatedAt: now}}
	m.update(b, func(ctx context.Context, tx control.Tx) error { return tx.InsertAccount(ctx, &m.account) })
	const endpoints = 10_000
	m.register(b, endpoints)
	m.enqueue(b, now.Add(time.Hour), m.hooks...)
	b.Run("one due", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			m.enqueue(b, now, m.hooks[endpoints/2])
			b.StartTimer()
			if n := m.sendTo(b, now, sender.Want{WebhookID: m.hooks[endpoints/2].ID, Limit: 512}); n != 1 {
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
	b.Run("found", func(b *testing.B) { // what a sender reads for an event: the endpoints, and the next due delivery
		_, mark, _, err := db.NewlyDue(b.Context(), sender.Mark{}, now)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			b.StopTimer()
			m.enqueue(b, now, m.hooks[endpoints/2])
			b.StartTimer()
			found, next, _, err := db.NewlyDue(b.Context(), mark, now)
			if err != nil || len(found) != 1 {
				b.Fatal(len(found), err)
			}
			mark = next
		}
	})
	b.Run("scan", func(b *testing.B) { // one page
		for b.Loop() {
			if found, _, err := db.AllDue(b.Context(), m.hooks[endpoints/3].ID, 64, now.Add(2*time.Hour)); err != nil || len(found) != 64 {
				b.Fatal(len(found), err)
			}
		}
	})
	b.Run("claim", func(b *testing.B) { // up to 4 deliveries of each of 128 endpoints, of which each has one
		later := now.Add(2 * time.Hour)
		c := sender.Claim{Now: later, Token: "token", Until: later.Add(time.Minute)}
		for _, w := range m.hooks[:128] {
			c.Wants = append(c.Wants, sender.Want{WebhookID: w.ID, Limit: 4})
		}
		for b.Loop() {
			jobs, err := db.ClaimDeliveries(b.Context(), c)
			if err != nil || len(jobs) != 128 {
				b.Fatal(len(jobs), err)
			}
			b.StopTimer()
			if _, err := db.ReleaseAllDeliveries(b.Context(), ""); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}
