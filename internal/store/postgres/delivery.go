package postgres

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook"
)

// Attempts implements rows.ReadTx.
func (t *readTx) Attempts(ctx context.Context, deliveries []int64, f func(delivery int64, a *webhook.Attempt)) error {
	return t.Query(ctx, "read attempts", `SELECT n, number, started_at, duration, status, error, response FROM attempts
		WHERE n = ANY($1::bigint[]) ORDER BY n, number`, []any{deliveries}, func(r *rows.Row) error {
		var (
			a                    webhook.Attempt
			n, started, duration int64
			text                 []byte
		)
		err := r.Scan(&n, &a.Number, &started, &duration, &a.Status, &text, &a.Response)
		a.StartedAt, a.Duration, a.Error = rows.Instant(started), time.Duration(duration), string(text)
		f(n, &a)
		return err
	})
}

// RemoveAttempts implements rows.Tx.
func (t *tx) RemoveAttempts(ctx context.Context, deliveries []int64) error {
	return t.Queue(ctx, "remove attempts", `DELETE FROM attempts WHERE n = ANY($1::bigint[])`, deliveries)
}

// InsertDeliveries implements rows.Tx. Deliveries are due at the queue's own time if that is earlier: the clock of this node may be ahead.
func (t *tx) InsertDeliveries(ctx context.Context, list []webhook.Delivery) error {
	if len(list) == 0 {
		return nil
	}
	ids, endpoints := make([]string, len(list)), make([]string, len(list))
	for i := range list {
		ids[i], endpoints[i] = list[i].ID, list[i].WebhookID
	}
	d, next := &list[0], rows.Micros(list[0].NextAttemptAt)
	return t.Queue(ctx, "insert deliveries", `WITH head AS (UPDATE delivery_head SET n = n + $1::bigint RETURNING n - $1::bigint AS n)
		INSERT INTO deliveries (n, id, account_id, webhook_id, event_id, event_type, state, cause, attempts, again, next_at, due_at, created_at)
		SELECT head.n + d.place, d.id, $4, d.webhook_id, $5, $6, $7::integer, $8, 0, false, least($9::bigint, queue_now($9)), least($9::bigint, queue_now($9)), $10::bigint
		FROM head CROSS JOIN unnest($2::text[], $3::text[]) WITH ORDINALITY AS d (id, webhook_id, place)`,
		len(list), ids, endpoints, d.AccountID, d.EventID, string(d.EventType), rows.DeliveryState(d.State), string(d.Trigger), next, rows.Micros(d.CreatedAt))
}
