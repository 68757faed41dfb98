package sqlite

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
)

// What is damaged in the store costs the list no more than the records that were
// there: a gap stands in their place, in every page size, the log goes on to be
// sealed, and a damaged block is found by its chain.
func TestDamagedAuditLog(t *testing.T) {
	ctx := t.Context()
	db := fresh(t)
	now := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	a := account.Account{ID: id.New(id.Account), Name: "a", Plan: account.Scale, CreatedAt: now}
	if err := db.Update(ctx, func(tx control.Tx) error { return tx.InsertAccount(ctx, &a) }); err != nil {
		t.Fatal(err)
	}
	j, err := auditwriter.New(auditwriter.Config{Store: db, Keeper: db, OperatorID: a.ID, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	give := func(n int) {
		batch := make([]accesslog.Entry, n)
		for i := range batch {
			now = now.Add(time.Millisecond)
			e := &batch[i]
			e.Account, _ = id.Parse(id.Account, a.ID)
			e.Start, e.Request, e.Authenticated, e.Method, e.Path = now.UnixMicro(), id.NewFastAt(now.UnixMilli()), true, accesslog.GET, "/x"
		}
		j.Take(batch)
		if err := j.Sync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	damage := func(table, column string, key int64) {
		c, err := db.writer.take(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer db.writer.give(c)
		if _, err := c.sql.ExecContext(ctx, "UPDATE "+table+" SET content = substr(content, 1, length(content) - 9) WHERE "+column+" = ?", key); err != nil {
			t.Fatal(err)
		}
	}
	list := func(f audit.Filter, pageSize int) (list []audit.Record) {
		t.Helper()
		for after := ""; ; after = list[len(list)-1].Place {
			var page []audit.Record
			if err := db.View(ctx, func(tx control.ReadTx) (err error) {
				page, err = tx.AuditLog(ctx, a.ID, f, control.Page{Limit: pageSize, After: after})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if list = append(list, page...); len(page) < pageSize {
				return list
			}
		}
	}
	hold := func(what string, events int, gaps ...string) {
		t.Helper()
		for _, size := range []int{1, 7, 1000} {
			var told []string
			all := list(audit.Filter{}, size)
			for _, r := range all {
				if r.Action == audit.GapNoted {
					told = append(told, r.Diff["reason"][1].(string)) //nolint:forcetypeassert // a gap has one
				}
			}
			if len(all) != events+len(told) || !slices.Equal(told, gaps) {
				t.Errorf("%s, in pages of %d: %d records with the gaps %q, want %d and %q", what, size, len(all), told, events+len(gaps), gaps)
			}
			if got := len(list(audit.Filter{Kind: audit.Authentication}, size)); got != events {
				t.Errorf("%s, in pages of %d: %d events, want %d", what, size, got, events)
			}
		}
	}

	const open = "their part of the open end was damaged"
	give(10)
	give(20)
	give(30)
	o, err := db.AuditOpen(ctx, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	damage("audit_chunks", "id", o.Chunks[1].ID)
	hold("with a damaged chunk", 40, open)
	if err := j.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	if j.Lost() != 20 {
		t.Errorf("%d are counted as lost, want 20", j.Lost())
	}
	hold("with the rest sealed", 40, open)
	give(5)
	if err := j.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	give(3)
	hold("with more", 48, open)
	if err := verifyAudit(t, db, a.ID); err != nil {
		t.Fatal(err)
	}

	damage("audit_blocks", "number", 2)
	hold("with a damaged block", 43, "block 2 is damaged", open)
	var problem *audit.Problem
	if err := verifyAudit(t, db, a.ID); !errors.As(err, &problem) || problem.Block != 2 {
		t.Errorf("the chain with a damaged block gave %v", err)
	}
}

func verifyAudit(t *testing.T, db *DB, accountID string) error {
	t.Helper()
	return db.View(t.Context(), func(tx control.ReadTx) error {
		chain, err := tx.AuditChain(t.Context(), accountID)
		if err != nil {
			return err
		}
		blocks, err := tx.AuditBlocks(t.Context(), accountID, 0, 1000)
		if err != nil {
			return err
		}
		_, err = audit.Verify(chain, func(yield func(*audit.Block, error) bool) {
			for _, b := range blocks {
				if !yield(b, nil) {
					return
				}
			}
		}, nil)
		return err
	})
}
