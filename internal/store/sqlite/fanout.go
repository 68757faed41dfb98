package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook/fanout"
)

var _ fanout.Store = (*DB)(nil)

// nextFanOut finds the first account behind another one that has events to fan out, or subscriptions that ended
// and are kept for these.
const nextFanOut = `SELECT min(id) FROM (
		SELECT (SELECT account_id FROM fan_outs INDEXED BY fan_outs_account WHERE account_id > ? ORDER BY account_id LIMIT 1) AS id
		UNION ALL SELECT (SELECT account_id FROM former_subscriptions INDEXED BY former_subscriptions_end WHERE account_id > ? ORDER BY account_id LIMIT 1))`

// FanOut implements fanout.Store. It reads before it takes the writer, because usually there is nothing to do. It
// does not wait until its rows are on the disk: the claim of a delivery waits for both transactions.
func (db *DB) FanOut(ctx context.Context, after string, now time.Time, limit int) (accountID string, written int, err error) {
	err = view(ctx, db.readers, func(t *readTx) error {
		return t.Query(ctx, "find events to fan out", nextFanOut, []any{after, after}, func(r *rows.Row) error {
			var found sql.NullString
			err := r.Scan(&found)
			accountID = found.String
			return err
		})
	})
	if err != nil || accountID == "" {
		return "", 0, err
	}
	err = db.record(ctx, func(t *tx) (err error) {
		written, err = t.Writer.FanOut(ctx, accountID, now, rows.Limit(limit))
		return err
	})
	return accountID, written, err
}

// FanOutBacklog implements fanout.Counter.
func (db *DB) FanOutBacklog(ctx context.Context) (map[string]int, error) {
	of := map[string]int{}
	err := view(ctx, db.readers, func(t *readTx) error {
		clear(of)
		return t.Query(ctx, "count events to fan out", `SELECT account_id, count(*) FROM fan_outs INDEXED BY fan_outs_account GROUP BY account_id`, nil, func(r *rows.Row) error {
			var accountID string
			var n int
			err := r.Scan(&accountID, &n)
			of[accountID] = n
			return err
		})
	})
	return of, err
}

// ForgetSubscriptions implements rows.Tx.
func (t *tx) ForgetSubscriptions(ctx context.Context, accountID string, limit int) (int64, error) {
	return t.Exec(ctx, "forget former subscriptions", `DELETE FROM former_subscriptions WHERE n IN (
			SELECT n FROM former_subscriptions INDEXED BY former_subscriptions_end WHERE account_id = ?
			AND until < coalesce((SELECT min(n) FROM fan_outs WHERE account_id = ?), 9223372036854775807) LIMIT ?+0)`, accountID, accountID, limit)
}
