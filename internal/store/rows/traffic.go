package rows

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/traffic"
)

var _ traffic.Store = (*Store)(nil)

// AppendTraffic implements traffic.Store.
func (s *Store) AppendTraffic(ctx context.Context, batch accesslog.BatchID, chunks []traffic.Chunk) error {
	if len(chunks) == 0 {
		return nil
	}
	return s.writeBatch(ctx, OfTraffic, batch, func(t *Writer) error { return t.InsertTraffic(ctx, chunks) })
}

// InsertTraffic adds chunks, whose sequence numbers have their order.
func (t *Writer) InsertTraffic(ctx context.Context, chunks []traffic.Chunk) error {
	var (
		accounts             []string
		starts               []int64
		parts, tiers, states []int64
		firsts, lasts, body  [][]byte
	)
	for i := range chunks {
		c := &chunks[i]
		accounts, starts = append(accounts, c.AccountID), append(starts, c.Start)
		parts, tiers, states = append(parts, int64(c.Part)), append(tiers, int64(c.Tier)), append(states, int64(c.State))
		firsts, lasts, body = append(firsts, c.First[:]), append(lasts, c.Last[:]), append(body, c.Body)
	}
	return t.QueueEach(ctx, "insert traffic", `INSERT INTO traffic (account_id, part, tier, state, start, first, last, body)
		SELECT account_id, part, tier, state, start, first, last, body
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bytea[])
		WITH ORDINALITY AS c (account_id, part, tier, state, start, first, last, body, place) ORDER BY place`,
		accounts, parts, tiers, states, starts, firsts, lasts, body)
}

// ReadTraffic implements traffic.Store. It first finds the chunks and then reads them some at a time,
// so that their bodies are never sorted.
func (s *Store) ReadTraffic(ctx context.Context, q traffic.ChunkQuery, f func(*traffic.Chunk) error) error {
	return s.engine.Read(ctx, Reports, func(t *Reader) error {
		var seqs []int64
		query, args := ChunkQuery(&q)
		err := t.Query(ctx, "find traffic", query, args, func(r *Row) error {
			var seq, start int64
			err := r.Scan(&seq, &start)
			seqs = append(seqs, seq)
			return err
		})
		if err != nil {
			return err
		}
		return t.TrafficChunks(ctx, seqs, f)
	})
}

// ChunkQuery returns the query that finds the sequence numbers of the chunks that q selects, the earliest interval
// first.
func ChunkQuery(q *traffic.ChunkQuery) (query string, args []any) {
	args, only := []any{q.AccountID, int64(q.Part), int64(q.Tier), q.From, q.Before}, ""
	if q.Only != nil {
		args, only = append(args, q.Only[:]), ` AND first <= $6 AND last >= $6`
	}
	query = `SELECT seq, start FROM traffic WHERE account_id = $1 AND part = $2 AND tier = $3 AND start >= $4 AND start < $5` + only
	for tier := q.Tier; tier > q.Tier.Shortest(); {
		tier--
		args = append(args, int64(tier))
		query += fmt.Sprintf(` UNION ALL SELECT seq, start FROM traffic INDEXED BY traffic_open WHERE state < 2 AND tier = $%d AND state IN (0, 1)
			AND start >= $4 AND start < $5 AND account_id = $1 AND part = $2`, len(args)) + only
	}
	return query + ` ORDER BY start, seq`, args
}

// TrafficChunks implements traffic.Maintenance.
func (s *Store) TrafficChunks(ctx context.Context, seqs []int64, f func(*traffic.Chunk) error) error {
	return s.engine.Read(ctx, Calls, func(t *Reader) error { return t.TrafficChunks(ctx, seqs, f) })
}

// TrafficBacklog implements traffic.Maintenance.
func (s *Store) TrafficBacklog(ctx context.Context, tier traffic.Tier, state traffic.State, before int64, limit int) ([]traffic.Backlog, error) {
	return read(ctx, s, Calls, func(t *Reader) ([]traffic.Backlog, error) {
		return readAll(ctx, t, "find traffic to merge", `SELECT account_id, part, start, string_agg(seq::text, ' ' ORDER BY seq) FROM traffic INDEXED BY traffic_open
			WHERE tier = $1 AND state = $2 AND state < 2 AND start < $3 GROUP BY start, account_id, part ORDER BY start, account_id, part LIMIT $4`,
			[]any{int64(tier), int64(state), before, Limit(limit)}, func(r *Row) (traffic.Backlog, error) {
				b := traffic.Backlog{Tier: tier, State: state}
				var seqs string
				if err := r.Scan(&b.AccountID, &b.Part, &b.Start, &seqs); err != nil {
					return b, err
				}
				var err error
				b.Seqs, err = parseNumbers(seqs)
				return b, err
			})
	})
}

// parseNumbers parses numbers that string_agg has joined with spaces.
func parseNumbers(text string) (numbers []int64, err error) {
	for one := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(one, 10, 64)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// ReplaceTraffic implements traffic.Maintenance. Of two nodes that merge the same chunks, one waits
// for the other's rows, and then finds them gone.
func (s *Store) ReplaceTraffic(ctx context.Context, gone, moved []int64, to traffic.State, added []traffic.Chunk) error {
	return s.engine.Write(ctx, OfTraffic, func(t *Writer) error {
		if err := t.replaceTraffic(ctx, `DELETE FROM traffic WHERE seq = ANY ($1) AND state < $2`, gone, to); err != nil {
			return err
		}
		if err := t.replaceTraffic(ctx, `UPDATE traffic SET state = $2 WHERE seq = ANY ($1) AND state < $2`, moved, to); err != nil {
			return err
		}
		return t.InsertTraffic(ctx, added)
	})
}

// replaceTraffic runs a statement that must change each of the chunks.
func (t *Writer) replaceTraffic(ctx context.Context, query string, seqs []int64, to traffic.State) error {
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
func (s *Store) TrimTraffic(ctx context.Context, p traffic.Part, tier traffic.Tier, before int64, limit int) (more bool, err error) {
	err = s.engine.Write(ctx, OfTraffic, func(t *Writer) error {
		n, err := t.Exec(ctx, "trim traffic", `DELETE FROM traffic WHERE seq IN
			(SELECT seq FROM traffic WHERE state = 2 AND part = $1 AND tier = $2 AND start < $3 ORDER BY start LIMIT $4 FOR UPDATE SKIP LOCKED)`,
			int64(p), int64(tier), before, Limit(limit))
		more = limit > 0 && n == int64(limit)
		return err
	})
	return more, err
}
