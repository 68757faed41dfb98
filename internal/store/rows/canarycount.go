package rows

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/canary/count"
	"github.com/keygate/keygate/internal/canary/lead"
	"github.com/keygate/keygate/internal/fault"
)

var (
	_ count.Store = (*Store)(nil)
	_ lead.Store  = (*Store)(nil)
)

// AppendCanaryCounts implements count.Store. The sequence numbers are taken from a row that stays locked until the end of the
// transaction, so that no row appears before one with a smaller number.
func (s *Store) AppendCanaryCounts(ctx context.Context, batch accesslog.BatchID, list []canary.CountRow) error {
	if len(list) == 0 {
		return nil
	}
	return s.writeBatch(ctx, OfTraffic, batch, func(t *Writer) error {
		var seqs, numbers, ends []int64
		var canaries []string
		var data [][]byte
		size := 0
		for i := range list {
			r := &list[i]
			canaries, numbers, ends, data = append(canaries, r.CanaryID), append(numbers, int64(r.Number)), append(ends, Micros(r.At)), append(data, r.Data)
			size += len(r.Data)
		}
		var last, stored int64
		err := t.Query(ctx, "number counts of canaries", `INSERT INTO canary_head AS h (one, last, bytes) VALUES (1, $1, $2)
			ON CONFLICT (one) DO UPDATE SET last = h.last + excluded.last, bytes = h.bytes + excluded.bytes RETURNING last, bytes`,
			[]any{int64(len(list)), int64(size)}, func(r *Row) error { return r.Scan(&last, &stored) })
		if err != nil {
			return err
		}
		if stored > canary.MaxStored {
			return t.Fail(fault.New(fault.Unavailable, "too many counts of canaries wait to be added up: run a node with the management API, which does that"))
		}
		for i := range list {
			seqs = append(seqs, last-int64(len(list))+int64(i)+1)
		}
		return t.QueueEach(ctx, "insert counts of canaries", `INSERT INTO canary_counts (seq, canary_id, number, at, data)
			SELECT seq, canary_id, number, at, data FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bytea[]) AS c (seq, canary_id, number, at, data)`,
			seqs, canaries, numbers, ends, data)
	})
}

// CanaryCallersLeftOut implements count.Store.
func (s *Store) CanaryCallersLeftOut(ctx context.Context, canaryIDs []string) (map[string][]byte, error) {
	return read(ctx, s, OneOfThem, func(t *Reader) (map[string][]byte, error) {
		lists := map[string][]byte{}
		err := t.Query(ctx, "read whom canaries leave out", `SELECT canary_id, data FROM canary_left_out WHERE canary_id = ANY ($1)`, []any{canaryIDs}, func(r *Row) error {
			var canaryID string
			var data []byte
			err := r.Scan(&canaryID, &data)
			lists[canaryID] = data
			return err
		})
		return lists, err
	})
}

// TakeCanaryLead implements lead.Store.
func (s *Store) TakeCanaryLead(ctx context.Context, process string) (l canary.Lead, leads bool, err error) {
	var live bool
	err = s.engine.Read(ctx, OneOfThem, func(t *Reader) error {
		l = canary.Lead{}
		return t.Query(ctx, "read who judges canaries", `SELECT claimant, epoch, EXISTS (SELECT 1 FROM usage_processes_live p WHERE p.process = l.claimant) FROM canary_lead l`,
			nil, func(r *Row) error { return r.Scan(&l.Claimant, &l.Epoch, &live) })
	})
	if err != nil || live || l.Claimant == process {
		return l, l.Claimant == process, err
	}
	err = s.engine.Write(ctx, Durable, func(t *Writer) error {
		l = canary.Lead{}
		err := t.Queue(ctx, "take the lead of canaries", `INSERT INTO canary_lead AS l (one, claimant, epoch) VALUES (1, $1, 1)
			ON CONFLICT (one) DO UPDATE SET claimant = excluded.claimant, epoch = l.epoch + 1
			WHERE l.claimant <> excluded.claimant AND NOT EXISTS (SELECT 1 FROM usage_processes_live p WHERE p.process = l.claimant)`, process)
		if err != nil {
			return err
		}
		l, err = t.read.CanaryLead(ctx)
		return err
	})
	return l, l.Claimant == process && err == nil, err
}

