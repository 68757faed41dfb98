package sqlite

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/store/rows"
)

// nextFanOut finds the first account behind another one that has events to fan out, or subscriptions that ended
// and are kept for these.
const nextFanOut = `SELECT min(id) FROM (
		SELECT (SELECT account_id FROM fan_outs INDEXED BY fan_outs_account WHERE account_id > ? ORDER BY account_id LIMIT 1) AS id
		UNION ALL SELECT (SELECT account_id FROM former_subscriptions INDEXED BY former_subscriptions_end WHERE account_id > ? ORDER BY account_id LIMIT 1))`

// NextFanOut implements rows.ReadTx.
func (t *readTx) NextFanOut(ctx context.Context, after string) (accountID sql.NullString, err error) {
	err = t.Query(ctx, "find events to fan out", nextFanOut, []any{after, after}, func(r *rows.Row) error { return r.Scan(&accountID) })
	return accountID, err
}

// ForgetSubscriptions implements rows.Tx.
func (t *tx) ForgetSubscriptions(ctx context.Context, accountID string, limit int) (int64, error) {
	return t.Exec(ctx, "forget former subscriptions", `DELETE FROM former_subscriptions WHERE n IN (
			SELECT n FROM former_subscriptions INDEXED BY former_subscriptions_end WHERE account_id = ?
			AND until < coalesce((SELECT min(n) FROM fan_outs WHERE account_id = ?), 9223372036854775807) LIMIT ?+0)`, accountID, accountID, limit)
}
