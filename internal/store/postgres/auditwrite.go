package postgres

import (
	"context"
	"fmt"

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

// auditSealed is the message of a conflict about the end of an audit log.
const auditSealed = "the end of the audit log was sealed or joined by another node"

// JoinAuditChunks implements writer.Store.
func (db *DB) JoinAuditChunks(ctx context.Context, gone []int64, chunk audit.Chunk) error {
	return db.record(ctx, func(t *tx) error {
		last, err := t.deleteAuditChunks(ctx, chunk.AccountID, gone)
		if err != nil {
			return err
		}
		return t.Queue(ctx, "join audit chunks", `INSERT INTO audit_chunks (id, position, account_id, records, first_time, content)
			VALUES (nextval('audit_chunks_id'), $1, $2, $3, $4, $5)`, last, chunk.AccountID, chunk.Records, rows.Micros(chunk.First), chunk.Content)
	})
}

// deleteAuditChunks deletes the chunks with the given identifiers, and returns the position of the
// last one. If one of them does not exist, the error is fault.Conflict.
func (t *tx) deleteAuditChunks(ctx context.Context, accountID string, gone []int64) (last int64, err error) {
	n := 0
	err = t.Query(ctx, "delete audit chunks", `DELETE FROM audit_chunks WHERE id = ANY($1::bigint[]) AND account_id = $2 RETURNING position`,
		[]any{gone, accountID}, func(r rows.Row) error {
			var position int64
			err := r.Scan(&position)
			n, last = n+1, max(last, position)
			return err
		})
	if err == nil && n != len(gone) {
		return 0, fault.New(fault.Conflict, auditSealed)
	}
	return last, err
}

// SealAudit implements writer.Store. Moving the head of the chain, from the block that the first one
// names to the last one, is the first statement: it locks the head's row, so of two nodes that
// continue the same block one waits, and then changes no row.
func (db *DB) SealAudit(ctx context.Context, s *audit.Seal) error {
	return db.write(ctx, func(t *tx) error {
		if err := t.moveAuditHead(ctx, s); err != nil {
			return err
		}
		for i, b := range s.Blocks {
			if err := t.insertBlock(ctx, b, s.Summaries[i]); err != nil {
				return err
			}
			if b.Number%audit.GroupSize == 0 {
				if err := t.foldAudit(ctx, s.AccountID, b.Number); err != nil {
					return err
				}
			}
		}
		if _, err := t.deleteAuditChunks(ctx, s.AccountID, s.Chunks); err != nil {
			return err
		}
		n, err := t.Exec(ctx, "delete sealed audit records", `DELETE FROM audit WHERE account_id = $1 AND seq = ANY($2::bigint[])`, s.AccountID, s.Managed)
		if err == nil && n != int64(len(s.Managed)) {
			return fault.New(fault.Conflict, auditSealed)
		}
		return err
	})
}

// moveAuditHead moves the head of the chain to the last block of s. If the blocks do not continue the
// chain, the error is fault.Conflict.
func (t *tx) moveAuditHead(ctx context.Context, s *audit.Seal) error {
	if len(s.Blocks) == 0 {
		return nil
	}
	first, bytes := s.Blocks[0], int64(0)
	head := audit.Head{Number: first.Number - 1, Digest: first.Previous}
	for i, b := range s.Blocks {
		if b.Number != head.Number+1 || b.Previous != head.Digest {
			return fault.New(fault.Conflict, auditSealed)
		}
		head = b.End()
		bytes += blockSize(b, s.Summaries[i])
	}
	query := `UPDATE audit_chains SET number = $2, digest = $3, sealed_at = $4, bytes = bytes + $5 WHERE account_id = $1 AND number = $6 AND digest = $7`
	args := []any{s.AccountID, head.Number, head.Digest[:], rows.Micros(head.Time), bytes, first.Number - 1, first.Previous[:]}
	if first.Number == 1 {
		query = `INSERT INTO audit_chains (account_id, number, digest, sealed_at, bytes) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`
		args = args[:5]
	}
	n, err := t.Exec(ctx, "move the head of the audit chain", query, args...)
	if err == nil && n == 0 {
		return fault.New(fault.Conflict, auditSealed)
	}
	return err
}

// blockSize returns what a block and its summary count for the size of the log.
func blockSize(b *audit.Block, s *audit.Summary) int64 {
	return int64(len(b.Content) + len(s.Marshal()))
}

// insertBlock inserts a block and its summary.
func (t *tx) insertBlock(ctx context.Context, b *audit.Block, s *audit.Summary) error {
	err := t.Queue(ctx, "insert audit block", `INSERT INTO audit_blocks (account_id, number, previous, digest, first_time, last_time, sealed_at,
		records, bytes, content) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, b.AccountID, b.Number, b.Previous[:], b.Digest[:],
		rows.Micros(b.First), rows.Micros(b.Last), rows.Micros(b.Sealed), b.Records, blockSize(b, s), b.Content)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert audit summary", `INSERT INTO audit_summaries (account_id, number, summary) VALUES ($1, $2, $3)`, b.AccountID, b.Number, s.Marshal())
}

// foldAudit folds the summaries of the last GroupSize blocks up to through into a group.
func (t *tx) foldAudit(ctx context.Context, accountID string, through int64) error {
	var summaries []*audit.Summary
	err := t.Query(ctx, "read audit summaries", `SELECT summary FROM audit_summaries WHERE account_id = $1 AND number > $2 AND number <= $3 ORDER BY number`,
		[]any{accountID, through - audit.GroupSize, through}, func(r rows.Row) error {
			var b []byte
			if err := r.Scan(&b); err != nil {
				return err
			}
			s, err := audit.ReadSummary(b)
			summaries = append(summaries, s)
			return err
		})
	if err != nil {
		return err
	}
	if len(summaries) < audit.GroupSize {
		return nil // retention has removed some: the others are not grouped
	}
	head, segments, err := audit.Fold(summaries)
	if err != nil {
		return fmt.Errorf("fold the audit summaries up to block %d: %w", through, err)
	}
	group := audit.GroupOf(through)
	if err := t.Queue(ctx, "insert audit group", `INSERT INTO audit_groups (account_id, number, head) VALUES ($1, $2, $3)`, accountID, group, head); err != nil {
		return err
	}
	err = t.Queue(ctx, "insert audit segments", `INSERT INTO audit_segments (account_id, number, segment, bits)
		SELECT $1, $2, place - 1, bits FROM unnest($3::bytea[]) WITH ORDINALITY AS s (bits, place)`, accountID, group, segments)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "delete audit summaries", `DELETE FROM audit_summaries WHERE account_id = $1 AND number > $2 AND number <= $3`,
		accountID, through-audit.GroupSize, through)
}
