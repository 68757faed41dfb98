package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
)

// trimBlocks is how many blocks one transaction removes, so that a change waits
// little behind it.
const trimBlocks = 32

// oldest is the first block of an account's log that is there.
type oldest struct {
	account string
	plan    account.Plan
	number  int64
	last    int64
}

// TrimAudit removes blocks whose records are all older than their account's plan
// keeps them, and then the oldest of all, whatever their plan, while the blocks
// take more than maxBytes; of each account from the beginning of its log on, up to
// 32 blocks of one account in a transaction. It returns what was removed of which
// account; nothing is the end of the work.
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

// expiry returns the time, in microseconds, before which records are no longer
// kept.
func expiry(p account.Plan, now time.Time) int64 {
	return micros(now.Add(-time.Duration(p.AuditRetentionDays()) * 24 * time.Hour))
}

// trim removes the beginning of an account's log: blocks that end before the
// time before, or, if excess is not 0, as many as take that many bytes.
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
			// What was cut is older than what is removed now: it would be gone too.
			_, err = t.exec(ctx, "forget what was cut", `UPDATE audit_chains SET cut_records = 0 WHERE account_id = ? AND cut_last < ?`, o.account, before)
			return err
		}
		_, err = t.exec(ctx, "note what was cut", `UPDATE audit_chains SET
			cut_first = iif(cut_records = 0, ?, min(cut_first, ?)), cut_last = iif(cut_records = 0, ?, max(cut_last, ?)), cut_records = cut_records + ?
			WHERE account_id = ?`, first, first, last, last, done.Records, o.account)
		return err
	})
	if err != nil || done.Blocks == 0 {
		return nil, err
	}
	return done, nil
}

// removeBlocks removes an account's blocks up to through, and what is known of
// them. A group goes with its last block.
func (t *tx) removeBlocks(ctx context.Context, accountID string, through int64) error {
	group := audit.GroupOf(through + 1) // the first that is not removed whole
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
