package sqlite

import (
	"context"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
)

// Changes implements control.ChangeLogReader. If seq is beyond the newest entry, as after a
// backup was restored, complete is false too.
func (t *readTx) Changes(ctx context.Context, seq int64, limit int) (list []snapshot.Change, complete bool, err error) {
	first, last, err := t.changeBounds(ctx)
	if err != nil || seq < first || seq > last {
		return nil, false, err
	}
	err = t.Query(ctx, "read changes", `SELECT seq, kind, record_id FROM changes WHERE seq > ? ORDER BY seq LIMIT ?+0`,
		[]any{seq, rows.Limit(limit)}, func(r rows.Row) error {
			var c snapshot.Change
			err := r.Scan(&c.Seq, &c.Kind, &c.ID)
			list = append(list, c)
			return err
		})
	return list, err == nil, err
}

// changeBounds returns the sequence numbers of the last trimmed and of the newest entry.
func (t *readTx) changeBounds(ctx context.Context) (trimmed, last int64, err error) {
	err = t.QueryRow(ctx, "change log", `SELECT seq, max(seq, coalesce((SELECT max(seq) FROM changes), 0)) FROM changes_trimmed`,
		nil, func(r rows.Row) error { return r.Scan(&trimmed, &last) })
	return trimmed, last, err
}

// AppendRevocation implements control.ChangeLog. There is one node, which reads the key's record.
func (t *tx) AppendRevocation(ctx context.Context, keyID string, _ apikey.Digest) (seq int64, err error) {
	return t.AppendChange(ctx, snapshot.KeyChange, keyID)
}

// AppendChange implements control.ChangeLog. There is one writer at a time, so sequence
// numbers follow the order of commits.
func (t *tx) AppendChange(ctx context.Context, k snapshot.ChangeKind, recordID string) (seq int64, err error) {
	err = t.Query(ctx, "append change", `INSERT INTO changes (at, kind, record_id) VALUES (?, ?, ?) RETURNING seq`,
		[]any{t.now(), string(k), recordID}, func(r rows.Row) error { return r.Scan(&seq) })
	t.wrote = t.wrote || err == nil
	return seq, err
}
