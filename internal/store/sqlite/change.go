package sqlite

import (
	"context"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
)

// ChangeBounds implements rows.ReadTx.
func (t *readTx) ChangeBounds(ctx context.Context) (trimmed, last int64, err error) {
	err = t.QueryRow(ctx, "change log", `SELECT seq, max(seq, coalesce((SELECT max(seq) FROM changes), 0)) FROM changes_trimmed`,
		nil, func(r *rows.Row) error { return r.Scan(&trimmed, &last) })
	return trimmed, last, err
}

// AppendRevocation implements control.ChangeLog. There is one node, which reads the key's record.
func (t *tx) AppendRevocation(ctx context.Context, keyID string, _ apikey.Digest) (seq int64, err error) {
	return t.AppendChange(ctx, snapshot.KeyChange, keyID)
}

// AppendChanges implements control.ChangeLog.
func (t *tx) AppendChanges(ctx context.Context, k snapshot.ChangeKind, recordIDs []string) (first int64, err error) {
	for i, recordID := range recordIDs {
		seq, err := t.AppendChange(ctx, k, recordID)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			first = seq
		}
	}
	return first, nil
}

// AppendChange implements control.ChangeLog. There is one writer at a time, so sequence
// numbers follow the order of commits.
func (t *tx) AppendChange(ctx context.Context, k snapshot.ChangeKind, recordID string) (seq int64, err error) {
	err = t.Query(ctx, "append change", `INSERT INTO changes (at, kind, record_id) VALUES (?, ?, ?) RETURNING seq`,
		[]any{t.now(), string(k), recordID}, func(r *rows.Row) error { return r.Scan(&seq) })
	t.wrote = t.wrote || err == nil
	return seq, err
}
