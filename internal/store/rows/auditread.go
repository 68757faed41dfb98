package rows

import (
	"context"
	"slices"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
)

// AuditLog implements control.AuditReader.
func (t *Reader) AuditLog(ctx context.Context, accountID string, f audit.Filter, p control.Page) ([]audit.Record, error) {
	return t.Codec.Search(ctx, auditSource{t, accountID}, accountID, f, p.After, p.Limit)
}

// AuditSource implements control.AuditReader.
func (t *Reader) AuditSource(accountID string) audit.Source { return auditSource{t, accountID} }

const auditChainColumns = `SELECT account_id, number, digest, sealed_at, base, base_digest, base_sealed, cut_records, cut_first, cut_last FROM audit_chains `

func scanChain(r *Row) (c audit.Chain, err error) {
	var digest, baseDigest []byte
	var sealed, baseSealed, cutFirst, cutLast int64
	err = r.Scan(&c.AccountID, &c.Head.Number, &digest, &sealed, &c.Base.Number, &baseDigest, &baseSealed, &c.Cut.Records, &cutFirst, &cutLast)
	if err != nil {
		return c, err
	}
	copy(c.Head.Digest[:], digest)
	c.Head.Time = Instant(sealed)
	if c.Base.Number > 0 {
		copy(c.Base.Digest[:], baseDigest)
		c.Base.Time = Instant(baseSealed)
	}
	if c.Cut.Records > 0 {
		c.Cut.First, c.Cut.Last = Instant(cutFirst), Instant(cutLast)
	}
	return c, nil
}

// AuditChain implements control.AuditReader.
func (t *Reader) AuditChain(ctx context.Context, accountID string) (audit.Chain, error) {
	c := audit.Chain{AccountID: accountID}
	err := t.Query(ctx, "read audit chain", auditChainColumns+`WHERE account_id = $1`, []any{accountID}, func(r *Row) (err error) {
		c, err = scanChain(r)
		return err
	})
	return c, err
}

// AuditBlocks implements control.AuditReader.
func (t *Reader) AuditBlocks(ctx context.Context, accountID string, after int64, limit int) ([]*audit.Block, error) {
	var list []*audit.Block
	err := t.Query(ctx, "read audit blocks", `SELECT number, previous, digest, first_time, last_time, sealed_at, records, content
		FROM audit_blocks WHERE account_id = $1 AND number > $2 ORDER BY number LIMIT $3`,
		[]any{accountID, after, Limit(limit)}, func(r *Row) error {
			b := &audit.Block{AccountID: accountID}
			var previous, digest []byte
			var first, last, sealed int64
			if err := r.Scan(&b.Number, &previous, &digest, &first, &last, &sealed, &b.Records, &b.Content); err != nil {
				return err
			}
			copy(b.Previous[:], previous)
			copy(b.Digest[:], digest)
			b.First, b.Last, b.Sealed = Instant(first), Instant(last), Instant(sealed)
			list = append(list, b)
			return nil
		})
	return list, err
}

// auditSource reads an account's audit log within a transaction. It implements audit.Source.
type auditSource struct {
	t       *Reader
	account string
}

