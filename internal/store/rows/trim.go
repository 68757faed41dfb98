package rows

import (
	"context"
	"time"
)

// largeResponses is how many stored responses of more than 16 KiB one transaction removes. They have up to 128 KiB.
const largeResponses = 8

// Trim implements control.Trimmer.
func (t *Writer) Trim(ctx context.Context, responses, changes, events time.Time, day int64, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.Ready(ctx)
	}
	for _, step := range []struct {
		what, query string
		before      int64
		most        int
	}{
		{"trim large stored responses", `DELETE FROM answers WHERE rowid = ANY (ARRAY(SELECT rowid FROM answers WHERE created_at < $1 AND length(body) > 16384 ORDER BY created_at LIMIT $2))`, Micros(responses), min(limit, largeResponses)},
		{"trim stored responses", `DELETE FROM answers WHERE rowid = ANY (ARRAY(SELECT rowid FROM answers WHERE created_at < $1 AND coalesce(length(body), 0) <= 16384 ORDER BY created_at LIMIT $2))`, Micros(responses), limit},
		{"trim daily counts", `DELETE FROM daily_counts WHERE (day, limit_id, key_id) IN (SELECT day, limit_id, key_id FROM daily_counts WHERE day < $1 LIMIT $2)`, day, limit},
		{"trim daily claims", `DELETE FROM daily_claims WHERE (day, limit_id, key_id, node) IN (SELECT day, limit_id, key_id, node FROM daily_claims WHERE day < $1 LIMIT $2)`, day, limit},
	} {
		n, err := t.Delete(ctx, step.what, step.query, step.before, step.most)
		if err != nil {
			return false, err
		}
		more = more || n == int64(step.most)
	}
	trimmed, err := t.TrimEvents(ctx, Micros(events), limit)
	if err != nil {
		return false, err
	}
	more = more || trimmed >= int64(limit)
	n, err := t.trimChanges(ctx, Micros(changes), limit)
	return more || n == limit, err
}

// trimChanges removes entries from the beginning of the change log up to the first entry that is
// not older than before, and records how far. The log never has a gap, even if the clock was set
// back.
func (t *Writer) trimChanges(ctx context.Context, before int64, limit int) (int, error) {
	n, last, old := 0, int64(0), true
	err := t.Query(ctx, "find old changes", `SELECT seq, at FROM changes ORDER BY seq LIMIT $1`, []any{limit}, func(r *Row) error {
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
	if err := t.Queue(ctx, "trim changes", `DELETE FROM changes WHERE seq <= $1`, last); err != nil {
		return 0, err
	}
	err = t.Queue(ctx, "record trimmed changes", `UPDATE changes_trimmed SET seq = $1`, last)
	return n, err
}
