package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// changedRows is the number of rows that the transactions of a connection have changed and that the server has not added
// to its statistics yet, which it does between transactions only.
const changedRows = `SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_xact_user_tables`

// count begins to count what a transaction changes, for Config.Counted. The function that it returns is called before
// COMMIT, and what that returns after it.
func (db *DB) count(t *tx) func() func() {
	if db.counted == nil {
		return func() func() { return func() {} }
	}
	total := func() (n int64) {
		_ = t.rows(context.Background(), "count changed rows", changedRows, nil, func(r pgx.Rows) error { return r.Scan(&n) })
		return n
	}
	begun, before := time.Now(), total()
	return func() func() {
		rows := total() - before
		return func() { db.counted(rows, time.Since(begun)) }
	}
}
