package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/store/rows"
)

// AuditChunks implements rows.ReadTx.
func (t *readTx) AuditChunks(ctx context.Context, accountID string) (list []audit.Chunk, err error) {
	err = t.Query(ctx, "read the unsealed end of the audit log", `SELECT id, records, first_time, content FROM audit_chunks
		WHERE account_id = $1 ORDER BY position, id`, []any{accountID}, func(r *rows.Row) error {
		c := audit.Chunk{AccountID: accountID}
		var first int64
		err := r.Scan(&c.ID, &c.Records, &first, &c.Content)
		c.First = rows.Instant(first)
		list = append(list, c)
		return err
	})
	return list, err
}

// AuditOpen returns the unsealed end of an account's log, with the oldest of its management records.
func (db *DB) AuditOpen(ctx context.Context, accountID string) (*audit.Open, error) {
	return read(ctx, db, func(t *readTx) (*audit.Open, error) {
		return t.AuditSource(accountID).Open(ctx, audit.WithRecords|audit.OnlyOldest)
	})
}

// AuditWaiting returns the size of the unsealed end of each account's log that has one.
func (db *DB) AuditWaiting(ctx context.Context) ([]audit.Waiting, error) {
	return read(ctx, db, func(t *readTx) ([]audit.Waiting, error) { return t.AuditWaiting(ctx) })
}

// AuditChains returns the chain of each account that has one.
func (db *DB) AuditChains(ctx context.Context) ([]audit.Chain, error) {
	return read(ctx, db, func(t *readTx) ([]audit.Chain, error) { return t.AuditChains(ctx) })
}
