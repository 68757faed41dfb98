package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/fault"
)

// stepping is a store in which before is called between AuditOpen and SealAudit of a writer.
type stepping struct {
	auditwriter.Store
	before func()
}

// SealAudit implements writer.Store.
func (s *stepping) SealAudit(ctx context.Context, seal *audit.Seal) error {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Store.SealAudit(ctx, seal)
}

// Guarantee: a seal removes the records that it names, and no others. If another node seals, joins
// or writes meanwhile, each record is in the chain once.
func testAuditSealInterrupted(h *harness) {
	for _, test := range []struct {
		name  string
		other func(d, other *auditHarness)
	}{
		{"another node seals", func(_, other *auditHarness) { other.seal() }},
		{"another node writes", func(_, other *auditHarness) {
			other.take(other.entry(2, 0, accesslog.Forwarded, "/meanwhile"))
			other.sync()
		}},
		{"another node writes and seals", func(_, other *auditHarness) {
			other.take(other.entry(2, 0, accesslog.Forwarded, "/meanwhile"))
			other.seal()
		}},
		{"another node joins", func(d, _ *auditHarness) { d.joinAll() }},
		{"another node joins and writes", func(d, other *auditHarness) {
			d.joinAll()
			other.take(other.entry(2, 0, accesslog.Forwarded, "/meanwhile"))
			other.sync()
		}},
	} {
		h.run(test.name, func(h *harness) {
			store := &stepping{Store: h.Engine}
			d := h.newAuditHarnessNamed(test.name, auditwriter.Config{Store: store})
			other := h.newAuditHarnessOf(d.account, auditwriter.Config{})
			for i := range 5 {
				d.take(d.entry(1, time.Duration(i)*time.Second, accesslog.Forwarded, fmt.Sprint("/", i)))
				d.sync()
			}
			d.manage(1, time.Minute, "a change")
			store.before = func() { test.other(d, other) }
			d.seal()
			if store.before != nil {
				h.Fatal("the store was not asked to seal")
			}
			h.must(d.Seal(h.Context())) // what came meanwhile
			same(h, "open", d.waiting(), 0)
			want := 6 + len(other.open) + len(other.sealed)
			report := d.verify()
			same(h, "records in the chain", report.Records, int64(want))
			same(h, "records in the list", len(d.list(audit.Filter{}, 100, nil)), want)
		})
	}
}

// joinAll joins all chunks of the log.
func (d *auditHarness) joinAll() {
	d.Helper()
	o, err := d.AuditOpen(d.Context(), d.account.ID)
	d.must(err)
	codec, err := audit.NewCodec()
	d.must(err)
	var (
		t    audit.Table
		gone []int64
	)
	for i := range o.Chunks {
		gone = append(gone, o.Chunks[i].ID)
	}
	_, err = codec.Gather(&t, &audit.Open{Chunks: o.Chunks})
	d.must(err)
	content, err := t.Encode(nil)
	d.must(err)
	first, _ := t.Span()
	d.must(d.JoinAuditChunks(d.Context(), gone, audit.Chunk{AccountID: d.account.ID, Records: t.Len(), First: first, Content: content}))
}

// Guarantee: when several nodes write and seal one log at the same time, the chain does not fork,
// and has each record once.
func testAuditManySealers(h *harness) {
	const nodes, rounds, each = 3, 8, 5
	a := h.insertAccount("shared")
	var all sync.WaitGroup
	for n := range nodes {
		d := h.newAuditHarnessOf(a, auditwriter.Config{})
		all.Go(func() {
			for r := range rounds {
				for i := range each {
					d.Take([]accesslog.Entry{d.entry(byte(n), time.Duration(r*each+i)*time.Second, accesslog.Forwarded, fmt.Sprint("/", n, "/", r, "/", i))})
				}
				// All of its tries may have met others; the next round seals the rest.
				if err := d.Seal(h.Context()); err != nil && fault.CodeOf(err) != fault.Conflict {
					h.Error(err)
				}
			}
		})
	}
	all.Wait()
	last := h.newAuditHarnessOf(a, auditwriter.Config{})
	h.must(last.Seal(h.Context()))
	same(h, "open", last.waiting(), 0)
	same(h, "records in the chain", last.verify().Records, int64(nodes*rounds*each))
	seen := map[string]int{}
	for _, r := range last.list(audit.Filter{}, 100, nil) {
		seen[r.Path]++
	}
	same(h, "different records", len(seen), nodes*rounds*each)
}