// leading locks the lead until the end of the transaction. The error is fault.Conflict if another process has it.
func (t *Writer) leading(ctx context.Context, l canary.Lead) error {
	is, err := t.read.Exists(ctx, "lock who judges canaries", `SELECT 1 FROM canary_lead WHERE claimant = $1 AND epoch = $2 FOR UPDATE`, l.Claimant, l.Epoch)
	if err == nil && !is {
		err = t.Fail(fault.New(fault.Conflict, "another node judges canaries now"))
	}
	return err
}

// CanaryCountsEnd implements lead.Store.
func (s *Store) CanaryCountsEnd(ctx context.Context) (int64, error) {
	return read(ctx, s, OneOfThem, func(t *Reader) (seq int64, err error) {
		err = t.Query(ctx, "find the last counts of canaries", `SELECT last FROM canary_head`, nil, func(r *Row) error { return r.Scan(&seq) })
		return seq, err
	})
}

// ListCanaryCounts implements lead.Store.
func (s *Store) ListCanaryCounts(ctx context.Context, after int64, limit int) ([]canary.Listed, error) {
	return s.listCanaryCounts(ctx, `WHERE seq > $1 ORDER BY seq LIMIT $2`, after, Limit(limit))
}

// CanaryCountsOf implements lead.Store.
func (s *Store) CanaryCountsOf(ctx context.Context, canaryID string, after, until int64, limit int) ([]canary.Listed, error) {
	return s.listCanaryCounts(ctx, `INDEXED BY canary_counts_list WHERE canary_id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4`, canaryID, after, until, Limit(limit))
}

func (s *Store) listCanaryCounts(ctx context.Context, rest string, args ...any) ([]canary.Listed, error) {
	return read(ctx, s, OneOfThem, func(t *Reader) ([]canary.Listed, error) {
		return readAll(ctx, t, "find counts of canaries", `SELECT seq, canary_id, number, octet_length(data) FROM canary_counts `+rest, args, func(r *Row) (l canary.Listed, err error) {
			err = r.Scan(&l.Seq, &l.CanaryID, &l.Number, &l.Size)
			return l, err
		})
	})
}

// ReadCanaryCounts implements lead.Store.
func (s *Store) ReadCanaryCounts(ctx context.Context, seqs []int64, f func(seq int64, r *canary.CountRow) error) error {
	return s.engine.Read(ctx, Calls, func(t *Reader) error {
		return t.Query(ctx, "read counts of canaries", `SELECT seq, canary_id, number, at, data FROM canary_counts WHERE seq = ANY ($1)`, []any{seqs}, func(r *Row) error {
			var seq, at int64
			var c canary.CountRow
			if err := r.Scan(&seq, &c.CanaryID, &c.Number, &at, &c.Data); err != nil {
				return err
			}
			c.At = time.UnixMicro(at).UTC()
			return f(seq, &c)
		})
	})
}

// CanaryStep implements lead.Store.
func (s *Store) CanaryStep(ctx context.Context, canaryID string) (*canary.StoredStep, error) {
	return read(ctx, s, OneOfThem, func(t *Reader) (stored *canary.StoredStep, err error) {
		err = t.Query(ctx, "read the step of a canary", `SELECT step, first, data FROM canary_steps WHERE canary_id = $1`, []any{canaryID}, func(r *Row) error {
			stored = &canary.StoredStep{CanaryID: canaryID}
			return r.Scan(&stored.Step, &stored.First, &stored.Data)
		})
		return stored, err
	})
}

// FoldCanaryStep implements lead.Store.
func (s *Store) FoldCanaryStep(ctx context.Context, l canary.Lead, step *canary.StoredStep, gone []int64, size int64) error {
	return s.engine.Write(ctx, OfTraffic, func(t *Writer) error {
		if err := t.leading(ctx, l); err != nil {
			return err
		}
		err := t.Queue(ctx, "put the step of a canary", `INSERT INTO canary_steps (canary_id, step, first, data) VALUES ($1, $2, $3, $4)
			ON CONFLICT (canary_id) DO UPDATE SET step = excluded.step, first = excluded.first, data = excluded.data`, step.CanaryID, int64(step.Step), int64(step.First), step.Data)
		if err != nil {
			return err
		}
		n, err := t.Exec(ctx, "remove counts of a canary", `DELETE FROM canary_counts WHERE seq = ANY ($1)`, gone)
		if err != nil || n != int64(len(gone)) { // it was done before
			return err
		}
		return t.Queue(ctx, "note counts of canaries", `UPDATE canary_head SET bytes = greatest(bytes - $1, 0)`, size)
	})
}

