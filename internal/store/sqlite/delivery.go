package sqlite

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook"
)

// attemptSlots is the number of attempt rows reserved for each delivery: attempt k of
// delivery n has the row n*attemptSlots + k.
const attemptSlots = 8

// Attempts implements rows.ReadTx.
func (t *readTx) Attempts(ctx context.Context, deliveries []int64, f func(delivery int64, a *webhook.Attempt)) error {
	for _, delivery := range deliveries {
		first := delivery * attemptSlots
		err := t.Query(ctx, "read attempts", `SELECT n, started_at, duration, status, error, response FROM attempts WHERE n > ? AND n < ? ORDER BY n`,
			[]any{first, first + attemptSlots}, func(r *rows.Row) error {
				var (
					a                    webhook.Attempt
					n, started, duration int64
				)
				err := r.Scan(&n, &started, &duration, &a.Status, &a.Error, &a.Response)
				a.Number, a.StartedAt, a.Duration = int(n-first), rows.Instant(started), time.Duration(duration)
				f(delivery, &a)
				return err
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// RemoveAttempts implements rows.Tx.
func (t *tx) RemoveAttempts(ctx context.Context, deliveries []int64) error {
	return t.Queue(ctx, "remove attempts", `DELETE FROM attempts WHERE n IN (
		SELECT 8 * d.value + slot.value FROM json_each(?) d, json_each('[1, 2, 3, 4, 5, 6, 7]') slot)`, deliveries)
}

// InsertDeliveries implements rows.Tx.
func (t *tx) InsertDeliveries(ctx context.Context, list []webhook.Delivery) error {
	for i := range list {
		d := &list[i]
		err := t.Queue(ctx, "insert delivery", `INSERT INTO deliveries (id, account_id, webhook_id, event_id, event_type, state, cause,
			attempts, again, next_at, due_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?)`,
			d.ID, d.AccountID, d.WebhookID, d.EventID, string(d.EventType), rows.DeliveryState(d.State), string(d.Trigger),
			rows.Micros(d.NextAttemptAt), rows.Micros(d.NextAttemptAt), rows.Micros(d.CreatedAt))
		if err != nil {
			return err
		}
	}
	return nil
}

// insertAttempt adds an attempt to the delivery in row n.
func (t *tx) insertAttempt(ctx context.Context, n int64, a *webhook.Attempt) error {
	var response any
	if kept := rows.Response(a); kept != nil {
		response = kept
	}
	_, err := t.Exec(ctx, "insert attempt", `INSERT INTO attempts (n, started_at, duration, status, error, response) VALUES (?, ?, ?, ?, ?, ?)`,
		n*attemptSlots+int64(a.Number), rows.Micros(a.StartedAt), int64(a.Duration), a.Status, a.Error, response)
	return err
}
