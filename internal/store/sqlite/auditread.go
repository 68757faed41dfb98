package sqlite

import (
	"context"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/store/rows"
)

// AuditChunks implements rows.ReadTx.
func (t *readTx) AuditChunks(ctx context.Context, accountID string) (list []audit.Chunk, err error) {
	err = t.Query(ctx, "read the unsealed end of the audit log", `SELECT id, records, first_time, content FROM audit_chunks INDEXED BY audit_chunks_account
		WHERE account_id = ? ORDER BY id`, []any{accountID}, func(r *rows.Row) error {
		c := audit.Chunk{AccountID: accountID}
		var first int64
		err := r.Scan(&c.ID, &c.Records, &first, &c.Content)
		c.First = rows.Instant(first)
		list = append(list, c)
		return err
	})
	return list, err
}
