package postgres

import (
	"time"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/state"
)

// changedRows is the number of rows that the transactions of a connection have changed and that the server has not added
// to its statistics yet, which it does between transactions only.
const changedRows = `SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_xact_user_tables`

// counting collects what Config.Counted gets about a transaction.
type counting struct {
	begun         time.Time
	before, after int64 // changedRows
}

// count begins to count the rows that a transaction changes. Its query is sent with the transaction's own statements,
// so it takes no round trip.
func (db *DB) count(t *tx) {
	if db.counted != nil {
		t.counting = &counting{begun: time.Now()}
		t.queued = append(t.queued, countRows(&t.counting.before))
	}
}

// countAll is called before COMMIT.
func (t *tx) countAll() {
	if t.counting != nil {
		t.queued = append(t.queued, countRows(&t.counting.after))
	}
}

// report is called after COMMIT.
func (db *DB) report(t *tx) {
	if c := t.counting; c != nil {
		db.counted(state.Counted{Rows: c.after - c.before, Took: time.Since(c.begun), HeadTrips: t.headTrips})
	}
}

func countRows(n *int64) statement {
	return statement{what: "count changed rows", query: changedRows, scan: func(r *rows.Row) error { return r.Scan(n) }}
}
