package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook"
)

// DeliveryBacklog returns the deliveries that are waiting for active endpoints of active accounts. Leased
// deliveries count as waiting but not as due. It reads one index entry for each delivery.
func (db *DB) DeliveryBacklog(ctx context.Context, now time.Time) (b webhook.Backlog, err error) {
	err = view(ctx, db.readers, func(t *readTx) error {
		return t.Query(ctx, "count waiting deliveries", `SELECT count(*), min(iif(d.token IS NULL AND d.due_at <= ?, d.due_at, NULL))
			FROM accounts a CROSS JOIN webhooks w ON w.account_id = a.id CROSS JOIN deliveries d INDEXED BY deliveries_due ON d.webhook_id = w.id
			WHERE a.state = 'active' AND w.active = 1 AND d.due_at IS NOT NULL`, []any{rows.Micros(now)}, func(r *rows.Row) error {
			var due sql.NullInt64
			if err := r.Scan(&b.Waiting, &due); err != nil {
				return err
			}
			b.Due = rows.MaybeInstant(due)
			return nil
		})
	})
	return b, err
}
