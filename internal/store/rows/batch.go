package rows

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
)

// TakeBatch notes that the transaction stores a batch of access records. isNew is false if the
// batch, or a later batch of the same writer, is stored already. If another transaction is storing
// a batch of the writer, for example because its connection was lost, takeBatch waits for it.
func (t *Writer) TakeBatch(ctx context.Context, b accesslog.BatchID) (isNew bool, err error) {
	if b.Writer == "" {
		return true, t.Ready(ctx)
	}
	n, err := t.Exec(ctx, "note batch", `INSERT INTO record_batches AS b (writer, number, at) VALUES ($1, $2, $3)
		ON CONFLICT (writer) DO UPDATE SET number = excluded.number, at = excluded.at WHERE b.number < excluded.number`, b.Writer, b.Number, t.Now())
	return n > 0, err
}

// TrimBatches forgets up to limit writers whose last batch was stored before the given time.
func (t *Writer) TrimBatches(ctx context.Context, before time.Time, limit int) (int64, error) {
	return t.Exec(ctx, "forget writers of batches", `DELETE FROM record_batches WHERE writer IN
		(SELECT writer FROM record_batches INDEXED BY record_batches_age WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)`, Micros(before), limit)
}

// writeBatch runs f in a transaction that stores a batch of access records, unless that is stored already.
func (s *Store) writeBatch(ctx context.Context, d Durability, b accesslog.BatchID, f func(*Writer) error) error {
	return s.engine.Write(ctx, d, func(t *Writer) error {
		if isNew, err := t.TakeBatch(ctx, b); err != nil || !isNew {
			return err
		}
		return f(t)
	})
}
