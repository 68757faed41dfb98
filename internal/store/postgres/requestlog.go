package postgres

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ requestlog.Store = (*DB)(nil)

// AppendRequests implements requestlog.Store. It first makes the partitions that are missing. A day has none
// if the clock is ahead, or if retention has dropped it while its records waited.
func (db *DB) AppendRequests(ctx context.Context, batch accesslog.BatchID, records []requestlog.Record, left []requestlog.LeftOut) error {
	days := daysOf(records, left)
	err := db.appendRequests(ctx, batch, days, records, left)
	if stateOf(err) == noPartition { // another node has dropped it
		db.days.forget()
		err = db.appendRequests(ctx, batch, days, records, left)
	}
	return err
}

func (db *DB) appendRequests(ctx context.Context, batch accesslog.BatchID, days map[int64]struct{}, records []requestlog.Record, left []requestlog.LeftOut) error {
	err := db.record(ctx, func(t *tx) error {
		if isNew, err := t.TakeBatch(ctx, batch); err != nil || !isNew {
			return err
		}
		if err := t.addDays(ctx, db.days.unknown(days)); err != nil {
			return err
		}
		return t.InsertRequests(ctx, records, left)
	})
	if err == nil {
		db.days.add(days)
	}
	return err
}

// batchesKept is how long the last batch of a writer is known beyond the time that SQLite knows it. A node
// that could not reach the database for so long may have a batch in its spool that the database already
// has.
const batchesKept = 29 * 24 * time.Hour

// TrimRequests implements requestlog.Store. It removes whole days.
func (db *DB) TrimRequests(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	limit = rows.Limit(limit)
	err = db.record(ctx, func(t *tx) error {
		n, err := t.TrimBatches(ctx, before.Add(-batchesKept), limit)
		more = limit > 0 && n == int64(limit)
		return err
	})
	if err != nil {
		return false, err
	}
	if err := db.addDaysAhead(ctx); err != nil {
		return false, err
	}
	moreDays, err := db.dropDays(ctx, before, limit)
	if err != nil {
		return false, err
	}
	moreCounts, err := db.dropDayBytes(ctx, before, limit)
	return more || moreDays || moreCounts, err
}

// CutRequests implements requestlog.Store. Nodes that cut the requests of an account do that one after the other, so that each
// removes what is still too much.
func (db *DB) CutRequests(ctx context.Context, most requestlog.AccountBytes, limit int) (cut requestlog.Cut, err error) {
	err = db.record(ctx, func(t *tx) error {
		if _, err := t.Exec(ctx, "lock the requests of an account", `SELECT pg_advisory_xact_lock(hashtext('keygate requests'), hashtext($1))`, most.AccountID); err != nil {
			return err
		}
		cut, err = t.CutRequests(ctx, most, limit)
		return err
	})
	return cut, err
}
