package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
)

// AppendAuditChunks adds chunks and management records to the unsealed ends of their
// accounts' logs, in one transaction. It ignores Chunk.ID. Without management records, the
// transaction is not synced to the disk.
func (db *DB) AppendAuditChunks(ctx context.Context, chunks []audit.Chunk, records []*audit.Record) error {
	write := db.record
	if len(records) > 0 {
		write = db.write
	}
	return write(ctx, func(t *tx) error {
		for i := range chunks {
			if err := t.insertChunk(ctx, 0, &chunks[i]); err != nil {
				return err
			}
		}
		for _, r := range records {
			if err := t.AppendAudit(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// insertChunk inserts a chunk with the given identifier, or with the next one if id is 0.
func (t *tx) insertChunk(ctx context.Context, id int64, c *audit.Chunk) error {
	_, err := t.exec(ctx, "append audit chunk", `INSERT INTO audit_chunks (id, account_id, records, first_time, content) VALUES (?, ?, ?, ?, ?)`,
		sql.NullInt64{Int64: id, Valid: id != 0}, c.AccountID, c.Records, micros(c.First), c.Content)
	return err
}

// JoinAuditChunks replaces all chunks of the account up to chunk.ID by chunk.
func (db *DB) JoinAuditChunks(ctx context.Context, chunk audit.Chunk) error {
	return db.record(ctx, func(t *tx) error {
		if err := t.deleteChunks(ctx, chunk.AccountID, chunk.ID); err != nil {
			return err
		}
		return t.insertChunk(ctx, chunk.ID, &chunk)
	})
}

func (t *tx) deleteChunks(ctx context.Context, accountID string, through int64) error {
	_, err := t.exec(ctx, "delete audit chunks", `DELETE FROM audit_chunks WHERE id IN
		(SELECT id FROM audit_chunks INDEXED BY audit_chunks_account WHERE account_id = ? AND id <= ?)`, accountID, through)
	return err
}

// SealAudit moves records from the unsealed end of an account's log to its chain, in one
// transaction. If the blocks do not continue the chain, the error is fault.Conflict. The
// transaction is synced to the disk: a power failure must not undo a chain whose digest was
// published.
func (db *DB) SealAudit(ctx context.Context, s *audit.Seal) error {
	return db.write(ctx, func(t *tx) error {
		chain, err := t.AuditChain(ctx, s.AccountID)
		if err != nil {
			return err
		}
		head, bytes := chain.Head, int64(0)
		for i, b := range s.Blocks {
			if b.Number != head.Number+1 || b.Previous != head.Digest {
				return fault.New(fault.Conflict, "the block does not continue the audit log: another process has sealed it")
			}
			n, err := t.insertBlock(ctx, b, s.Summaries[i])
			if err != nil {
				return err
			}
			bytes += n
			head = b.End()
			if b.Number%audit.GroupSize == 0 {
				if err := t.foldAudit(ctx, s.AccountID, b.Number); err != nil {
					return err
				}
			}
		}
		_, err = t.exec(ctx, "write audit chain", `INSERT INTO audit_chains (account_id, number, digest, sealed_at, bytes) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (account_id) DO UPDATE SET number = excluded.number, digest = excluded.digest, sealed_at = excluded.sealed_at,
			bytes = bytes + excluded.bytes`, s.AccountID, head.Number, head.Digest[:], micros(head.Time), bytes)
		if err != nil {
			return err
		}
		if err := t.deleteChunks(ctx, s.AccountID, s.Through); err != nil {
			return err
		}
		for _, seq := range s.Managed {
			if err := t.must(ctx, "delete sealed audit record", "audit record", `DELETE FROM audit WHERE account_id = ? AND seq = ?`, s.AccountID, seq); err != nil {
				return err
			}
		}
		return nil
	})
}

// insertBlock inserts a block and its summary, and returns their size in bytes.
func (t *tx) insertBlock(ctx context.Context, b *audit.Block, s *audit.Summary) (int64, error) {
	summary := s.Marshal()
	bytes := int64(len(b.Content) + len(summary))
	_, err := t.exec(ctx, "insert audit block", `INSERT INTO audit_blocks (account_id, number, previous, digest, first_time, last_time, sealed_at,
		records, bytes, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, b.AccountID, b.Number, b.Previous[:], b.Digest[:],
		micros(b.First), micros(b.Last), micros(b.Sealed), b.Records, bytes, b.Content)
	if err != nil {
		return 0, err
	}
	_, err = t.exec(ctx, "insert audit summary", `INSERT INTO audit_summaries (account_id, number, summary) VALUES (?, ?, ?)`, b.AccountID, b.Number, summary)
	return bytes, err
}

// foldAudit folds the summaries of the last GroupSize blocks up to through into a group.
func (t *tx) foldAudit(ctx context.Context, accountID string, through int64) error {
	var summaries []*audit.Summary
	err := t.rows(ctx, "read audit summaries", `SELECT summary FROM audit_summaries WHERE account_id = ? AND number > ? AND number <= ? ORDER BY number`,
		[]any{accountID, through - audit.GroupSize, through}, func(r *sql.Rows) error {
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
	if _, err := t.exec(ctx, "insert audit group", `INSERT INTO audit_groups (account_id, number, head) VALUES (?, ?, ?)`, accountID, group, head); err != nil {
		return err
	}
	for i, bits := range segments {
		_, err := t.exec(ctx, "insert audit segment", `INSERT INTO audit_segments (account_id, number, segment, bits) VALUES (?, ?, ?, ?)`,
			accountID, group, i, bits)
		if err != nil {
			return err
		}
	}
	_, err = t.exec(ctx, "delete audit summaries", `DELETE FROM audit_summaries WHERE account_id = ? AND number > ? AND number <= ?`,
		accountID, through-audit.GroupSize, through)
	return err
}
