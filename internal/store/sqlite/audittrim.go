package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
)

// trimBlocks is how many blocks one transaction removes, so that it does not delay other
// writers for long.
const trimBlocks = 32

// oldest is the first remaining block of an account's log.
type oldest struct {
	account string
	plan    account.Plan
	number  int64
	last    int64
}

// TrimAudit removes up to 32 blocks from the beginning of one account's log, in one
// transaction. It first removes blocks whose records are all older than the retention of
// the account's plan. If there are none and the blocks take more than maxBytes, it removes
// the oldest blocks, whatever their plan. It returns what it removed, or nil if there was
// nothing to remove.
func (db *DB) TrimAudit(ctx context.Context, now time.Time, maxBytes int64) (*audit.Trimmed, error) {
	var all []oldest
	var bytes int64
	err := view(ctx, db.source, func(t *readTx) error {
		err := t.rows(ctx, "find the oldest audit blocks", `SELECT c.account_id, a.plan, b.number, b.last_time
			FROM audit_chains c JOIN audit_blocks b ON b.account_id = c.account_id AND b.number = c.base + 1 JOIN accounts a ON a.id = c.account_id
			ORDER BY b.last_time`, nil, func(r *sql.Rows) error {
			var o oldest
			err := r.Scan(&o.account, &o.plan, &o.number, &o.last)
			all = append(all, o)
			return err
		})
		if err != nil {
			return err
		}
		return t.rows(ctx, "measure the audit log", `SELECT coalesce(sum(bytes), 0) FROM audit_chains`, nil, func(r *sql.Rows) error { return r.Scan(&bytes) })
	})
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		if before := expiry(o.plan, now); o.last < before {
			return db.trim(ctx, o, before, 0)
		}
	}
	if len(all) > 0 && bytes > maxBytes {
		return db.trim(ctx, all[0], expiry(all[0].plan, now), bytes-maxBytes)
	}
	return nil, nil
}

// expiry returns the time, in microseconds, before which the plan keeps no records.
func expiry(p account.Plan, now time.Time) int64 {
	return micros(now.Add(-time.Duration(p.AuditRetentionDays()) * 24 * time.Hour))
}

// trim removes blocks from the beginning of an account's log: if excess is 0, those that end
// before the time before, otherwise blocks of at least excess bytes in total.
func (db *DB) trim(ctx context.Context, o oldest, before, excess int64) (*audit.Trimmed, error) {
	done := &audit.Trimmed{AccountID: o.account, Early: excess > 0}
	err := db.record(ctx, func(t *tx) error {
		var (
			bytes, first, last, sealed int64
			through                    int64
			digest                     []byte
			ended                      bool
		)
		err := t.rows(ctx, "read the oldest audit blocks", `SELECT number, digest, first_time, last_time, sealed_at, records, bytes FROM audit_blocks
			WHERE account_id = ? AND number >= ? ORDER BY number LIMIT ?+0`, []any{o.account, o.number, trimBlocks}, func(r *sql.Rows) error {
			var number, blockFirst, blockLast, blockSealed, records, size int64
			var blockDigest []byte
			if err := r.Scan(&number, &blockDigest, &blockFirst, &blockLast, &blockSealed, &records, &size); err != nil {
				return err
			}
			if ended = ended || excess == 0 && blockLast >= before || excess > 0 && bytes >= excess; ended {
				return nil
			}
			if done.Blocks == 0 {
				first, last = blockFirst, blockLast
			}
			first, last = min(first, blockFirst), max(last, blockLast)
			through, digest, sealed = number, blockDigest, blockSealed
			done.Blocks++
			done.Records += records
			bytes += size
			return nil
		})
		if err != nil || done.Blocks == 0 {
			return err
		}
		done.Last = instant(last)
		if err := t.removeBlocks(ctx, o.account, through); err != nil {
			return err
		}
		_, err = t.exec(ctx, "move the base of the audit chain", `UPDATE audit_chains SET base = ?, base_digest = ?, base_sealed = ?, bytes = bytes - ?
			WHERE account_id = ?`, through, digest, sealed, bytes, o.account)
		if err != nil {
			return err
		}
		if excess == 0 {
			// A gap before this time would be past its retention now too.
			_, err = t.exec(ctx, "forget the gap of the audit log", `UPDATE audit_chains SET cut_records = 0 WHERE account_id = ? AND cut_last < ?`, o.account, before)
			return err
		}
		_, err = t.exec(ctx, "record the gap of the audit log", `UPDATE audit_chains SET
			cut_first = iif(cut_records = 0, ?, min(cut_first, ?)), cut_last = iif(cut_records = 0, ?, max(cut_last, ?)), cut_records = cut_records + ?
			WHERE account_id = ?`, first, first, last, last, done.Records, o.account)
		return err
	})
	if err != nil || done.Blocks == 0 {
		return nil, err
	}
	return done, nil
}

// removeBlocks removes an account's blocks up to through with their summaries, groups and
// segments. A group is removed with its last block.
func (t *tx) removeBlocks(ctx context.Context, accountID string, through int64) error {
	group := audit.GroupOf(through + 1) // the first that remains
	for _, step := range []struct {
		what, query string
		bound       int64
	}{
		{"remove audit blocks", `DELETE FROM audit_blocks WHERE account_id = ? AND number <= ?`, through},
		{"remove audit summaries", `DELETE FROM audit_summaries WHERE account_id = ? AND number <= ?`, through},
		{"remove audit groups", `DELETE FROM audit_groups WHERE account_id = ? AND number < ?`, group},
		{"remove audit segments", `DELETE FROM audit_segments WHERE account_id = ? AND number < ?`, group},
	} {
		if _, err := t.exec(ctx, step.what, step.query, accountID, step.bound); err != nil {
			return err
		}
	}
	return nil
}
