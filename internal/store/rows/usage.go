package rows

import (
	"context"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/traffic"
	"github.com/keygate/keygate/internal/usage"
)

var _ usage.Store = (*Store)(nil)

// MarkUsage implements usage.Store.
func (s *Store) MarkUsage(ctx context.Context, process string, until time.Time) error {
	return s.engine.Write(ctx, OfTraffic, func(t *Writer) error {
		return t.Queue(ctx, "mark usage", `INSERT INTO usage_marks (process, until) VALUES ($1, $2)
			ON CONFLICT (process) DO UPDATE SET until = excluded.until`, process, Micros(until))
	})
}

// UsageState implements usage.Store.
func (s *Store) UsageState(ctx context.Context, until time.Time) (closed time.Time, complete bool, err error) {
	err = s.engine.Read(ctx, OneOfThem, func(t *Reader) error {
		return t.Query(ctx, "read the state of usage", `SELECT coalesce((SELECT max(until) FROM usage_closed), 0),
			NOT EXISTS (SELECT 1 FROM usage_processes_live l WHERE NOT EXISTS (SELECT 1 FROM usage_marks m WHERE m.process = l.process AND m.until >= $1))`,
			[]any{Micros(until)}, func(r *Row) error {
				var at int64
				err := r.Scan(&at, &complete)
				closed = time.UnixMicro(at)
				return err
			})
	})
	return closed, complete, err
}

// EndUsage implements usage.Store.
func (s *Store) EndUsage(ctx context.Context, until, forget time.Time) error {
	return s.engine.Write(ctx, OfTraffic, func(t *Writer) error {
		err := t.Queue(ctx, "note closed hours of usage", `INSERT INTO usage_closed (n, until) VALUES (1, $1)
			ON CONFLICT (n) DO UPDATE SET until = excluded.until`, Micros(until))
		if err != nil {
			return err
		}
		return t.Queue(ctx, "forget marks of usage", `DELETE FROM usage_marks WHERE until < $1`, Micros(forget))
	})
}

