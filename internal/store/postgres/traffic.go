package postgres

import (
	"context"
	"slices"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/traffic"
)

var _ traffic.Store = (*DB)(nil)

// AppendTraffic implements traffic.Store.
func (db *DB) AppendTraffic(ctx context.Context, batch accesslog.BatchID, chunks []traffic.Chunk) error {
	if len(chunks) == 0 {
		return nil
	}
	return db.record(ctx, func(t *tx) error {
		if isNew, err := t.takeBatch(ctx, batch); err != nil || !isNew {
			return err
		}
		return t.insertChunks(ctx, chunks)
	})
}

func (t *tx) insertChunks(ctx context.Context, chunks []traffic.Chunk) error {
	n := len(chunks)
	if n == 0 {
		return nil
	}
	accounts, starts := make([]string, n), make([]int64, n)
	parts, tiers, states := make([]int64, n), make([]int64, n), make([]int64, n)
	firsts, lasts, bodies := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	for i := range chunks {
		c := &chunks[i]
		accounts[i], starts[i], parts[i], tiers[i], states[i] = c.AccountID, c.Start, int64(c.Part), int64(c.Tier), int64(c.State)
		firsts[i], lasts[i], bodies[i] = c.First[:], c.Last[:], c.Body
	}
	return t.Queue(ctx, "insert traffic", `INSERT INTO traffic (account_id, part, tier, state, start, first, last, body)
		SELECT account_id, part, tier, state, start, first, last, body
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bytea[])
		WITH ORDINALITY AS c (account_id, part, tier, state, start, first, last, body, place) ORDER BY place`,
		accounts, parts, tiers, states, starts, firsts, lasts, bodies)
}

// ReadTraffic implements traffic.Store. It first finds the chunks and then reads them some at a time,
// so that their bodies are never sorted.
func (db *DB) ReadTraffic(ctx context.Context, q traffic.ChunkQuery, f func(*traffic.Chunk) error) error {
	return db.search(ctx, func(t *readTx) error {
		seqs, err := t.findChunks(ctx, &q)
		if err != nil {
			return err
		}
		return t.chunks(ctx, seqs, f)
	})
}

// findChunks returns the sequence numbers of the chunks that q selects, the earliest interval
// first.
func (t *readTx) findChunks(ctx context.Context, q *traffic.ChunkQuery) (seqs []int64, err error) {
	args := []any{q.AccountID, int64(q.Part), int64(q.Tier), q.From, q.Before}
	query, only := `SELECT seq, start FROM traffic WHERE account_id = $1 AND part = $2 AND tier = $3 AND start >= $4 AND start < $5`, ""
	if q.Only != nil {
		only = ` AND first <= $6 AND last >= $6`
		args = append(args, q.Only[:])
	}
	query += only
	if q.Tier > 0 {
		query += ` UNION ALL SELECT seq, start FROM traffic WHERE account_id = $1 AND part = $2 AND tier < $3 AND state < 2 AND start >= $4 AND start < $5` + only
	}
	err = t.Query(ctx, "find traffic", query+` ORDER BY start, seq`, args, func(r *rows.Row) error {
		var seq, start int64
		err := r.Scan(&seq, &start)
		seqs = append(seqs, seq)
		return err
	})
	return seqs, err
}

// chunksAtOnce is how many chunks one statement reads.
const chunksAtOnce = 128

// chunks calls f for each of the chunks that still exists, in their order.
func (t *readTx) chunks(ctx context.Context, seqs []int64, f func(*traffic.Chunk) error) error {
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

// TrafficChunks implements traffic.Maintenance.
func (db *DB) TrafficChunks(ctx context.Context, seqs []int64, f func(*traffic.Chunk) error) error {
	return db.view(ctx, db.readers, func(t *readTx) error { return t.chunks(ctx, seqs, f) })
}

// TrafficBacklog implements traffic.Maintenance.
func (db *DB) TrafficBacklog(ctx context.Context, tier traffic.Tier, s traffic.State, before int64, limit int) (list []traffic.Backlog, err error) {
	err = db.view(ctx, db.readers, func(t *readTx) error {
		return t.Query(ctx, "find traffic to merge", `SELECT account_id, part, start, array_agg(seq ORDER BY seq) FROM traffic
			WHERE tier = $1 AND state = $2 AND state < 2 AND start < $3 GROUP BY start, account_id, part ORDER BY start, account_id, part LIMIT $4`,
			[]any{int64(tier), int64(s), before, rows.Limit(limit)}, func(r *rows.Row) error {
				b := traffic.Backlog{Tier: tier, State: s}
				err := r.Scan(&b.AccountID, &b.Part, &b.Start, &b.Seqs)
				list = append(list, b)
				return err
			})
	})
	return list, err
}

// ReplaceTraffic implements traffic.Maintenance. Of two nodes that merge the same chunks, one waits
// for the other's rows, and then finds them gone.
func (db *DB) ReplaceTraffic(ctx context.Context, gone, moved []int64, to traffic.State, added []traffic.Chunk) error {
	return db.record(ctx, func(t *tx) error {
		if err := t.replaceTraffic(ctx, `DELETE FROM traffic WHERE seq = ANY($1::bigint[]) AND state < $2`, gone, to); err != nil {
			return err
		}
		if err := t.replaceTraffic(ctx, `UPDATE traffic SET state = $2 WHERE seq = ANY($1::bigint[]) AND state < $2`, moved, to); err != nil {
			return err
		}
		return t.insertChunks(ctx, added)
	})
}

// replaceTraffic runs a statement that must change each of the chunks.
func (t *tx) replaceTraffic(ctx context.Context, query string, seqs []int64, to traffic.State) error {
	if len(seqs) == 0 {
		return nil
	}
	n, err := t.Exec(ctx, "replace traffic", query, seqs, int64(to))
	if err == nil && n != int64(len(seqs)) {
		return fault.New(fault.Conflict, "another node has merged the traffic meanwhile")
	}
	return err
}

// TrimTraffic implements traffic.Maintenance.
func (db *DB) TrimTraffic(ctx context.Context, p traffic.Part, tier traffic.Tier, before int64, limit int) (more bool, err error) {
	err = db.record(ctx, func(t *tx) error {
		n, err := t.Exec(ctx, "trim traffic", `DELETE FROM traffic WHERE seq IN
			(SELECT seq FROM traffic WHERE state = 2 AND part = $1 AND tier = $2 AND start < $3 ORDER BY start LIMIT $4 FOR UPDATE SKIP LOCKED)`,
			int64(p), int64(tier), before, rows.Limit(limit))
		more = limit > 0 && n == int64(limit)
		return err
	})
	return more, err
}
