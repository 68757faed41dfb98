package postgres

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook/fanout"
)

var _ fanout.Store = (*DB)(nil)

// A former subscription is kept for subscriptionKept at least: a transaction that has taken the number of a fan-out may
// not be committed yet, but no transaction takes longer (writeTime).
const subscriptionKept = `interval '1 minute'`

// nextFanOut finds the first account behind another one that has events to fan out, or former subscriptions that may
// not be needed any more.
const nextFanOut = `SELECT least(
		(SELECT account_id FROM fan_outs WHERE account_id > $1 ORDER BY account_id LIMIT 1),
		(SELECT account_id FROM former_subscriptions WHERE account_id > $1 AND (ended IS NULL OR ended < clock_timestamp() - ` + subscriptionKept + `)
			ORDER BY account_id LIMIT 1))`

// FanOut implements fanout.Store. It reads before it begins a transaction, because usually there is nothing to do.
// COMMIT does not wait for replicas: the COMMIT that claims a delivery waits for both transactions.
func (db *DB) FanOut(ctx context.Context, after string, now time.Time, limit int) (accountID string, written int, err error) {
	var found *string
	err = db.statement(ctx, db.readers, readTime, func(t *readTx) error {
		return t.Query(ctx, "find events to fan out", nextFanOut, []any{after}, func(r *rows.Row) error { return r.Scan(&found) })
	})
	if err != nil || found == nil {
		return "", 0, err
	}
	err = db.record(ctx, func(t *tx) (err error) {
		written, err = t.Writer.FanOut(ctx, *found, now, rows.Limit(limit))
		return err
	})
	return *found, written, err
}

// FanOutBacklog implements fanout.Counter.
func (db *DB) FanOutBacklog(ctx context.Context) (map[string]int, error) {
	of := map[string]int{}
	err := db.statement(ctx, db.readers, readTime, func(t *readTx) error {
		clear(of)
		return t.Query(ctx, "count events to fan out", `SELECT account_id, count(*) FROM fan_outs GROUP BY account_id`, nil, func(r *rows.Row) error {
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
			SELECT n FROM former_subscriptions WHERE account_id = $1 AND (ended IS NULL OR ended < clock_timestamp() - `+subscriptionKept+`)
			AND NOT EXISTS (SELECT 1 FROM fan_outs f WHERE f.account_id = $1 AND f.n <= former_subscriptions.until) LIMIT $2 FOR UPDATE SKIP LOCKED)`,
		accountID, limit)
}
