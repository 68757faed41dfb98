package rows

import (
	"context"
	"fmt"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
)

// AuditSealed is the message of a conflict about the end of an audit log.
const AuditSealed = "the end of the audit log was sealed or joined by another process"

// SealAudit implements writer.Store. The transaction is durable: a power failure must not undo a chain whose
// digest was published.
func (s *Store) SealAudit(ctx context.Context, seal *audit.Seal) error {
	return s.engine.Write(ctx, Durable, func(t *Writer) error { return t.sealAudit(ctx, seal) })
}

// sealAudit moves records from the unsealed end of an account's log to its chain. If the blocks do not continue the chain,
// the error is fault.Conflict. The first statement moves the head of the chain, from the predecessor of the first block
// to the last block. It locks the head's row, so if two nodes continue the same block, one waits, and then changes no
// row.
func (t *Writer) sealAudit(ctx context.Context, s *audit.Seal) error {
	summaries := make([][]byte, len(s.Summaries))
	for i, summary := range s.Summaries {
		summaries[i] = summary.Marshal()
	}
	if err := t.moveAuditHead(ctx, s, summaries); err != nil {
		return err
	}
	for i, b := range s.Blocks {
		if err := t.insertBlock(ctx, b, summaries[i]); err != nil {
			return err
		}
		if b.Number%audit.GroupSize == 0 {
			if err := t.foldAudit(ctx, s.AccountID, b.Number); err != nil {
				return err
			}
		}
	}
	if _, err := t.DeleteAuditChunks(ctx, s.AccountID, s.Chunks); err != nil || len(s.Managed) == 0 {
		return err
	}
	n, err := t.Exec(ctx, "delete sealed audit records", `DELETE FROM audit WHERE account_id = $1 AND seq = ANY ($2)`, s.AccountID, s.Managed)
	if err == nil && n != int64(len(s.Managed)) {
		return fault.New(fault.Conflict, AuditSealed)
	}
	return err
}

// moveAuditHead moves the head of the chain to the last block of s. If the blocks do not continue the
// chain, the error is fault.Conflict.
func (t *Writer) moveAuditHead(ctx context.Context, s *audit.Seal, summaries [][]byte) error {
	if len(s.Blocks) == 0 {
		return nil
	}
	first, bytes := s.Blocks[0], int64(0)
	head := audit.Head{Number: first.Number - 1, Digest: first.Previous}
	for i, b := range s.Blocks {
		if b.Number != head.Number+1 || b.Previous != head.Digest {
			return fault.New(fault.Conflict, AuditSealed)
		}
		head = b.End()
		bytes += int64(len(b.Content) + len(summaries[i]))
	}
	query := `UPDATE audit_chains SET number = $2, digest = $3, sealed_at = $4, bytes = bytes + $5 WHERE account_id = $1 AND number = $6 AND digest = $7`
	args := []any{s.AccountID, head.Number, head.Digest[:], Micros(head.Time), bytes, first.Number - 1, first.Previous[:]}
	if first.Number == 1 {
		query = `INSERT INTO audit_chains (account_id, number, digest, sealed_at, bytes) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`
		args = args[:5]
	}
	n, err := t.Exec(ctx, "move the head of the audit chain", query, args...)
	if err == nil && n == 0 {
		return fault.New(fault.Conflict, AuditSealed)
	}
	return err
}

// insertBlock inserts a block and its summary.
func (t *Writer) insertBlock(ctx context.Context, b *audit.Block, summary []byte) error {
	err := t.Queue(ctx, "insert audit block", `INSERT INTO audit_blocks (account_id, number, previous, digest, first_time, last_time, sealed_at,
		records, bytes, content) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, b.AccountID, b.Number, b.Previous[:], b.Digest[:],
		Micros(b.First), Micros(b.Last), Micros(b.Sealed), b.Records, int64(len(b.Content)+len(summary)), b.Content)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert audit summary", `INSERT INTO audit_summaries (account_id, number, summary) VALUES ($1, $2, $3)`, b.AccountID, b.Number, summary)
}

// foldAudit folds the summaries of the last GroupSize blocks up to through into a group.
func (t *Writer) foldAudit(ctx context.Context, accountID string, through int64) error {
	var summaries []*audit.Summary
	err := t.Query(ctx, "read audit summaries", `SELECT summary FROM audit_summaries WHERE account_id = $1 AND number > $2 AND number <= $3 ORDER BY number`,
		[]any{accountID, through - audit.GroupSize, through}, func(r *Row) error {
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
	if err := t.insertSegments(ctx, accountID, group, segments); err != nil {
		return err
	}
	return t.Queue(ctx, "delete audit summaries", `DELETE FROM audit_summaries WHERE account_id = $1 AND number > $2 AND number <= $3`,
		accountID, through-audit.GroupSize, through)
}

// insertSegments adds the segments of a group of audit blocks.
func (t *Writer) insertSegments(ctx context.Context, accountID string, group int64, segments [][]byte) error {
	numbers := make([]int64, len(segments))
	for i := range numbers {
		numbers[i] = int64(i)
	}
	return t.QueueEach(ctx, "insert audit segments", `INSERT INTO audit_segments (account_id, number, segment, bits)
		SELECT $1::text, $2::bigint, s.segment, s.bits FROM unnest($3::bigint[], $4::bytea[]) AS s (segment, bits)`, accountID, group, numbers, segments)
}
