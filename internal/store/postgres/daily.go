package postgres

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ ratelimit.DailyStore = (*DB)(nil)

// dayTolerance is how long before the begin and after the end of a day, by the database's clock, a
// node may reserve for the day, since its clock follows the database's clock with some delay.
const dayTolerance = time.Second

// reserveTime bounds a reservation, during which requests may wait for it, and loadTime the read of all counts. Beyond it
// the connection is given up, which takes cancelGrace at most.
const (
	reserveTime = time.Second
	loadTime    = 5 * time.Second
)

// DailyCounts implements control.DailyCountsReader.
func (t *readTx) DailyCounts(ctx context.Context, node string, day int64, limitIDs ...string) ([]ratelimit.DailyCount, error) {
	text, args := `SELECT c.limit_id, c.key_id, c.used, c.lost, coalesce(own.used, 0), coalesce(own.lost, 0)
		FROM daily_counts c LEFT JOIN daily_claims own ON own.day = c.day AND own.limit_id = c.limit_id AND own.key_id = c.key_id AND own.node = $2
		WHERE c.day = $1`, []any{day, node}
	if len(limitIDs) > 0 {
		text, args = text+` AND c.limit_id = ANY ($3)`, append(args, limitIDs)
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

// dailyKey names a cap.
type dailyKey struct{ limitID, keyID string }

// dailyColumns are rows as arrays of their columns.
type dailyColumns struct {
	limitID, keyID []string
	used, lost     []int64
}

func (c *dailyColumns) add(k dailyKey, f ratelimit.DailyFigures) {
	c.limitID, c.keyID = append(c.limitID, k.limitID), append(c.keyID, k.keyID)
	c.used, c.lost = append(c.used, f.Used), append(c.lost, f.Lost)
}

// ReserveDaily implements control.DailyCounts. The rows of the sums are locked, in their order, before
// anything is read, so that no other claim to the same caps comes in between.
func (t *tx) ReserveDaily(ctx context.Context, node string, day int64, claims []ratelimit.DailyClaim) error {
	if len(claims) == 0 {
		return t.Ready(ctx)
	}
	var ask dailyColumns
	for i := range claims {
		ask.add(dailyKey{claims[i].LimitID, claims[i].KeyID}, ratelimit.DailyFigures{})
	}
	err := t.Queue(ctx, "add daily counts", `INSERT INTO daily_counts (day, limit_id, key_id, used, lost)
		SELECT $1, c.limit_id, c.key_id, 0, 0 FROM unnest($2::text[], $3::text[]) AS c (limit_id, key_id) ORDER BY 2, 3
		ON CONFLICT (day, limit_id, key_id) DO NOTHING`, day, ask.limitID, ask.keyID)
	if err != nil {
		return err
	}
	totals, err := t.dailyFigures(ctx, `SELECT d.limit_id, d.key_id, d.used, d.lost
		FROM daily_counts d JOIN unnest($2::text[], $3::text[]) AS c (limit_id, key_id) USING (limit_id, key_id)
		WHERE d.day = $1 ORDER BY d.limit_id, d.key_id FOR UPDATE OF d`, day, ask.limitID, ask.keyID)
	if err != nil {
		return err
	}
	own, err := t.dailyFigures(ctx, `SELECT d.limit_id, d.key_id, d.used, d.lost
		FROM daily_claims d JOIN unnest($2::text[], $3::text[]) AS c (limit_id, key_id) USING (limit_id, key_id)
		WHERE d.day = $1 AND d.node = $4`, day, ask.limitID, ask.keyID, node)
	if err != nil {
		return err
	}
	var newTotals, newOwn dailyColumns
	for i := range claims {
		c := &claims[i]
		k := dailyKey{c.LimitID, c.KeyID}
		total, mine := c.Grant(totals[k], own[k])
		newTotals.add(k, total)
		newOwn.add(k, mine)
	}
	err = t.Queue(ctx, "put daily counts", `UPDATE daily_counts d SET used = c.used, lost = c.lost
		FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS c (limit_id, key_id, used, lost)
		WHERE d.day = $1 AND d.limit_id = c.limit_id AND d.key_id = c.key_id`, day, newTotals.limitID, newTotals.keyID, newTotals.used, newTotals.lost)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "put daily claims", `INSERT INTO daily_claims (day, node, limit_id, key_id, used, lost)
		SELECT $1, $2, c.* FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[]) AS c (limit_id, key_id, used, lost)
		ON CONFLICT (day, limit_id, key_id, node) DO UPDATE SET used = excluded.used, lost = excluded.lost`,
		day, node, newOwn.limitID, newOwn.keyID, newOwn.used, newOwn.lost)
}

func (t *tx) dailyFigures(ctx context.Context, query string, args ...any) (map[dailyKey]ratelimit.DailyFigures, error) {
	found := map[dailyKey]ratelimit.DailyFigures{}
	err := t.Query(ctx, "read daily figures", query, args, func(r *rows.Row) error {
		var k dailyKey
		var f ratelimit.DailyFigures
		err := r.Scan(&k.limitID, &k.keyID, &f.Used, &f.Lost)
		found[k] = f
		return err
	})
	return found, err
}

// LoadDailyCounts implements ratelimit.DailyStore.
func (db *DB) LoadDailyCounts(ctx context.Context, node string, day int64, limitIDs ...string) (counts []ratelimit.DailyCount, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	err = db.viewFor(ctx, db.source, beginView, loadTime, func(t *readTx) error {
		counts, err = t.DailyCounts(ctx, node, day, limitIDs...)
		return err
	})
	return counts, err
}

// ReserveDaily implements ratelimit.DailyStore. The clock is the database's.
func (db *DB) ReserveDaily(ctx context.Context, node string, day int64, claims []ratelimit.DailyClaim) (now time.Time, err error) {
	err = db.reserve(ctx, func(ctx context.Context, t *tx) error {
		err := t.QueryRow(ctx, "clock", `SELECT clock_timestamp()`, nil, func(r *rows.Row) error { return r.Scan(&now) })
		if err != nil {
			return err
		}
		begin := time.Unix(day*int64(24*time.Hour/time.Second), 0)
		if reserves(claims) && (now.Before(begin.Add(-dayTolerance)) || now.After(begin.Add(24*time.Hour+dayTolerance))) {
			return fault.New(fault.Unavailable, "the clock of the node and that of the database are on different days: try again")
		}
		return t.ReserveDaily(ctx, node, day, claims)
	})
	return now, err
}

// reserves reports whether a claim asks for more, and not only gives something back.
func reserves(claims []ratelimit.DailyClaim) bool {
	for i := range claims {
		if claims[i].Ahead > 0 {
			return true
		}
	}
	return false
}
