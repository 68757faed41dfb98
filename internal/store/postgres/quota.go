package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ ratelimit.QuotaStore = (*DB)(nil)

// ClaimQuotas implements ratelimit.QuotaStore. The clock is the database's.
func (db *DB) ClaimQuotas(ctx context.Context, process string, now time.Time, claims []ratelimit.QuotaClaim) (at time.Time, err error) {
	if len(claims) == 0 {
		return at, ctx.Err()
	}
	removed := false // at an attempt before
	err = db.reserve(ctx, func(ctx context.Context, t *tx) (err error) {
		at, err = t.ClaimQuotas(ctx, process, now, claims, removed)
		removed = removed || errors.Is(err, rows.ErrRemoved)
		return err
	})
	return at, err
}

// RecallQuotas implements ratelimit.QuotaStore.
func (db *DB) RecallQuotas(ctx context.Context, process string, keys []ratelimit.QuotaKey) (waiting int, err error) {
	if len(keys) == 0 {
		return 0, ctx.Err()
	}
	err = db.reserve(ctx, func(ctx context.Context, t *tx) (err error) {
		waiting, err = t.RecallQuotas(ctx, process, keys)
		return err
	})
	return waiting, err
}

// RecalledQuotas implements ratelimit.QuotaStore.
func (db *DB) RecalledQuotas(ctx context.Context, process string, most int) (keys []ratelimit.QuotaKey, err error) {
	err = db.statement(ctx, db.source, loadTime, func(t *readTx) error {
		keys, err = t.RecalledQuotas(ctx, process, most)
		return err
	})
	return keys, err
}

// reserve runs f in a transaction for which requests may wait.
func (db *DB) reserve(ctx context.Context, f func(ctx context.Context, t *tx) error) error {
	return db.reserveAs(ctx, noHead, f)
}

// reserveAs does what reserve does, in a transaction of the kind.
func (db *DB) reserveAs(ctx context.Context, k kind, f func(ctx context.Context, t *tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, reserveTime)
	defer cancel()
	return db.update(ctx, k, func(t *tx) error {
		t.end, _ = ctx.Deadline()
		t.commitBy = t.end
		return f(ctx, t)
	})
}
