package sqlite

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
)

// Trim implements control.Trimmer.
func (t *tx) Trim(ctx context.Context, responses, changes, events time.Time, day int64, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.Ready(ctx)
	}
	for _, step := range []struct {
		what, query string
		before      int64
	}{
		{"trim stored responses", `DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers WHERE created_at < ? ORDER BY created_at LIMIT ?+0)`, rows.Micros(responses)},
		{"trim daily counts", `DELETE FROM daily_counts WHERE (day, limit_id, key_id) IN (SELECT day, limit_id, key_id FROM daily_counts WHERE day < ? LIMIT ?+0)`, day},
		{"trim daily claims", `DELETE FROM daily_claims WHERE (day, limit_id, key_id, node) IN (SELECT day, limit_id, key_id, node FROM daily_claims WHERE day < ? LIMIT ?+0)`, day},
	} {
		n, err := t.Exec(ctx, step.what, step.query, step.before, limit)
		if err != nil {
			return false, err
		}
		more = more || n == int64(limit)
	}
	trimmed, err := t.trimEvents(ctx, rows.Micros(events), limit)
	if err != nil {
		return false, err
	}
	more = more || trimmed >= int64(limit)
	n, err := t.trimChanges(ctx, rows.Micros(changes), limit)
	return more || n == limit, err
}

// trimChanges removes entries from the beginning of the change log up to the first that is
// not older than before, and records how far. The log never has a gap, even if the clock was
// set back.
func (t *tx) trimChanges(ctx context.Context, before int64, limit int) (int, error) {
	n, last, old := 0, int64(0), true
	err := t.Query(ctx, "find old changes", `SELECT seq, at FROM changes ORDER BY seq LIMIT ?+0`, []any{limit}, func(r rows.Row) error {
		var seq, at int64
		if err := r.Scan(&seq, &at); err != nil {
			return err
		}
		if old = old && at < before; old {
			n, last = n+1, seq
		}
		return nil
	})
	if err != nil || n == 0 {
		return 0, err
	}
	if _, err := t.Exec(ctx, "trim changes", `DELETE FROM changes WHERE seq <= ?`, last); err != nil {
		return 0, err
	}
	_, err = t.Exec(ctx, "record trimmed changes", `UPDATE changes_trimmed SET seq = ?`, last)
	return n, err
}
