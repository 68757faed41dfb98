package postgres

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
)

// oldestSnapshot selects for how many microseconds the oldest transaction has run that keeps the server from
// removing dead rows of the database: a transaction with a snapshot or a number, or a prepared transaction.
// Transactions of other users are seen only with the role pg_read_all_stats.
const oldestSnapshot = `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - since)) * 1000000, 0)::bigint FROM (
		SELECT xact_start AS since FROM pg_stat_activity WHERE datname = current_database() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
		UNION ALL SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()
	) held`

// OldestSnapshot returns the age of the oldest transaction that keeps the server from removing dead rows, such as a
// transaction of pg_dump, or of a program that left it idle. The rows of nodes are written every few seconds, so
// their table grows meanwhile and each read of it takes longer.
func (db *DB) OldestSnapshot(ctx context.Context) (age time.Duration, err error) {
	err = db.statement(ctx, db.readers, logTime, func(t *readTx) error {
		return t.Query(ctx, "read the oldest snapshot", oldestSnapshot, nil, func(r *rows.Row) error {
			var micros int64
			err := r.Scan(&micros)
			age = time.Duration(max(0, micros)) * time.Microsecond
			return err
		})
	})
	return age, err
}
