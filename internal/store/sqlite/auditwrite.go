package sqlite

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
)

// InsertAuditChunks implements rows.Tx.
func (t *tx) InsertAuditChunks(ctx context.Context, chunks []audit.Chunk) error {
	for i := range chunks {
		if err := t.insertChunk(ctx, 0, &chunks[i]); err != nil {
			return err
		}
	}
	return nil
}

// insertChunk inserts a chunk with the identifier id, or with the next identifier if id is 0.
func (t *tx) insertChunk(ctx context.Context, id int64, c *audit.Chunk) error {
	_, err := t.Exec(ctx, "append audit chunk", `INSERT INTO audit_chunks (id, account_id, records, first_time, content) VALUES (?, ?, ?, ?, ?)`,
		sql.NullInt64{Int64: id, Valid: id != 0}, c.AccountID, c.Records, rows.Micros(c.First), c.Content)
	return err
}

// JoinAuditChunks implements writer.Store. The new chunk has the identifier, and so the position,
// of the last chunk that it replaces. This does not mislead code that reads a log and writes it
// later: it also reads the chunks before the last one, and these do not exist any more.
func (db *DB) JoinAuditChunks(ctx context.Context, gone []int64, chunk audit.Chunk) error {
	return db.record(ctx, func(t *tx) error {
		if _, err := t.DeleteAuditChunks(ctx, chunk.AccountID, gone); err != nil {
			return err
		}
		return t.insertChunk(ctx, gone[len(gone)-1], &chunk)
	})
}

// DeleteAuditChunks implements rows.Tx.
func (t *tx) DeleteAuditChunks(ctx context.Context, accountID string, gone []int64) (last int64, err error) {
	if len(gone) == 0 {
		return 0, t.Ready(ctx)
	}
	n, err := t.Exec(ctx, "delete audit chunks", `DELETE FROM audit_chunks WHERE id = ANY ($1) AND account_id = $2`, gone, accountID)
	if err == nil && n != int64(len(gone)) {
		return 0, fault.New(fault.Conflict, rows.AuditSealed)
	}
	return gone[len(gone)-1], err
}
