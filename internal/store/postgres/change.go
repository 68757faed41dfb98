package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
)

// ChangeBounds implements rows.ReadTx.
func (t *readTx) ChangeBounds(ctx context.Context) (trimmed, last int64, err error) {
	err = t.QueryRow(ctx, "change log", `SELECT t.seq, h.number FROM changes_trimmed t, change_head h`,
		nil, func(r *rows.Row) error { return r.Scan(&trimmed, &last) })
	return trimmed, last, err
}

// AppendChange implements control.ChangeLog. The entry is added while the transaction holds the head, until its end,
// so sequence numbers are dense and follow the order of commits.
func (t *tx) AppendChange(ctx context.Context, k snapshot.ChangeKind, recordID string) (seq int64, err error) {
	return t.appendChanges(ctx, k, nil, recordID)
}

// AppendChanges implements control.ChangeLog, in one statement.
func (t *tx) AppendChanges(ctx context.Context, k snapshot.ChangeKind, recordIDs []string) (first int64, err error) {
	return t.appendChanges(ctx, k, nil, recordIDs...)
}

// AppendRevocation implements control.ChangeLog.
func (t *tx) AppendRevocation(ctx context.Context, keyID string, digest apikey.Digest) (seq int64, err error) {
	return t.appendChanges(ctx, snapshot.KeyChange, digest[:], keyID)
}

// errOlderNode is in the chain of the error of a change that a node with a lease cannot read.
var errOlderNode = errors.New("a node with a lease reads only older formats of changes")

// appendChanges appends entries, unless a node with a lease does not read their format.
func (t *tx) appendChanges(ctx context.Context, k snapshot.ChangeKind, revoked []byte, recordIDs ...string) (first int64, err error) {
	format := k.Format()
	if t.ahead {
		t.format = max(t.format, format)
	}
	if r := t.reader; r != nil && r.format < format {
		t.failed = &fault.Error{
			Code: fault.Unavailable, Err: errOlderNode,
			Message: fmt.Sprintf("the node %q (version %s) cannot read this change: upgrade or stop that node, then repeat the call", r.name, r.version),
		}
		return 0, t.failed
	}
	n := int64(len(recordIDs))
	random, marks := make([]byte, 8*n), make([][]byte, n)
	if _, err := io.ReadFull(t.random, random); err != nil {
		return 0, fmt.Errorf("mark a change: %w", err)
	}
	for i := range marks {
		marks[i] = random[8*i : 8*i+8]
	}
	err = t.Queue(ctx, "append to the change log", `WITH head AS (UPDATE change_head SET number = number + $7, mark = $8, format = greatest(format, $6) RETURNING number)
		INSERT INTO changes (seq, mark, at, kind, record_id, revoked, format)
		SELECT number - $7 + u.n, u.mark, $2, $3, u.id, $5, $6 FROM head, unnest($1::bytea[], $4::text[]) WITH ORDINALITY AS u (mark, id, n)`,
		marks, t.now(), string(k), recordIDs, revoked, format, n, marks[n-1])
	if err != nil {
		return 0, err
	}
	t.appended, t.newest = t.appended+n, marks[n-1]
	if !t.held { // the number is known when the head is
		return 0, nil
	}
	return t.number + t.appended - n + 1, nil
}
