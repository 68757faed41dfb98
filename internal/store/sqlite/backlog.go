package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/webhook"
)

// DeliveryBacklog returns what waits to be delivered, by one entry of an index for
// each delivery. What is being sent is not due.
func (db *DB) DeliveryBacklog(ctx context.Context, now time.Time) (b webhook.Backlog, err error) {
	err = view(ctx, db.readers, func(t *readTx) error {
		return t.rows(ctx, "count the deliveries that wait", `SELECT count(*), min(iif(d.token IS NULL AND d.due_at <= ?, d.due_at, NULL))
			FROM webhooks w CROSS JOIN deliveries d INDEXED BY deliveries_due ON d.webhook_id = w.id
			WHERE w.active = 1 AND d.due_at IS NOT NULL`, []any{micros(now)}, func(r *sql.Rows) error {
			var due sql.NullInt64
			if err := r.Scan(&b.Waiting, &due); err != nil {
				return err
			}
			b.Due = maybeInstant(due)
			return nil
		})
	})
	return b, err
}
