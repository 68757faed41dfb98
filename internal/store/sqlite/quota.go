package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ ratelimit.QuotaStore = (*DB)(nil)

// ClaimQuotas implements ratelimit.QuotaStore. It goes by the clock of the process.
func (db *DB) ClaimQuotas(ctx context.Context, process string, now time.Time, claims []ratelimit.QuotaClaim) (time.Time, error) {
	if len(claims) == 0 {
		return time.Time{}, ctx.Err()
	}
	claim := func(all bool) error {
		return db.write(ctx, func(t *tx) error {
			_, err := t.ClaimQuotas(ctx, process, now, claims, all)
			return err
		})
	}
	err := claim(false)
	if errors.Is(err, rows.ErrRemoved) {
		err = claim(true)
	}
	return time.Time{}, err
}

// RecalledQuotas implements ratelimit.QuotaStore: there is no other process.
func (db *DB) RecalledQuotas(ctx context.Context, _ string, _ int) ([]ratelimit.QuotaKey, error) {
	return nil, ctx.Err()
}

// RecallQuotas implements ratelimit.QuotaStore: there is no other process.
func (db *DB) RecallQuotas(ctx context.Context, _ string, _ []ratelimit.QuotaKey) (int, error) {
	return 0, ctx.Err()
}
