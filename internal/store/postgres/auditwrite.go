package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
)

var (
	_ auditwriter.Store  = (*DB)(nil)
	_ auditwriter.Keeper = (*DB)(nil)
)

// AppendAuditChunks implements writer.Store. Without management records, COMMIT does not wait for
// the server's disk.
func (db *DB) AppendAuditChunks(ctx context.Context, batch accesslog.BatchID, chunks []audit.Chunk, records []*audit.Record) error {
	write := db.record
	if len(records) > 0 {
		write = db.write
	}
	return write(ctx, func(t *tx) error {
		if isNew, err := t.takeBatch(ctx, batch); err != nil || !isNew {
			return err
		}
		if err := t.insertAuditChunks(ctx, chunks); err != nil {
			return err
		}
		for _, r := range records {
			if err := t.AppendAudit(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *tx) insertAuditChunks(ctx context.Context, chunks []audit.Chunk) error {
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

// SealAudit implements writer.Store.
func (db *DB) SealAudit(ctx context.Context, s *audit.Seal) error {
	return db.write(ctx, func(t *tx) error { return t.SealAudit(ctx, s) })
}

// InsertSegments implements rows.Tx.
func (t *tx) InsertSegments(ctx context.Context, accountID string, group int64, segments [][]byte) error {
	return t.Queue(ctx, "insert audit segments", `INSERT INTO audit_segments (account_id, number, segment, bits)
		SELECT $1, $2, place - 1, bits FROM unnest($3::bytea[]) WITH ORDINALITY AS s (bits, place)`, accountID, group, segments)
}
