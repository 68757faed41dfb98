package postgres

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/audit"
)

// TrimAudit implements writer.Keeper. It removes up to audit.TrimBlocks blocks from the beginning of
// one account's log, in one transaction.
func (db *DB) TrimAudit(ctx context.Context, now time.Time, maxBytes int64) (*audit.Trimmed, error) {
	next, err := read(ctx, db, func(t *readTx) (*audit.Trim, error) { return t.NextAuditTrim(ctx, now, maxBytes) })
	if err != nil || next == nil {
		return nil, err
	}
	var trim audit.Trim
	err = db.record(ctx, func(t *tx) error {
		trim = *next // the transaction may run again
		return t.TrimAudit(ctx, &trim)
	})
	if err != nil || trim.Removed.Blocks == 0 {
		return nil, err
	}
	return &trim.Removed, nil
}
