package sqlite

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/ratelimit"
)

var _ ratelimit.DailyStore = (*DB)(nil)

// DailyCounts implements control.DailyCountsReader.
func (t *readTx) DailyCounts(ctx context.Context, day int64) ([]ratelimit.DailyCount, error) {
	var list []ratelimit.DailyCount
	err := t.rows(ctx, "read daily counts", `SELECT limit_id, key_id, used, lost FROM daily_counts WHERE day = ? ORDER BY limit_id, key_id`,
		[]any{day}, func(r *sql.Rows) error {
			c := ratelimit.DailyCount{Day: day}
			err := r.Scan(&c.LimitID, &c.KeyID, &c.Used, &c.Lost)
			list = append(list, c)
			return err
		})
	return list, err
}

// PutDailyCounts implements control.DailyCounts.
func (t *tx) PutDailyCounts(ctx context.Context, counts []ratelimit.DailyCount) error {
	for i := range counts {
		c := &counts[i]
		_, err := t.exec(ctx, "put daily count", `INSERT INTO daily_counts (day, limit_id, key_id, used, lost) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (day, limit_id, key_id) DO UPDATE SET used = excluded.used, lost = excluded.lost`, c.Day, c.LimitID, c.KeyID, c.Used, c.Lost)
		if err != nil {
			return err
		}
	}
	return nil
}

// LoadDailyCounts implements ratelimit.DailyStore.
func (db *DB) LoadDailyCounts(ctx context.Context, day int64) (counts []ratelimit.DailyCount, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		counts, err = t.DailyCounts(ctx, day)
		return err
	})
	return counts, err
}

// SaveDailyCounts implements ratelimit.DailyStore.
func (db *DB) SaveDailyCounts(ctx context.Context, counts []ratelimit.DailyCount) error {
	return db.Update(ctx, func(t control.Tx) error { return t.PutDailyCounts(ctx, counts) })
}
