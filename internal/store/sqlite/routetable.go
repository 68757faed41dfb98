package sqlite

import (
	"context"
	"os"

	"github.com/keygate/keygate/internal/store/rows"
)

// checkpointStages is the number of transactions of a large push after which the write-ahead log is written back.
const checkpointStages = 8

// staged is called after each transaction of a large push.
func (db *DB) staged(ctx context.Context, n int) {
	db.syncLog()
	if n%checkpointStages == checkpointStages-1 {
		// Else the log could grow until the writer checkpoints itself, while others wait. If this
		// fails, the checkpointer warns.
		_, _ = db.checkpointer.from.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
	}
}

// syncLog writes the write-ahead log to the disk without holding the writer, so that the next
// transaction that must be on the disk has little left to write. It is not needed for durability, so
// its errors do not matter.
func (db *DB) syncLog() {
	f, err := os.OpenFile(db.path+"-wal", os.O_RDWR, 0)
	if err != nil {
		return
	}
	_ = f.Sync()
	_ = f.Close()
}

// InsertTable implements rows.Tx.
func (t *tx) InsertTable(ctx context.Context, gatewayID, revisionID string, state int) (n int64, err error) {
	err = t.Query(ctx, "insert a route table", `INSERT INTO route_tables (gateway_id, revision_id, state, version, created_at) VALUES (?, ?, ?, 1, ?) RETURNING id`,
		[]any{gatewayID, revisionID, state, t.now()}, func(r *rows.Row) error { return r.Scan(&n) })
	t.wrote = t.wrote || err == nil
	return n, err
}
