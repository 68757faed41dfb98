package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
)

// AppendAuditChunks adds chunks and management records to the unsealed ends of their
// accounts' logs, in one transaction. It ignores Chunk.ID. Without management records, the
// transaction is not synced to the disk.
func (db *DB) AppendAuditChunks(ctx context.Context, batch accesslog.BatchID, chunks []audit.Chunk, records []*audit.Record) error {
	write := db.record
	if len(records) > 0 {
		write = db.write
	}
	return write(ctx, func(t *tx) error {
		if isNew, err := t.takeBatch(ctx, batch); err != nil || !isNew {
			return err
		}
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
	_, err := t.Exec(ctx, "append audit chunk", `INSERT INTO audit_chunks (id, account_id, records, first_time, content) VALUES (?, ?, ?, ?, ?)`,
		sql.NullInt64{Int64: id, Valid: id != 0}, c.AccountID, c.Records, rows.Micros(c.First), c.Content)
	return err
}

// JoinAuditChunks implements writer.Store. The new chunk has the identifier of the last that it
// replaces, and with it its place. What reads a log and writes it later is not misled by that: it
// reads all chunks before the last one too, and these do not exist any more.
func (db *DB) JoinAuditChunks(ctx context.Context, gone []int64, chunk audit.Chunk) error {
	return db.record(ctx, func(t *tx) error {
		if err := t.deleteChunks(ctx, chunk.AccountID, gone); err != nil {
			return err
		}
		return t.insertChunk(ctx, gone[len(gone)-1], &chunk)
	})
}

// deleteChunks deletes the chunks with the given identifiers. If one of them does not exist, the
// error is fault.Conflict.
func (t *tx) deleteChunks(ctx context.Context, accountID string, gone []int64) error {
	ids, err := maybeJSON(gone, len(gone) == 0)
	if err != nil || ids == nil {
		return err
	}
	n, err := t.Exec(ctx, "delete audit chunks", `DELETE FROM audit_chunks WHERE id IN (SELECT value FROM json_each(?)) AND account_id = ?`, ids, accountID)
	if err == nil && n != int64(len(gone)) {
		return fault.New(fault.Conflict, auditSealed)
	}
	return err
}

// auditSealed is the message of a conflict about the end of an audit log.
const auditSealed = "the end of the audit log was sealed or joined by another process"

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
				return fault.New(fault.Conflict, auditSealed)
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
		_, err = t.Exec(ctx, "write audit chain", `INSERT INTO audit_chains (account_id, number, digest, sealed_at, bytes) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (account_id) DO UPDATE SET number = excluded.number, digest = excluded.digest, sealed_at = excluded.sealed_at,
			bytes = bytes + excluded.bytes`, s.AccountID, head.Number, head.Digest[:], rows.Micros(head.Time), bytes)
		if err != nil {
			return err
		}
		if err := t.deleteChunks(ctx, s.AccountID, s.Chunks); err != nil {
			return err
		}
		return t.deleteSealed(ctx, s.AccountID, s.Managed)
	})
}

// deleteSealed deletes management records that are in a block. If one of them does not exist, the error is fault.Conflict.
func (t *tx) deleteSealed(ctx context.Context, accountID string, seqs []int64) error {
	list, err := maybeJSON(seqs, len(seqs) == 0)
	if err != nil || list == nil {
		return err
	}
	n, err := t.Exec(ctx, "delete sealed audit records", `DELETE FROM audit WHERE account_id = ? AND seq IN (SELECT value FROM json_each(?))`, accountID, list)
	if err == nil && n != int64(len(seqs)) {
		return fault.New(fault.Conflict, auditSealed)
	}
	return err
}

// insertBlock inserts a block and its summary, and returns their size in bytes.
func (t *tx) insertBlock(ctx context.Context, b *audit.Block, s *audit.Summary) (int64, error) {
	summary := s.Marshal()
	bytes := int64(len(b.Content) + len(summary))
	_, err := t.Exec(ctx, "insert audit block", `INSERT INTO audit_blocks (account_id, number, previous, digest, first_time, last_time, sealed_at,
		records, bytes, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, b.AccountID, b.Number, b.Previous[:], b.Digest[:],
		rows.Micros(b.First), rows.Micros(b.Last), rows.Micros(b.Sealed), b.Records, bytes, b.Content)
	if err != nil {
		return 0, err
	}
	_, err = t.Exec(ctx, "insert audit summary", `INSERT INTO audit_summaries (account_id, number, summary) VALUES (?, ?, ?)`, b.AccountID, b.Number, summary)
	return bytes, err
}

// foldAudit folds the summaries of the last GroupSize blocks up to through into a group.
func (t *tx) foldAudit(ctx context.Context, accountID string, through int64) error {
	var summaries []*audit.Summary
	err := t.Query(ctx, "read audit summaries", `SELECT summary FROM audit_summaries WHERE account_id = ? AND number > ? AND number <= ? ORDER BY number`,
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
	if _, err := t.Exec(ctx, "insert audit group", `INSERT INTO audit_groups (account_id, number, head) VALUES (?, ?, ?)`, accountID, group, head); err != nil {
		return err
	}
	for i, bits := range segments {
		_, err := t.Exec(ctx, "insert audit segment", `INSERT INTO audit_segments (account_id, number, segment, bits) VALUES (?, ?, ?, ?)`,
			accountID, group, i, bits)
		if err != nil {
			return err
		}
	}
	_, err = t.Exec(ctx, "delete audit summaries", `DELETE FROM audit_summaries WHERE account_id = ? AND number > ? AND number <= ?`,
		accountID, through-audit.GroupSize, through)
	return err
}
