package sqlite

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ requestlog.Store = (*DB)(nil)

// TrimRequests implements requestlog.Store.
func (db *DB) TrimRequests(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	limit = rows.Limit(limit)
	err = db.record(ctx, func(t *tx) error {
		n, err := t.Exec(ctx, "trim requests", `DELETE FROM requests WHERE (account_id, id) IN (SELECT account_id, id FROM requests WHERE time < ? ORDER BY time LIMIT ?+0)`, rows.Micros(before), limit)
		if err != nil {
			return err
		}
		m, err := t.Exec(ctx, "trim counts of omitted requests", `DELETE FROM requests_left_out WHERE (account_id, second) IN
			(SELECT account_id, second FROM requests_left_out WHERE second < ? ORDER BY second LIMIT ?+0)`, before.Unix(), limit)
		if err != nil {
			return err
		}
		w, err := t.TrimBatches(ctx, before, limit)
		more = limit > 0 && (n == int64(limit) || m == int64(limit) || w == int64(limit))
		return err
	})
	return more, err
}

// CutRequests implements requestlog.Store.
func (db *DB) CutRequests(ctx context.Context, most requestlog.AccountBytes, limit int) (cut requestlog.Cut, err error) {
	err = db.record(ctx, func(t *tx) error {
		cut, err = t.CutRequests(ctx, most, limit)
		return err
	})
	return cut, err
}
