package sqlite

import (
	"context"
	"database/sql"

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
	for i := range chunks {
		c := &chunks[i]
		_, err := t.Exec(ctx, "insert traffic", `INSERT INTO traffic (account_id, part, tier, state, start, first, last, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			c.AccountID, int64(c.Part), int64(c.Tier), int64(c.State), c.Start, c.First[:], c.Last[:], c.Body)
		if err != nil {
			return err
		}
	}
	return nil
}

// ReadTraffic implements traffic.Store. It first finds the chunks and then reads them one by
// one, so that their bodies are never sorted.
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
	query, args := chunkQuery(q)
	err = t.Query(ctx, "find traffic", query, args, func(r *rows.Row) error {
		var seq, start int64
		err := r.Scan(&seq, &start)
		seqs = append(seqs, seq)
		return err
	})
	return seqs, err
}

// chunkQuery returns the query that finds the chunks that q selects.
func chunkQuery(q *traffic.ChunkQuery) (query string, args []any) {
	query, args = `SELECT seq, start FROM traffic WHERE account_id = ? AND part = ? AND tier = ? AND start >= ? AND start < ?`,
		[]any{q.AccountID, int64(q.Part), int64(q.Tier), q.From, q.Before}
	only := ""
	if q.Only != nil {
		only = ` AND first <= ? AND last >= ?`
		args = append(args, q.Only[:], q.Only[:])
	}
	query += only
	for tier := int64(q.Tier) - 1; tier >= 0; tier-- {
		query += ` UNION ALL SELECT seq, start FROM traffic INDEXED BY traffic_open WHERE state < 2 AND tier = ? AND state IN (0, 1) AND start >= ? AND start < ? AND account_id = ? AND part = ?` + only
		args = append(args, tier, q.From, q.Before, q.AccountID, int64(q.Part))
		if q.Only != nil {
			args = append(args, q.Only[:], q.Only[:])
		}
	}
	return query + ` ORDER BY start, seq`, args
}

// chunks calls f for each of the chunks that still exists.
func (t *readTx) chunks(ctx context.Context, seqs []int64, f func(*traffic.Chunk) error) error {
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

// TrafficChunks implements traffic.Maintenance.
func (db *DB) TrafficChunks(ctx context.Context, seqs []int64, f func(*traffic.Chunk) error) error {
	return view(ctx, db.readers, func(t *readTx) error { return t.chunks(ctx, seqs, f) })
}

// TrafficBacklog implements traffic.Maintenance.
func (db *DB) TrafficBacklog(ctx context.Context, tier traffic.Tier, s traffic.State, before int64, limit int) (list []traffic.Backlog, err error) {
	err = view(ctx, db.readers, func(t *readTx) error {
		return t.Query(ctx, "find traffic to merge", `SELECT account_id, part, start, seq FROM traffic WHERE tier = ? AND state = ? AND state < 2 AND start < ?
			ORDER BY start, account_id, part, seq`, []any{int64(tier), int64(s), before}, func(r *rows.Row) error {
			b := traffic.Backlog{Tier: tier, State: s}
			var seq int64
			if err := r.Scan(&b.AccountID, &b.Part, &b.Start, &seq); err != nil {
				return err
			}
			if n := len(list); n > 0 && list[n-1].AccountID == b.AccountID && list[n-1].Part == b.Part && list[n-1].Start == b.Start {
				list[n-1].Seqs = append(list[n-1].Seqs, seq)
			} else if n < limit {
				b.Seqs = []int64{seq}
				list = append(list, b)
			}
			return nil
		})
	})
	return list, err
}

// ReplaceTraffic implements traffic.Maintenance.
func (db *DB) ReplaceTraffic(ctx context.Context, gone, moved []int64, to traffic.State, added []traffic.Chunk) error {
	return db.record(ctx, func(t *tx) error {
		for _, seq := range gone {
			if err := t.mustTraffic(ctx, `DELETE FROM traffic WHERE seq = ? AND state < ?`, seq, int64(to)); err != nil {
				return err
			}
		}
		for _, seq := range moved {
			if err := t.mustTraffic(ctx, `UPDATE traffic SET state = ? WHERE seq = ? AND state < ?`, int64(to), seq, int64(to)); err != nil {
				return err
			}
		}
		return t.insertChunks(ctx, added)
	})
}

// mustTraffic runs a statement that changes exactly one chunk.
func (t *tx) mustTraffic(ctx context.Context, query string, args ...any) error {
	n, err := t.Exec(ctx, "replace traffic", query, args...)
	if err == nil && n != 1 {
		return fault.New(fault.Conflict, "another node has merged the traffic meanwhile")
	}
	return err
}

// TrimTraffic implements traffic.Maintenance.
func (db *DB) TrimTraffic(ctx context.Context, p traffic.Part, tier traffic.Tier, before int64, limit int) (more bool, err error) {
	err = db.record(ctx, func(t *tx) error {
		n, err := t.Exec(ctx, "trim traffic", `DELETE FROM traffic WHERE seq IN (SELECT seq FROM traffic WHERE state = 2 AND part = ? AND tier = ? AND start < ? ORDER BY start LIMIT ?+0)`,
			int64(p), int64(tier), before, rows.Limit(limit))
		more = limit > 0 && n == int64(limit)
		return err
	})
	return more, err
}