// Open implements audit.Source.
func (s auditSource) Open(ctx context.Context, parts audit.Part) (*audit.Open, error) {
	chain, err := s.t.AuditChain(ctx, s.account)
	if err != nil {
		return nil, err
	}
	o := &audit.Open{Chain: chain}
	if parts&audit.WithRecords != 0 {
		if err := s.records(ctx, o, parts); err != nil {
			return nil, err
		}
	}
	if parts&audit.WithSummaries != 0 {
		if err := s.summaries(ctx, o); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (s auditSource) records(ctx context.Context, o *audit.Open, parts audit.Part) error {
	var err error
	if o.Chunks, err = s.t.AuditChunks(ctx, s.account); err != nil {
		return err
	}
	if parts&audit.OnlyOldest == 0 {
		o.Records, err = s.t.Audit(ctx, s.account, control.Page{Limit: openManaged})
		return err
	}
	o.Records, err = s.t.auditRecords(ctx, s.account, `ORDER BY seq LIMIT $2`, audit.OldestRecords+1)
	if o.More = len(o.Records) > audit.OldestRecords; o.More {
		o.Records = o.Records[:audit.OldestRecords]
	}
	slices.Reverse(o.Records)
	return err
}

// openManaged is more management records than an account ever has unsealed.
const openManaged = 1 << 20

func (s auditSource) summaries(ctx context.Context, o *audit.Open) error {
	return s.t.Query(ctx, "read audit summaries", `SELECT summary FROM audit_summaries WHERE account_id = $1 ORDER BY number`,
		[]any{s.account}, func(r *Row) error {
			var b borrowed
			if err := r.Scan(&b); err != nil {
				return err
			}
			summary, err := audit.ReadSummary(b)
			o.Recent = append(o.Recent, summary)
			return err
		})
}

// Groups implements audit.Source.
func (s auditSource) Groups(ctx context.Context, before int64, limit int) ([]*audit.BlockGroup, error) {
	var list []*audit.BlockGroup
	err := s.t.Query(ctx, "read audit groups", `SELECT head FROM audit_groups WHERE account_id = $1 AND number < $2 ORDER BY number DESC LIMIT $3`,
		[]any{s.account, before, Limit(limit)}, func(r *Row) error {
			var b []byte
			if err := r.Scan(&b); err != nil {
				return err
			}
			g, err := audit.ReadGroup(b)
			list = append(list, g)
			return err
		})
	return list, err
}

// Partitions implements audit.Source.
func (s auditSource) Partitions(ctx context.Context, partition int, first, last int64, f func(group int64, bits []byte) error) error {
	return s.t.Query(ctx, "read audit segments", `SELECT number, bits FROM audit_segments WHERE account_id = $1 AND segment = $2 AND number BETWEEN $3 AND $4`,
		[]any{s.account, partition, first, last}, func(r *Row) error {
			var group int64
			var bits borrowed
			if err := r.Scan(&group, &bits); err != nil {
				return err
			}
			return f(group, bits)
		})
}

// Block implements audit.Source.
func (s auditSource) Block(ctx context.Context, number int64) (b *audit.Block, err error) {
	err = s.t.Query(ctx, "read audit block", `SELECT first_time, last_time, records, content FROM audit_blocks WHERE account_id = $1 AND number = $2`,
		[]any{s.account, number}, func(r *Row) error {
			b = &audit.Block{AccountID: s.account, Number: number}
			var first, last int64
			err := r.Scan(&first, &last, &b.Records, &b.Content)
			b.First, b.Last = Instant(first), Instant(last)
			return err
		})
	return b, err
}

// AuditOpen returns the unsealed end of an account's log, with the oldest of its management records.
func (s *Store) AuditOpen(ctx context.Context, accountID string) (*audit.Open, error) {
	return read(ctx, s, DataPlane, func(t *Reader) (*audit.Open, error) {
		return t.AuditSource(accountID).Open(ctx, audit.WithRecords|audit.OnlyOldest)
	})
}

// AuditWaiting returns the size of the unsealed end of each account's log that has one.
func (s *Store) AuditWaiting(ctx context.Context) ([]audit.Waiting, error) {
	return read(ctx, s, DataPlane, func(t *Reader) ([]audit.Waiting, error) { return t.auditWaiting(ctx, "") })
}

// AuditWaiting implements control.AuditReader.
func (t *Reader) AuditWaiting(ctx context.Context, accountID string) (audit.Waiting, error) {
	list, err := t.auditWaiting(ctx, `WHERE account_id = $1 `, accountID)
	if err != nil || len(list) == 0 {
		return audit.Waiting{AccountID: accountID}, err
	}
	return list[0], nil
}

// auditWaiting returns the size of the unsealed end of each account's log that where selects.
func (t *Reader) auditWaiting(ctx context.Context, where string, args ...any) ([]audit.Waiting, error) {
	return readAll(ctx, t, "count what is not sealed", `SELECT account_id, sum(chunks)::bigint, sum(records)::bigint, sum(managed)::bigint, sum(diffs)::bigint, min(oldest) FROM (
		SELECT account_id, count(*) AS chunks, sum(records) AS records, 0 AS managed, 0 AS diffs, min(first_time) AS oldest FROM audit_chunks `+where+`GROUP BY account_id
		UNION ALL SELECT account_id, 0, 0, count(*), coalesce(sum(octet_length(diff)), 0), min(time) FROM audit `+where+`GROUP BY account_id
	) AS unsealed GROUP BY account_id`, args, func(r *Row) (w audit.Waiting, err error) {
		var oldest int64
		err = r.Scan(&w.AccountID, &w.Chunks, &w.Records, &w.Managed, &w.DiffBytes, &oldest)
		w.Oldest = Instant(oldest)
		return w, err
	})
}

// AuditChains returns the chain of each account that has one.
func (s *Store) AuditChains(ctx context.Context) ([]audit.Chain, error) {
	return read(ctx, s, DataPlane, func(t *Reader) ([]audit.Chain, error) {
		return readAll(ctx, t, "list audit chains", auditChainColumns, nil, scanChain)
	})
}
