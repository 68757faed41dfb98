package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/rows"
)

// AuditLog implements control.AuditReader.
func (t *readTx) AuditLog(ctx context.Context, accountID string, f audit.Filter, p control.Page) ([]audit.Record, error) {
	return t.c.codec.Search(ctx, auditSource{t, accountID}, accountID, f, p.After, p.Limit)
}

// AuditSource implements control.AuditReader.
func (t *readTx) AuditSource(accountID string) audit.Source { return auditSource{t, accountID} }

// AuditChain implements control.AuditReader.
func (t *readTx) AuditChain(ctx context.Context, accountID string) (audit.Chain, error) {
	c := audit.Chain{AccountID: accountID}
	err := t.Query(ctx, "read audit chain", `SELECT number, digest, sealed_at, base, base_digest, base_sealed, cut_records, cut_first, cut_last
		FROM audit_chains WHERE account_id = ?`, []any{accountID}, func(r rows.Row) error {
		var digest, baseDigest []byte
		var sealed, baseSealed, cutFirst, cutLast int64
		err := r.Scan(&c.Head.Number, &digest, &sealed, &c.Base.Number, &baseDigest, &baseSealed, &c.Cut.Records, &cutFirst, &cutLast)
		if err != nil {
			return err
		}
		copy(c.Head.Digest[:], digest)
		c.Head.Time = rows.Instant(sealed)
		if c.Base.Number > 0 {
			copy(c.Base.Digest[:], baseDigest)
			c.Base.Time = rows.Instant(baseSealed)
		}
		if c.Cut.Records > 0 {
			c.Cut.First, c.Cut.Last = rows.Instant(cutFirst), rows.Instant(cutLast)
		}
		return nil
	})
	return c, err
}

// AuditBlocks implements control.AuditReader.
func (t *readTx) AuditBlocks(ctx context.Context, accountID string, after int64, limit int) ([]*audit.Block, error) {
	var list []*audit.Block
	err := t.Query(ctx, "read audit blocks", `SELECT number, previous, digest, first_time, last_time, sealed_at, records, content
		FROM audit_blocks WHERE account_id = ? AND number > ? ORDER BY number LIMIT ?+0`,
		[]any{accountID, after, rows.Limit(limit)}, func(r rows.Row) error {
			b := &audit.Block{AccountID: accountID}
			var previous, digest []byte
			var first, last, sealed int64
			if err := r.Scan(&b.Number, &previous, &digest, &first, &last, &sealed, &b.Records, &b.Content); err != nil {
				return err
			}
			copy(b.Previous[:], previous)
			copy(b.Digest[:], digest)
			b.First, b.Last, b.Sealed = rows.Instant(first), rows.Instant(last), rows.Instant(sealed)
			list = append(list, b)
			return nil
		})
	return list, err
}

// auditSource reads an account's audit log within a transaction. It implements audit.Source.
type auditSource struct {
	t       *readTx
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
	err := s.t.Query(ctx, "read the unsealed end of the audit log", `SELECT id, records, first_time, content FROM audit_chunks INDEXED BY audit_chunks_account
		WHERE account_id = ? ORDER BY id`, []any{s.account}, func(r rows.Row) error {
		c := audit.Chunk{AccountID: s.account}
		var first int64
		err := r.Scan(&c.ID, &c.Records, &first, &c.Content)
		c.First = rows.Instant(first)
		o.Chunks = append(o.Chunks, c)
		return err
	})
	if err != nil {
		return err
	}
	if parts&audit.OnlyOldest == 0 {
		o.Records, err = s.t.Audit(ctx, s.account, control.Page{Limit: openManaged})
		return err
	}
	o.Records, err = s.t.auditRecords(ctx, s.account, `ORDER BY seq LIMIT ?+0`, audit.OldestRecords+1)
	if o.More = len(o.Records) > audit.OldestRecords; o.More {
		o.Records = o.Records[:audit.OldestRecords]
	}
	slices.Reverse(o.Records)
	return err
}

func (s auditSource) summaries(ctx context.Context, o *audit.Open) error {
	return s.t.Query(ctx, "read audit summaries", `SELECT summary FROM audit_summaries WHERE account_id = ? ORDER BY number`,
		[]any{s.account}, func(r rows.Row) error {
			var b sql.RawBytes
			if err := r.Scan(&b); err != nil {
				return err
			}
			summary, err := audit.ReadSummary(b)
			o.Recent = append(o.Recent, summary)
			return err
		})
}

