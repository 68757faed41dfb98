package rows

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/audit"
)

// TrimAudit implements writer.Keeper. It removes up to audit.TrimBlocks blocks from the beginning of
// one account's log, in one transaction.
func (s *Store) TrimAudit(ctx context.Context, now time.Time, maxBytes int64) (*audit.Trimmed, error) {
	next, err := read(ctx, s, DataPlane, func(t *Reader) (*audit.Trim, error) { return t.nextAuditTrim(ctx, now, maxBytes) })
	if err != nil || next == nil {
		return nil, err
	}
	var trim audit.Trim
	err = s.engine.Write(ctx, OfTraffic, func(t *Writer) error {
		trim = *next // the transaction may run again
		return t.trimAudit(ctx, &trim)
	})
	if err != nil || trim.Removed.Blocks == 0 {
		return nil, err
	}
	return &trim.Removed, nil
}

// nextAuditTrim returns the next step of the audit log's retention, or nil if there is nothing to remove.
func (t *Reader) nextAuditTrim(ctx context.Context, now time.Time, maxBytes int64) (*audit.Trim, error) {
	starts, err := readAll(ctx, t, "find the oldest audit blocks", `SELECT c.account_id, a.plan, b.number, b.last_time
		FROM audit_chains c JOIN audit_blocks b ON b.account_id = c.account_id AND b.number = c.base + 1 JOIN accounts a ON a.id = c.account_id
		ORDER BY b.last_time`, nil, func(r *Row) (s audit.LogStart, err error) {
		var last int64
		err = r.Scan(&s.AccountID, &s.Tier, &s.Number, &last)
		s.Last = Instant(last)
		return s, err
	})
	if err != nil {
		return nil, err
	}
	var bytes int64
	err = t.Query(ctx, "measure the audit log", `SELECT coalesce(sum(bytes), 0)::bigint FROM audit_chains`, nil, func(r *Row) error { return r.Scan(&bytes) })
	if err != nil {
		return nil, err
	}
	return audit.NextTrim(starts, bytes, maxBytes, now), nil
}

// trimAudit carries out a step of retention. If another node has removed blocks since the step was
// chosen, it does nothing.
func (t *Writer) trimAudit(ctx context.Context, trim *audit.Trim) error {
	base := int64(-1)
	err := t.Query(ctx, "lock the audit chain", `SELECT base FROM audit_chains WHERE account_id = $1 FOR NO KEY UPDATE`, []any{trim.AccountID},
		func(r *Row) error { return r.Scan(&base) })
	if err != nil || base+1 != trim.From {
		return err
	}
	err = t.Query(ctx, "read the oldest audit blocks", `SELECT number, digest, first_time, last_time, sealed_at, records, bytes FROM audit_blocks
		WHERE account_id = $1 AND number >= $2 ORDER BY number LIMIT $3`, []any{trim.AccountID, trim.From, audit.TrimBlocks}, func(r *Row) error {
		var b audit.OldBlock
		var digest []byte
		var first, last, sealed int64
		if err := r.Scan(&b.Number, &digest, &first, &last, &sealed, &b.Records, &b.Bytes); err != nil {
			return err
		}
		copy(b.Digest[:], digest)
		b.First, b.Last, b.Sealed = Instant(first), Instant(last), Instant(sealed)
		trim.Take(&b)
		return nil
	})
	if err != nil || trim.Removed.Blocks == 0 {
		return err
	}
	if err := t.removeBlocks(ctx, trim.AccountID, trim.Base.Number); err != nil {
		return err
	}
	err = t.Queue(ctx, "move the base of the audit chain", `UPDATE audit_chains SET base = $1, base_digest = $2, base_sealed = $3, bytes = bytes - $4
		WHERE account_id = $5`, trim.Base.Number, trim.Base.Digest[:], Micros(trim.Base.Time), trim.Bytes, trim.AccountID)
	if err != nil {
		return err
	}
	if !trim.Removed.Early {
		// A gap before this time would be past its retention now too.
		return t.Queue(ctx, "forget the gap of the audit log", `UPDATE audit_chains SET cut_records = 0 WHERE account_id = $1 AND cut_last < $2`,
			trim.AccountID, Micros(trim.Before))
	}
	return t.Queue(ctx, "record the gap of the audit log", `UPDATE audit_chains SET
		cut_first = CASE WHEN cut_records = 0 THEN $1 ELSE least(cut_first, $1) END,
		cut_last = CASE WHEN cut_records = 0 THEN $2 ELSE greatest(cut_last, $2) END, cut_records = cut_records + $3
		WHERE account_id = $4`, Micros(trim.First), Micros(trim.Last), trim.Removed.Records, trim.AccountID)
}

// removeBlocks removes an account's blocks up to through with their summaries, groups and
// segments. A group is removed with its last block.
func (t *Writer) removeBlocks(ctx context.Context, accountID string, through int64) error {
	group := audit.GroupOf(through + 1) // the first that remains
	for _, step := range []struct {
		what, query string
		bound       int64
	}{
		{"remove audit blocks", `DELETE FROM audit_blocks WHERE account_id = $1 AND number <= $2`, through},
		{"remove audit summaries", `DELETE FROM audit_summaries WHERE account_id = $1 AND number <= $2`, through},
		{"remove audit groups", `DELETE FROM audit_groups WHERE account_id = $1 AND number < $2`, group},
		{"remove audit segments", `DELETE FROM audit_segments WHERE account_id = $1 AND number < $2`, group},
	} {
		if err := t.Queue(ctx, step.what, step.query, accountID, step.bound); err != nil {
			return err
		}
	}
	return nil
}
