package sqlite

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/store/rows"
)

// takeBatch notes that the transaction stores a batch of access records. isNew is false if the
// batch, or a later batch of the same writer, is stored already.
func (t *tx) takeBatch(ctx context.Context, b accesslog.BatchID) (isNew bool, err error) {
	if b.Writer == "" {
		return true, t.Ready(ctx)
	}
	n, err := t.Exec(ctx, "note batch", `INSERT INTO record_batches (writer, number, at) VALUES (?, ?, ?)
		ON CONFLICT (writer) DO UPDATE SET number = excluded.number, at = excluded.at WHERE number < excluded.number`, b.Writer, b.Number, t.now())
	return n > 0, err
}

// trimBatches forgets up to limit writers whose last batch was stored before the given time.
func (t *tx) trimBatches(ctx context.Context, before time.Time, limit int) (int64, error) {
	return t.Exec(ctx, "forget writers of batches", `DELETE FROM record_batches WHERE writer IN
		(SELECT writer FROM record_batches INDEXED BY record_batches_age WHERE at < ? ORDER BY at LIMIT ?+0)`, rows.Micros(before), limit)
}
