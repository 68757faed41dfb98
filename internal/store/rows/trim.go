package rows

import (
	"context"
	"time"
)

// someResponses returns a DELETE of the stored responses that a query finds: the first of them whose weights make up a limit,
// which is a parameter. A response of more than 16 KiB has up to 128 KiB, and a transaction removes only a few of these.
//
// The query finds no more than the limit itself, so that the transaction passes over none that it does not remove: an
// account may have 100,000 of them.
func someResponses(query, limit string) string {
	return `DELETE FROM answers WHERE rowid = ANY (ARRAY(SELECT r FROM (SELECT r, sum(weight) OVER (ORDER BY r) - weight AS before
		FROM (SELECT a.rowid AS r, CASE WHEN length(a.body) > 16384 THEN 25 ELSE 1 END AS weight ` + query + ` LIMIT ` + limit + `) AS found)
		AS weighed WHERE before < ` + limit + `))`
}

// Trim implements control.Trimmer.
func (t *Writer) Trim(ctx context.Context, responses, changes, events time.Time, day int64, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.Ready(ctx)
	}
	n, err := t.Delete(ctx, "trim stored responses", someResponses(`FROM answers a INDEXED BY answers_age WHERE a.created_at < $1 ORDER BY a.created_at`, `$2`),
		Micros(responses), limit)
	if err != nil {
		return false, err
	}
	more = n > 0
	for _, step := range []struct{ what, query string }{
		{"trim daily counts", `DELETE FROM daily_counts WHERE (day, limit_id, key_id) IN (SELECT day, limit_id, key_id FROM daily_counts WHERE day < $1 LIMIT $2)`},
		{"trim daily claims", `DELETE FROM daily_claims WHERE (day, limit_id, key_id, node) IN (SELECT day, limit_id, key_id, node FROM daily_claims WHERE day < $1 LIMIT $2)`},
	} {
		n, err := t.Delete(ctx, step.what, step.query, day, limit)
		if err != nil {
			return false, err
		}
		more = more || n == int64(limit)
	}
	trimmed, err := t.TrimEvents(ctx, Micros(events), limit)
	if err != nil {
		return false, err
	}
	more = more || trimmed >= int64(limit)
	changed, err := t.trimChanges(ctx, Micros(changes), limit)
	return more || changed == limit, err
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
