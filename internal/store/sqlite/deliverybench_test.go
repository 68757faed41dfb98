package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// mail is a store with deliveries of one account to ten endpoints, one each millisecond.
type mail struct {
	db      *DB
	account account.Account
	hooks   []webhook.Webhook
	begin   time.Time
}

// newMail creates deliveries. The last ones, as many as waiting says, are waiting; every tenth of
// the others failed.
func newMail(b *testing.B, deliveries, waiting int) *mail {
	b.Helper()
	db, err := Open(b.Context(), Config{Path: filepath.Join(b.TempDir(), "keygate.db")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	m := &mail{db: db, begin: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	m.account = account.Account{ID: id.New(id.Account), Name: "bench", Tier: account.Scale, CreatedAt: m.begin}
	m.update(b, func(ctx context.Context, tx control.Tx) error {
		if err := tx.InsertAccount(ctx, &m.account); err != nil {
			return err
		}
		for i := range 10 {
			w := webhook.Webhook{ID: id.New(id.Webhook), AccountID: m.account.ID, URL: "https://receiver.example", SharesURL: true, State: webhook.Active,
				Events: []event.Type{webhook.EventTypes()[i%7]}, Secret: []byte("sealed"), SecretSince: m.begin, CreatedAt: m.begin, Version: 1}
			if err := tx.InsertWebhook(ctx, &w); err != nil {
				return err
			}
			m.hooks = append(m.hooks, w)
		}
		return nil
	})
	m.fill(b, deliveries, waiting)
	return m
}

func (m *mail) update(tb testing.TB, f func(ctx context.Context, tx control.Tx) error) {
	tb.Helper()
	if err := m.db.Update(context.Background(), func(tx control.Tx) error { return f(context.Background(), tx) }); err != nil {
		tb.Fatal(err)
	}
}

func (m *mail) fill(tb testing.TB, n, waiting int) {
	tb.Helper()
	const batch = 20_000
	for from := 0; from < n; from += batch {
		err := m.db.write(context.Background(), func(t *tx) error {
			for i := from; i < min(from+batch, n); i++ {
				if err := m.add(t, i, i >= n-waiting); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// add inserts a delivery and its event, after an attempt unless the delivery is waiting.
func (m *mail) add(t *tx, i int, waits bool) error {
	ctx := context.Background()
	at := m.begin.Add(time.Duration(i) * time.Millisecond)
	e, err := event.New(m.account.ID, webhook.EventTypes()[i/10%7], at, struct{}{})
	if err != nil {
		return err
	}
	_, err = t.Exec(ctx, "event", `INSERT INTO events (id, account_id, type, created_at, payload) VALUES (?, ?, ?, ?, ?)`,
		e.ID, e.AccountID, string(e.Type), rows.Micros(at), e.Payload)
	if err != nil {
		return err
	}
	d := webhook.Delivery{ID: id.NewAt(id.Delivery, at), AccountID: m.account.ID, WebhookID: m.hooks[i%10].ID, EventID: e.ID, EventType: e.Type,
		State: webhook.Pending, Trigger: webhook.ByEvent, NextAttemptAt: at, CreatedAt: at}
	if waits {
		return t.InsertDeliveries(ctx, []webhook.Delivery{d})
	}
	state := rows.DeliveryDelivered
	if i/100%10 == 9 {
		state = rows.DeliveryFailed
	}
	_, err = t.Exec(ctx, "delivery", `INSERT INTO deliveries (n, id, account_id, webhook_id, event_id, event_type, state, cause, attempts, again,
		created_at, finished_at) VALUES (?, ?, ?, ?, ?, ?, ?, 'event', 1, 0, ?, ?)`,
		i+1, d.ID, d.AccountID, d.WebhookID, d.EventID, string(d.EventType), state, rows.Micros(at), rows.Micros(at))
	if err != nil {
		return err
	}
	return t.insertAttempt(ctx, int64(i+1), &webhook.Attempt{Number: 1, StartedAt: at, Duration: time.Millisecond, Status: 200, Response: []byte("ok")})
}

// send claims due deliveries, up to limit of all endpoints together, and finishes them.
func (m *mail) send(tb testing.TB, limit int) int {
	tb.Helper()
	var wants []sender.Want
	for i := range m.hooks {
		wants = append(wants, sender.Want{WebhookID: m.hooks[i].ID, Limit: max(1, limit/len(m.hooks))})
	}
	return m.sendTo(tb, m.begin.Add(1000*time.Hour), wants...)
}

// sendTo claims due deliveries of some endpoints and finishes them. Every tenth fails.
func (m *mail) sendTo(tb testing.TB, now time.Time, wants ...sender.Want) int {
	tb.Helper()
	jobs, err := m.db.ClaimDeliveries(context.Background(), sender.Claim{Now: now, Token: id.New("token"), Until: now.Add(90 * time.Second), Wants: wants})
	if err != nil {
		tb.Fatal(err)
	}
	results := make([]sender.Result, len(jobs))
	for i, j := range jobs {
		results[i] = sender.Result{Lease: j.Lease, State: webhook.Delivered,
			Attempt: webhook.Attempt{Number: j.Attempt, StartedAt: j.DueAt, Duration: time.Millisecond, Status: 200, Response: []byte("ok")}}
		if i%10 == 9 {
			results[i].State, results[i].Attempt.Status = webhook.Failed, 500
		}
	}
	if len(results) == 0 {
		return 0
	}
	if late, err := m.db.FinishDeliveries(context.Background(), results); err != nil || late != 0 {
		tb.Fatal(late, err)
	}
	return len(jobs)
}

// logged is the number of deliveries for which the performance targets are defined.
const logged = 1_000_000

// BenchmarkDeliveries measures operations whose time must not depend on the length of the log.
// Filling the log takes a minute or two; with -short the log is a tenth as long.
func BenchmarkDeliveries(b *testing.B) {
	rows := logged
	if testing.Short() {
		rows /= 10
	}
	large := sync.OnceValue(func() *mail { return newMail(b, rows, 1000) })
	for _, hook := range []string{"", "webhook"} {
		for _, state := range []webhook.DeliveryState{"", webhook.Pending, webhook.Delivered, webhook.Failed} {
			for _, of := range []event.Type{"", event.KeyCreated, webhook.Test} {
				for _, span := range []string{"", "early", "middle"} {
					b.Run(fmt.Sprintf("List/%s,%s,%s,%s", hook, state, of, span), func(b *testing.B) {
						m := large()
						f := control.DeliveryFilter{State: state, EventType: of}
						if hook != "" {
							f.WebhookID = m.hooks[3].ID
						}
						whole := time.Duration(rows) * time.Millisecond
						switch span {
						case "early":
							f.Until = m.begin.Add(whole / 20)
						case "middle":
							f.Since, f.Until = m.begin.Add(whole/3), m.begin.Add(whole/2)
						}
						for b.Loop() {
							m.list(b, f)
						}
					})
				}
			}
		}
	}
	b.Run("Events", func(b *testing.B) {
		m := large()
		for b.Loop() {
			err := m.db.View(b.Context(), func(tx control.ReadTx) error {
				_, err := tx.Events(b.Context(), m.account.ID, control.EventFilter{Type: event.KeyCreated, Until: m.begin.Add(time.Minute)}, control.Page{Limit: 100})
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Next", func(b *testing.B) {
		m := large()
		for b.Loop() {
			if _, err := m.db.NextDelivery(b.Context(), m.begin.Add(1000*time.Hour)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Trim", func(b *testing.B) { benchmarkTrim(b, large()) })
}

func (m *mail) list(b *testing.B, f control.DeliveryFilter) {
	err := m.db.View(b.Context(), func(tx control.ReadTx) error {
		_, err := tx.Deliveries(b.Context(), m.account.ID, f, control.Page{Limit: 100})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}

// benchmarkTrim removes old deliveries in the batches of the maintenance, and reports how long
// the batches held the writer: the median and the maximum.
func benchmarkTrim(b *testing.B, m *mail) {
	var took []time.Duration
	all := m.begin.Add(2000 * time.Hour)
	for b.Loop() {
		begun := time.Now()
		m.update(b, func(ctx context.Context, tx control.Tx) error {
			more, err := tx.TrimDeliveries(ctx, all, all, 25)
			if !more && err == nil {
				b.Fatal("nothing is left to trim")
			}
			return err
		})
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-longest")
}

// BenchmarkQueue claims and finishes deliveries as fast as the store can, in batches, each
// synced to the disk.
func BenchmarkQueue(b *testing.B) {
	for _, batch := range []int{10, 60, 250} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			m := newMail(b, b.N, b.N)
			b.ResetTimer()
			sent := 0
			for n := 1; n > 0; sent += n {
				n = m.send(b, batch)
			}
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}
