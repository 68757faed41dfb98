package postgres

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/store/rows"
)

// takeBatch notes that the transaction stores a batch of access records. isNew is false if the
// batch, or a later batch of the same writer, is stored already. If another transaction is storing
// a batch of the writer, for example because its connection was lost, takeBatch waits for it.
func (t *tx) takeBatch(ctx context.Context, b accesslog.BatchID) (isNew bool, err error) {
	if b.Writer == "" {
		return true, t.Ready(ctx)
	}
	n, err := t.Exec(ctx, "note batch", `INSERT INTO record_batches AS b (writer, number, at) VALUES ($1, $2, $3)
		ON CONFLICT (writer) DO UPDATE SET number = excluded.number, at = excluded.at WHERE b.number < excluded.number`, b.Writer, b.Number, t.now())
	return n > 0, err
}

// batchesKept is how long the last batch of a writer is known beyond the time that SQLite knows it. A node
// that could not reach the database for so long may have a batch in its spool that the database already
// has.
const batchesKept = 29 * 24 * time.Hour

// trimBatches forgets up to limit writers whose last batch was stored batchesKept before the given time.
func (t *tx) trimBatches(ctx context.Context, before time.Time, limit int) (int64, error) {
	before = before.Add(-batchesKept)
	return t.Exec(ctx, "forget writers of batches", `DELETE FROM record_batches WHERE writer IN
		(SELECT writer FROM record_batches WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`, rows.Micros(before), limit)
}