// TrimCanaryCounts implements lead.Store.
func (s *Store) TrimCanaryCounts(ctx context.Context, l canary.Lead, limit int) (more bool, err error) {
	const (
		judged  = ` (SELECT id FROM canaries WHERE ended = false AND state <> 'held')`
		running = ` (SELECT id FROM canaries WHERE state = 'running')`
	)
	err = s.engine.Write(ctx, OfTraffic, func(t *Writer) error {
		more = false
		if err := t.leading(ctx, l); err != nil {
			return err
		}
		full, err := t.read.Exists(ctx, "look for room for counts of canaries", `SELECT 1 FROM canary_head WHERE bytes > $1`, int64(canary.MaxStored/2))
		if err != nil {
			return err
		}
		counted := judged
		if full {
			counted = running
		}
		for _, one := range [...]struct{ what, statement string }{
			{"remove counts of canaries", `DELETE FROM canary_counts WHERE seq IN (SELECT seq FROM canary_counts WHERE canary_id NOT IN` + counted + ` ORDER BY seq LIMIT $1)`},
			{"remove steps of canaries", `DELETE FROM canary_steps WHERE canary_id IN (SELECT canary_id FROM canary_steps WHERE canary_id NOT IN` + judged + ` ORDER BY canary_id LIMIT $1)`},
			{"remove whom canaries leave out", `DELETE FROM canary_left_out WHERE canary_id IN
				(SELECT canary_id FROM canary_left_out WHERE canary_id NOT IN` + judged + ` ORDER BY canary_id LIMIT $1)`},
		} {
			n, err := t.Exec(ctx, one.what, one.statement, Limit(limit))
			if err != nil {
				return err
			}
			more = more || n == int64(limit)
		}
		return t.Queue(ctx, "sum counts of canaries", `UPDATE canary_head SET bytes = (SELECT coalesce(sum(octet_length(data)), 0) FROM canary_counts)`)
	})
	return more, err
}

// UndecidedCanaries implements lead.Store.
func (s *Store) UndecidedCanaries(ctx context.Context, after string, limit int) ([]canary.Canary, error) {
	return read(ctx, s, OneOfThem, func(t *Reader) ([]canary.Canary, error) {
		return t.SelectCanaries(ctx, `INDEXED BY canaries_running WHERE state = 'running' AND id > $1
			AND NOT EXISTS (SELECT 1 FROM canary_left_out l WHERE l.canary_id = canaries.id) ORDER BY id LIMIT $2`, after, Limit(limit))
	})
}

// LeaveOutCallers implements lead.Store.
func (s *Store) LeaveOutCallers(ctx context.Context, l canary.Lead, canaryID string, list []byte) error {
	return s.engine.Write(ctx, Durable, func(t *Writer) error {
		if err := t.leading(ctx, l); err != nil {
			return err
		}
		return t.Queue(ctx, "put whom a canary leaves out", `INSERT INTO canary_left_out (canary_id, data) VALUES ($1, $2) ON CONFLICT (canary_id) DO NOTHING`, canaryID, list)
	})
}

// SharedBuckets implements lead.Store.
func (s *Store) SharedBuckets(ctx context.Context, accountID string, keyIDs []string) (map[string]string, error) {
	return read(ctx, s, OneOfThem, func(t *Reader) (map[string]string, error) {
		shared := map[string]string{}
		err := t.Query(ctx, "read shared buckets", `SELECT id, bucket_id FROM keys WHERE id = ANY ($1) AND account_id = $2 AND bucket_id IS NOT NULL`, []any{keyIDs, accountID}, func(r *Row) error {
			var keyID, bucketID string
			err := r.Scan(&keyID, &bucketID)
			shared[keyID] = bucketID
			return err
		})
		return shared, err
	})
}
