package postgres

import (
	"context"
	"slices"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/traffic"
)

// chunksAtOnce is how many chunks one statement reads.
const chunksAtOnce = 128

// TrafficChunks implements rows.ReadTx.
func (t *readTx) TrafficChunks(ctx context.Context, seqs []int64, f func(*traffic.Chunk) error) error {
	for some := range slices.Chunk(seqs, chunksAtOnce) {
		err := t.Query(ctx, "read traffic", `SELECT t.seq, t.account_id, t.part, t.tier, t.state, t.start, t.first, t.last, t.body
			FROM unnest($1::bigint[]) WITH ORDINALITY AS q (seq, place) JOIN traffic t USING (seq) ORDER BY q.place`, []any{some}, func(r *rows.Row) error {
			var c traffic.Chunk
			var first, last []byte
			if err := r.Scan(&c.Seq, &c.AccountID, &c.Part, &c.Tier, &c.State, &c.Start, &first, &last, &c.Body); err != nil {
				return err
			}
			copy(c.First[:], first)
			copy(c.Last[:], last)
			return f(&c)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