// CloseUsage implements usage.Store.
func (s *Store) CloseUsage(ctx context.Context, c *usage.Closing, now time.Time) (made *usage.Closed, err error) {
	err = s.engine.Write(ctx, Durable, func(t *Writer) (err error) {
		made = &usage.Closed{}
		gone := []struct {
			query string
			args  []any
			want  int
		}{
			{`DELETE FROM traffic WHERE seq = ANY ($1) AND state < 2`, []any{c.Chunks}, len(c.Chunks)},
			{`DELETE FROM usage_blocks WHERE account_id = $1 AND tier = 0 AND number = ANY ($2)`, []any{c.AccountID, c.Blocks}, len(c.Blocks)},
		}
		for _, g := range gone {
			if g.want == 0 {
				continue
			}
			n, err := t.Exec(ctx, "take usage", g.query, g.args...)
			if err != nil {
				return err
			}
			if n != int64(g.want) {
				return fault.New(fault.Conflict, "another node has closed the usage meanwhile")
			}
		}
		if made.Kept, err = t.keepUsage(ctx, c); err != nil {
			return err
		}
		if made.Last, err = t.insertUsage(ctx, c); err != nil || c.Tell == 0 {
			return err
		}
		return t.tellUsage(ctx, c, now)
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// keepUsage adds the chunks of what a closing keeps, and returns their sequence numbers.
func (t *Writer) keepUsage(ctx context.Context, c *usage.Closing) (seqs []int64, err error) {
	if len(c.Kept) == 0 {
		return nil, nil
	}
	bodies := make([][]byte, len(c.Kept))
	for i := range c.Kept {
		bodies[i] = c.Kept[i].Bytes
	}
	none := make([]byte, len(traffic.Chunk{}.First))
	err = t.QueryEach(ctx, "keep usage", `INSERT INTO traffic (account_id, part, tier, state, start, first, last, body)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING seq`,
		[]any{c.AccountID, int64(traffic.Usage), int64(traffic.Open), int64(traffic.Merged), c.Start, none, none, bodies},
		func(r *Row) error {
			seqs = append(seqs, 0)
			return r.Scan(&seqs[len(seqs)-1])
		})
	return seqs, err
}

// insertUsage adds the blocks of a closing, and returns the number of the last one. Their numbers are taken from a row of the
// account, which stays locked until the end of the transaction, so that no block appears before one with a smaller number.
func (t *Writer) insertUsage(ctx context.Context, c *usage.Closing) (last int64, err error) {
	if len(c.Made) == 0 {
		return 0, t.Ready(ctx)
	}
	err = t.Query(ctx, "number blocks of usage", `INSERT INTO usage_numbers AS n (account_id, tier, last) VALUES ($1, $2, $3)
		ON CONFLICT (account_id, tier) DO UPDATE SET last = n.last + excluded.last RETURNING last`, []any{c.AccountID, int64(c.Tier), int64(len(c.Made))},
		func(r *Row) error { return r.Scan(&last) })
	if err != nil {
		return 0, err
	}
	var numbers []int64
	var bodies [][]byte
	for i := range c.Made {
		numbers, bodies = append(numbers, last-int64(len(c.Made))+int64(i)+1), append(bodies, c.Made[i].Bytes)
	}
	return last, t.QueueEach(ctx, "insert blocks of usage", `INSERT INTO usage_blocks (account_id, tier, number, start, body)
		SELECT account_id, tier, number, start, body FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[]) AS b (account_id, tier, number, start, body)`,
		slices.Repeat([]string{c.AccountID}, len(numbers)), slices.Repeat([]int64{int64(c.Tier)}, len(numbers)), numbers,
		slices.Repeat([]int64{c.Start}, len(numbers)), bodies)
}

// tellUsage raises usage.finalized, unless the account was deleted.
func (t *Writer) tellUsage(ctx context.Context, c *usage.Closing, now time.Time) error {
	a, err := t.read.Account(ctx, c.AccountID)
	if fault.CodeOf(err) == fault.NotFound || err == nil && a.State == account.Deleted {
		return nil
	}
	if err != nil {
		return err
	}
	start := time.Unix(c.Start, 0).UTC()
	e, err := event.New(c.AccountID, event.UsageFinalized, now, event.Finalized{PeriodStart: start, PeriodEnd: start.Add(time.Hour), Records: c.Tell})
	if err != nil {
		return err
	}
	return t.AppendEvent(ctx, &e)
}

// UsageBlocks implements usage.Store.
func (s *Store) UsageBlocks(ctx context.Context, q usage.BlockQuery, yield func(*usage.Block) error) error {
	return s.engine.Read(ctx, Reports, func(t *Reader) error {
		return t.Query(ctx, "read blocks of usage", `SELECT number, start, body FROM usage_blocks
			WHERE account_id = $1 AND tier = $2 AND number >= $3 AND start >= $4 AND start < $5 ORDER BY number LIMIT $6`,
			[]any{q.AccountID, int64(q.Tier), q.First, q.From, q.Before, Limit(q.Limit)}, func(r *Row) error {
				b := usage.Block{AccountID: q.AccountID, Tier: q.Tier}
				if err := r.Scan(&b.Number, &b.Start, &b.Body); err != nil {
					return err
				}
				return yield(&b)
			})
	})
}

// UsageEnd implements usage.Store.
func (s *Store) UsageEnd(ctx context.Context, accountID string, tier usage.Tier) (number int64, err error) {
	err = s.engine.Read(ctx, OneOfThem, func(t *Reader) error {
		return t.Query(ctx, "read the last block of usage", `SELECT coalesce((SELECT last FROM usage_numbers WHERE account_id = $1 AND tier = $2), 0)`,
			[]any{accountID, int64(tier)}, func(r *Row) error { return r.Scan(&number) })
	})
	return number, err
}

// OldUsage implements usage.Store.
func (s *Store) OldUsage(ctx context.Context, before int64, limit int) ([]usage.OldBlocks, error) {
	return read(ctx, s, Calls, func(t *Reader) ([]usage.OldBlocks, error) {
		return readAll(ctx, t, "find old usage", `SELECT account_id, start, string_agg(number::text, ' ' ORDER BY number) FROM usage_blocks INDEXED BY usage_blocks_age
			WHERE tier = 0 AND start < $1 GROUP BY start, account_id ORDER BY start, account_id LIMIT $2`, []any{before, Limit(limit)}, func(r *Row) (o usage.OldBlocks, err error) {
			var numbers string
			if err := r.Scan(&o.AccountID, &o.Start, &numbers); err != nil {
				return o, err
			}
			o.Numbers, err = parseNumbers(numbers)
			return o, err
		})
	})
}

// TrimUsage implements usage.Store.
func (s *Store) TrimUsage(ctx context.Context, before int64, limit int) (more bool, err error) {
	err = s.engine.Write(ctx, OfTraffic, func(t *Writer) error {
		n, err := t.Exec(ctx, "trim usage", `DELETE FROM usage_blocks WHERE (account_id, tier, number) IN
			(SELECT account_id, tier, number FROM usage_blocks INDEXED BY usage_blocks_age WHERE tier = 1 AND start < $1 ORDER BY start LIMIT $2 FOR UPDATE SKIP LOCKED)`, before, Limit(limit))
		more = limit > 0 && n == int64(limit)
		return err
	})
	return more, err
}
