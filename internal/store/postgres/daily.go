package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/keygate/keygate/internal/ratelimit"
)

var _ ratelimit.DailyStore = (*DB)(nil)

// DailyCounts implements control.DailyCountsReader.
func (t *readTx) DailyCounts(ctx context.Context, day int64) ([]ratelimit.DailyCount, error) {
	var list []ratelimit.DailyCount
	err := t.rows(ctx, "read daily counts", `SELECT limit_id, key_id, used, lost FROM daily_counts WHERE day = $1 ORDER BY limit_id, key_id`,
		[]any{day}, func(r pgx.Rows) error {
			c := ratelimit.DailyCount{Day: day}
			err := r.Scan(&c.LimitID, &c.KeyID, &c.Used, &c.Lost)
			list = append(list, c)
			return err
		})
	return list, err
}

// PutDailyCounts implements control.DailyCounts.
func (t *tx) PutDailyCounts(ctx context.Context, counts []ratelimit.DailyCount) error {
	type key struct {
		day            int64
		limitID, keyID string
	}
	at := map[key]int{} // one statement must not write a row twice
	var day, used, lost []int64
	var limitID, keyID []string
	for i := range counts {
		c := &counts[i]
		k := key{c.Day, c.LimitID, c.KeyID}
		if n, found := at[k]; found {
			used[n], lost[n] = c.Used, c.Lost
			continue
		}
		at[k] = len(day)
		day, limitID, keyID = append(day, c.Day), append(limitID, c.LimitID), append(keyID, c.KeyID)
		used, lost = append(used, c.Used), append(lost, c.Lost)
	}
	_, err := t.exec(ctx, "put daily counts", `INSERT INTO daily_counts (day, limit_id, key_id, used, lost)
		SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS c (day, limit_id, key_id, used, lost) ORDER BY 1, 2, 3
		ON CONFLICT (day, limit_id, key_id) DO UPDATE SET used = excluded.used, lost = excluded.lost`, day, limitID, keyID, used, lost)
	return err
}

// LoadDailyCounts implements ratelimit.DailyStore.
func (db *DB) LoadDailyCounts(ctx context.Context, day int64) (counts []ratelimit.DailyCount, err error) {
	err = db.view(ctx, db.source, func(t *readTx) error {
		counts, err = t.DailyCounts(ctx, day)
		return err
	})
	return counts, err
}

// SaveDailyCounts implements ratelimit.DailyStore.
func (db *DB) SaveDailyCounts(ctx context.Context, counts []ratelimit.DailyCount) error {
	return db.write(ctx, func(t *tx) error { return t.PutDailyCounts(ctx, counts) })
}