// openManaged is more management records than an account ever has unsealed.
const openManaged = 1 << 20

// Groups implements audit.Source.
func (s auditSource) Groups(ctx context.Context, before int64, limit int) ([]*audit.BlockGroup, error) {
	var list []*audit.BlockGroup
	err := s.t.Query(ctx, "read audit groups", `SELECT head FROM audit_groups WHERE account_id = ? AND number < ? ORDER BY number DESC LIMIT ?+0`,
		[]any{s.account, before, rows.Limit(limit)}, func(r rows.Row) error {
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
	return s.t.Query(ctx, "read audit segments", `SELECT number, bits FROM audit_segments WHERE account_id = ? AND segment = ? AND number BETWEEN ? AND ?`,
		[]any{s.account, partition, first, last}, func(r rows.Row) error {
			var group int64
			var bits sql.RawBytes
			if err := r.Scan(&group, &bits); err != nil {
				return err
			}
			return f(group, bits)
		})
}

// Block implements audit.Source.
func (s auditSource) Block(ctx context.Context, number int64) (b *audit.Block, err error) {
	err = s.t.Query(ctx, "read audit block", `SELECT first_time, last_time, records, content FROM audit_blocks WHERE account_id = ? AND number = ?`,
		[]any{s.account, number}, func(r rows.Row) error {
			b = &audit.Block{AccountID: s.account, Number: number}
			var first, last int64
			err := r.Scan(&first, &last, &b.Records, &b.Content)
			b.First, b.Last = rows.Instant(first), rows.Instant(last)
			return err
		})
	return b, err
}

// AuditOpen returns the unsealed end of an account's log, with the oldest of its management records.
func (db *DB) AuditOpen(ctx context.Context, accountID string) (o *audit.Open, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		o, err = auditSource{t, accountID}.Open(ctx, audit.WithRecords|audit.OnlyOldest)
		return err
	})
	return o, err
}

// AuditWaiting returns the size of the unsealed end of each account's log that has one.
func (db *DB) AuditWaiting(ctx context.Context) ([]audit.Waiting, error) {
	all := map[string]*audit.Waiting{}
	var order []string
	add := func(accountID string, oldest time.Time, chunks, records, managed int, diffs int64) {
		w := all[accountID]
		if w == nil {
			w = &audit.Waiting{AccountID: accountID, Oldest: oldest}
			all[accountID] = w
			order = append(order, accountID)
		}
		w.Chunks, w.Records, w.Managed, w.DiffBytes = w.Chunks+chunks, w.Records+records, w.Managed+managed, w.DiffBytes+diffs
		if oldest.Before(w.Oldest) {
			w.Oldest = oldest
		}
	}
	err := view(ctx, db.source, func(t *readTx) error {
		err := t.Query(ctx, "count the unsealed audit chunks", `SELECT account_id, count(*), sum(records), min(first_time) FROM audit_chunks
			GROUP BY account_id`, nil, func(r rows.Row) error {
			var account string
			var chunks, records int
			var oldest int64
			err := r.Scan(&account, &chunks, &records, &oldest)
			add(account, rows.Instant(oldest), chunks, records, 0, 0)
			return err
		})
		if err != nil {
			return err
		}
		return t.Query(ctx, "count the unsealed audit records", `SELECT account_id, count(*), coalesce(sum(octet_length(diff)), 0), min(time)
			FROM audit GROUP BY account_id`, nil, func(r rows.Row) error {
			var account string
			var managed int
			var diffs, oldest int64
			err := r.Scan(&account, &managed, &diffs, &oldest)
			add(account, rows.Instant(oldest), 0, 0, managed, diffs)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("find audit records to seal: %w", err)
	}
	list := make([]audit.Waiting, 0, len(order))
	for _, account := range order {
		list = append(list, *all[account])
	}
	return list, nil
}

// AuditChains returns the chain of each account that has one.
func (db *DB) AuditChains(ctx context.Context) ([]audit.Chain, error) {
	var list []audit.Chain
	err := view(ctx, db.source, func(t *readTx) error {
		var accounts []string
		err := t.Query(ctx, "list audit chains", `SELECT account_id FROM audit_chains`, nil, func(r rows.Row) error {
			var a string
			err := r.Scan(&a)
			accounts = append(accounts, a)
			return err
		})
		if err != nil {
			return err
		}
		for _, a := range accounts {
			c, err := t.AuditChain(ctx, a)
			if err != nil {
				return err
			}
			list = append(list, c)
		}
		return nil
	})
	return list, err
}
