package sqlite

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/ratelimit"
)

var _ ratelimit.QuotaStore = (*DB)(nil)

// ClaimQuotas implements ratelimit.QuotaStore. It goes by the clock of the process.
func (db *DB) ClaimQuotas(ctx context.Context, process string, now time.Time, claims []ratelimit.QuotaClaim) (time.Time, error) {
	if len(claims) == 0 {
		return time.Time{}, ctx.Err()
	}
	return time.Time{}, db.write(ctx, func(t *tx) error {
		_, err := t.ClaimQuotas(ctx, process, now, claims)
		return err
	})
}

// RecalledQuotas implements ratelimit.QuotaStore: there is no other process.
func (db *DB) RecalledQuotas(ctx context.Context, _ string, _ int) ([]ratelimit.QuotaKey, error) {
	return nil, ctx.Err()
}

// RecallQuotas implements ratelimit.QuotaStore: there is no other process.
func (db *DB) RecallQuotas(ctx context.Context, _ string, _ []ratelimit.QuotaKey) (int, error) {
	return 0, ctx.Err()
}
