package rows

import (
	"context"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
)

// AppendAuditChunks implements writer.Store. With management records, the transaction is durable.
func (s *Store) AppendAuditChunks(ctx context.Context, batch accesslog.BatchID, chunks []audit.Chunk, records []*audit.Record) error {
	d := OfTraffic
	if len(records) > 0 {
		d = Durable
	}
	return s.writeBatch(ctx, d, batch, func(t *Writer) error {
		if err := t.InsertAuditChunks(ctx, chunks); err != nil {
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
