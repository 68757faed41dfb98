package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

var _ ratelimit.DailyStore = (*DB)(nil)

// DailyCounts implements control.DailyCountsReader.
func (t *readTx) DailyCounts(ctx context.Context, node string, day int64) ([]ratelimit.DailyCount, error) {
	var list []ratelimit.DailyCount
	err := t.rows(ctx, "read daily counts", `SELECT c.limit_id, c.key_id, c.used, c.lost, coalesce(own.used, 0), coalesce(own.lost, 0)
		FROM daily_counts c LEFT JOIN daily_claims own ON own.day = c.day AND own.limit_id = c.limit_id AND own.key_id = c.key_id AND own.node = ?
		WHERE c.day = ? ORDER BY c.limit_id, c.key_id`,
		[]any{node, day}, func(r *sql.Rows) error {
			c := ratelimit.DailyCount{Day: day}
			err := r.Scan(&c.LimitID, &c.KeyID, &c.Used, &c.Lost, &c.Own, &c.OwnLost)
			list = append(list, c)
			return err
		})
	return list, err
}

// ReserveDaily implements control.DailyCounts.
func (t *tx) ReserveDaily(ctx context.Context, node string, day int64, claims []ratelimit.DailyClaim) error {
	for i := range claims {
		c := &claims[i]
		total, err := t.dailyFigures(ctx, `SELECT used, lost FROM daily_counts WHERE day = ? AND limit_id = ? AND key_id = ?`, day, c.LimitID, c.KeyID)
		if err != nil {
			return err
		}
		own, err := t.dailyFigures(ctx, `SELECT used, lost FROM daily_claims WHERE day = ? AND limit_id = ? AND key_id = ? AND node = ?`, day, c.LimitID, c.KeyID, node)
		if err != nil {
			return err
		}
		total, own = c.Grant(total, own)
		_, err = t.exec(ctx, "put daily count", `INSERT INTO daily_counts (day, limit_id, key_id, used, lost) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (day, limit_id, key_id) DO UPDATE SET used = excluded.used, lost = excluded.lost`, day, c.LimitID, c.KeyID, total.Used, total.Lost)
		if err != nil {
			return err
		}
		_, err = t.exec(ctx, "put daily claim", `INSERT INTO daily_claims (day, limit_id, key_id, node, used, lost) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (day, limit_id, key_id, node) DO UPDATE SET used = excluded.used, lost = excluded.lost`, day, c.LimitID, c.KeyID, node, own.Used, own.Lost)
		if err != nil {
			return err
		}
	}
	return nil
}

// dailyFigures returns the figures of the row that the query finds, or zeros.
func (t *tx) dailyFigures(ctx context.Context, query string, args ...any) (f ratelimit.DailyFigures, err error) {
	err = t.row(ctx, "daily figures", query, args, func(r *sql.Rows) error { return r.Scan(&f.Used, &f.Lost) })
	if fault.CodeOf(err) == fault.NotFound {
		return ratelimit.DailyFigures{}, nil
	}
	return f, err
}

// LoadDailyCounts implements ratelimit.DailyStore.
func (db *DB) LoadDailyCounts(ctx context.Context, node string, day int64) (counts []ratelimit.DailyCount, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		counts, err = t.DailyCounts(ctx, node, day)
		return err
	})
	return counts, err
}

// ReserveDaily implements ratelimit.DailyStore. The clock is that of the node.
func (db *DB) ReserveDaily(ctx context.Context, node string, day int64, claims []ratelimit.DailyClaim) (time.Time, error) {
	return time.Time{}, db.Update(ctx, func(t control.Tx) error { return t.ReserveDaily(ctx, node, day, claims) })
}
