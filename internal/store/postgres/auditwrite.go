package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
)

var (
	_ auditwriter.Store  = (*DB)(nil)
	_ auditwriter.Keeper = (*DB)(nil)
)

// InsertAuditChunks implements rows.Tx.
func (t *tx) InsertAuditChunks(ctx context.Context, chunks []audit.Chunk) error {
	if len(chunks) == 0 {
		return nil
	}
	n := len(chunks)
	accounts, records, firsts, contents := make([]string, n), make([]int64, n), make([]int64, n), make([][]byte, n)
	for i := range chunks {
		c := &chunks[i]
		accounts[i], records[i], firsts[i], contents[i] = c.AccountID, int64(c.Records), rows.Micros(c.First), c.Content
	}
	return t.Queue(ctx, "append audit chunks", `INSERT INTO audit_chunks (id, position, account_id, records, first_time, content)
		SELECT id, id, account_id, records, first_time, content FROM (
			SELECT nextval('audit_chunks_id') AS id, c.* FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[])
			WITH ORDINALITY AS c (account_id, records, first_time, content, place) ORDER BY place
		) AS numbered`, accounts, records, firsts, contents)
}

// JoinAuditChunks implements writer.Store.
func (db *DB) JoinAuditChunks(ctx context.Context, gone []int64, chunk audit.Chunk) error {
	return db.record(ctx, func(t *tx) error {
		last, err := t.DeleteAuditChunks(ctx, chunk.AccountID, gone)
		if err != nil {
			return err
		}
		return t.Queue(ctx, "join audit chunks", `INSERT INTO audit_chunks (id, position, account_id, records, first_time, content)
			VALUES (nextval('audit_chunks_id'), $1, $2, $3, $4, $5)`, last, chunk.AccountID, chunk.Records, rows.Micros(chunk.First), chunk.Content)
	})
}

// DeleteAuditChunks deletes the chunks with the given identifiers, and returns the position of the
// last chunk. If one of them does not exist, the error is fault.Conflict.
func (t *tx) DeleteAuditChunks(ctx context.Context, accountID string, gone []int64) (last int64, err error) {
	n := 0
	err = t.Query(ctx, "delete audit chunks", `DELETE FROM audit_chunks WHERE id = ANY($1::bigint[]) AND account_id = $2 RETURNING position`,
		[]any{gone, accountID}, func(r *rows.Row) error {
			var position int64
			err := r.Scan(&position)
			n, last = n+1, max(last, position)
			return err
		})
	if err == nil && n != len(gone) {
		return 0, fault.New(fault.Conflict, rows.AuditSealed)
	}
	return last, err
}
