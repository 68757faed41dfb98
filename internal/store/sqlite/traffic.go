package sqlite

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/traffic"
)

// TrafficChunks implements rows.ReadTx. It reads the chunks one by one.
func (t *readTx) TrafficChunks(ctx context.Context, seqs []int64, f func(*traffic.Chunk) error) error {
	for _, seq := range seqs {
		found, c := false, traffic.Chunk{Seq: seq}
		err := t.Query(ctx, "read traffic", `SELECT account_id, part, tier, state, start, first, last, body FROM traffic WHERE seq = ?`, []any{seq}, func(r *rows.Row) error {
			found = true
			var first, last sql.RawBytes
			err := r.Scan(&c.AccountID, &c.Part, &c.Tier, &c.State, &c.Start, &first, &last, &c.Body)
			copy(c.First[:], first)
			copy(c.Last[:], last)
			return err
		})
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if err := f(&c); err != nil {
			return err
		}
	}
	return nil
}
