package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ ratelimit.DailyStore = (*DB)(nil)

// DailyCounts implements control.DailyCountsReader.
func (t *readTx) DailyCounts(ctx context.Context, node string, day int64, limitIDs ...string) ([]ratelimit.DailyCount, error) {
	text, args := `SELECT c.limit_id, c.key_id, c.used, c.lost, coalesce(own.used, 0), coalesce(own.lost, 0)
		FROM daily_counts c LEFT JOIN daily_claims own ON own.day = c.day AND own.limit_id = c.limit_id AND own.key_id = c.key_id AND own.node = ?
		WHERE c.day = ?`, []any{node, day}
	if len(limitIDs) > 0 {
		ids, err := json.Marshal(limitIDs)
		if err != nil {
			return nil, err
		}
		text, args = text+` AND c.limit_id IN (SELECT value FROM json_each(?))`, append(args, string(ids))
	}
	var list []ratelimit.DailyCount
	err := t.Query(ctx, "read daily counts", text+` ORDER BY c.limit_id, c.key_id`, args, func(r *rows.Row) error {
		c := ratelimit.DailyCount{Day: day}
		err := r.Scan(&c.LimitID, &c.KeyID, &c.Used, &c.Lost, &c.Own, &c.OwnLost)
		list = append(list, c)
		return err
	})
	return list, err
}

// ReserveDaily implements control.DailyCounts. Four statements serve all claims: one for each claim would take ten
// times as long, and changes wait meanwhile.
func (t *tx) ReserveDaily(ctx context.Context, node string, day int64, claims []ratelimit.DailyClaim) error {
	if len(claims) == 0 {
		return t.Ready(ctx)
	}
	caps := make([][2]string, len(claims))
	for i := range claims {
		caps[i] = [2]string{claims[i].LimitID, claims[i].KeyID}
	}
	asked, err := json.Marshal(caps)
	if err != nil {
		return err
	}
	totals, err := t.dailyFigures(ctx, len(claims), `SELECT asked.key, d.used, d.lost FROM json_each(?) asked
		CROSS JOIN daily_counts d ON d.day = ? AND d.limit_id = asked.value ->> 0 AND d.key_id = asked.value ->> 1`, string(asked), day)
	if err != nil {
		return err
	}
	own, err := t.dailyFigures(ctx, len(claims), `SELECT asked.key, d.used, d.lost FROM json_each(?) asked
		CROSS JOIN daily_claims d ON d.day = ? AND d.limit_id = asked.value ->> 0 AND d.key_id = asked.value ->> 1 AND d.node = ?`, string(asked), day, node)
	if err != nil {
		return err
	}
	newTotals, newOwn := make([][4]any, len(claims)), make([][4]any, len(claims))
	for i := range claims {
		c := &claims[i]
		total, mine := c.Grant(totals[i], own[i])
		newTotals[i] = [4]any{c.LimitID, c.KeyID, total.Used, total.Lost}
		newOwn[i] = [4]any{c.LimitID, c.KeyID, mine.Used, mine.Lost}
	}
	rows, err := json.Marshal(newTotals)
	if err != nil {
		return err
	}
	_, err = t.Exec(ctx, "put daily counts", `INSERT INTO daily_counts (day, limit_id, key_id, used, lost)
		SELECT ?, value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?) WHERE true
		ON CONFLICT (day, limit_id, key_id) DO UPDATE SET used = excluded.used, lost = excluded.lost`, day, string(rows))
	if err != nil {
		return err
	}
	if rows, err = json.Marshal(newOwn); err != nil {
		return err
	}
	_, err = t.Exec(ctx, "put daily claims", `INSERT INTO daily_claims (day, limit_id, key_id, node, used, lost)
		SELECT ?, value ->> 0, value ->> 1, ?, value ->> 2, value ->> 3 FROM json_each(?) WHERE true
		ON CONFLICT (day, limit_id, key_id, node) DO UPDATE SET used = excluded.used, lost = excluded.lost`, day, node, string(rows))
	return err
}

// dailyFigures returns the figures of n caps by their index: from the query, or zeros if it does not find the cap.
func (t *tx) dailyFigures(ctx context.Context, n int, query string, args ...any) ([]ratelimit.DailyFigures, error) {
	found := make([]ratelimit.DailyFigures, n)
	err := t.Query(ctx, "read daily figures", query, args, func(r *rows.Row) error {
		var i int
		var f ratelimit.DailyFigures
		err := r.Scan(&i, &f.Used, &f.Lost)
		found[i] = f
		return err
	})
	return found, err
}

// LoadDailyCounts implements ratelimit.DailyStore.
func (db *DB) LoadDailyCounts(ctx context.Context, node string, day int64, limitIDs ...string) (counts []ratelimit.DailyCount, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		counts, err = t.DailyCounts(ctx, node, day, limitIDs...)
		return err
	})
	return counts, err
}

// ReserveDaily implements ratelimit.DailyStore. It goes by the clock of the node.
func (db *DB) ReserveDaily(ctx context.Context, node string, day int64, claims []ratelimit.DailyClaim) (time.Time, error) {
	return time.Time{}, db.Update(ctx, func(t control.Tx) error { return t.ReserveDaily(ctx, node, day, claims) })
}
