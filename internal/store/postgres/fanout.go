package postgres

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/store/rows"
)

// A former subscription is kept for subscriptionKept at least: a transaction that has taken the number of a fan-out may
// not be committed yet, but no transaction takes longer (writeTime).
const subscriptionKept = `interval '1 minute'`

// nextFanOut finds the first account behind another one that has events to fan out, or former subscriptions that may
// not be needed any more.
const nextFanOut = `SELECT least(
		(SELECT account_id FROM fan_outs WHERE account_id > $1 ORDER BY account_id LIMIT 1),
		(SELECT account_id FROM former_subscriptions WHERE account_id > $1 AND (ended IS NULL OR ended < clock_timestamp() - ` + subscriptionKept + `)
			ORDER BY account_id LIMIT 1))`

// NextFanOut implements rows.ReadTx.
func (t *readTx) NextFanOut(ctx context.Context, after string) (accountID sql.NullString, err error) {
	err = t.Query(ctx, "find events to fan out", nextFanOut, []any{after}, func(r *rows.Row) error { return r.Scan(&accountID) })
	return accountID, err
}

// ForgetSubscriptions implements rows.Tx.
func (t *tx) ForgetSubscriptions(ctx context.Context, accountID string, limit int) (int64, error) {
	return t.Exec(ctx, "forget former subscriptions", `DELETE FROM former_subscriptions WHERE n IN (
			SELECT n FROM former_subscriptions WHERE account_id = $1 AND (ended IS NULL OR ended < clock_timestamp() - `+subscriptionKept+`)
			AND NOT EXISTS (SELECT 1 FROM fan_outs f WHERE f.account_id = $1 AND f.n <= former_subscriptions.until) LIMIT $2 FOR UPDATE SKIP LOCKED)`,
		accountID, limit)
}
