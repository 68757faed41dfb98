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
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

// While the disk is full, traffic goes on and the log can be read; what memory
// cannot hold is counted; when there is space again the rest is written, the gap
// is told, and the chain holds.
func TestAuditLogOnAFullDisk(t *testing.T) {
	ctx := t.Context()
	db := fresh(t)
	a := account.Account{ID: id.New(id.Account), Name: "a", Plan: account.Scale, CreatedAt: time.Now()}
	if err := db.Update(ctx, func(tx control.Tx) error { return tx.InsertAccount(ctx, &a) }); err != nil {
		t.Fatal(err)
	}
	j, err := auditwriter.New(auditwriter.Config{Store: db, Keeper: db, OperatorID: a.ID, MaxHeld: 300_000})
	if err != nil {
		t.Fatal(err)
	}
	given := 0
	give := func(n int) {
		now := time.Now()
		batch := make([]accesslog.Entry, n)
		for i := range batch {
			e := &batch[i]
			e.Account, _ = id.Parse(id.Account, a.ID)
			e.Start, e.Request, e.Authenticated, e.Method, e.Path = now.UnixMicro()+int64(i), id.NewFast(), true, accesslog.GET, "/x"
		}
		j.Take(batch)
		given += n
	}
	list := func() []audit.Record {
		var list []audit.Record
		if err := db.View(ctx, func(tx control.ReadTx) (err error) {
			list, err = tx.AuditLog(ctx, a.ID, audit.Filter{}, control.Page{Limit: 1 << 20})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return list
	}
	give(1000)
	if err := j.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	give(1000)
	if err := j.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := db.writer.take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.sql.ExecContext(ctx, "PRAGMA max_page_count = 1"); err != nil { // no more than there are
		t.Fatal(err)
	}
	db.writer.give(c)

	var full *fault.Error
	for range 20 {
		give(1000)
		if err = j.Sync(ctx); err != nil {
			break
		}
	}
	if !errors.As(err, &full) || full.Message != fullMessage {
		t.Fatalf("a full database gave %v", err)
	}
	written := len(list())
	give(10_000)
	if err := j.Sync(ctx); err == nil {
		t.Fatal("a full database took records")
	}
	if err := j.Seal(ctx); err == nil {
		t.Fatal("a full database took a block")
	}
	if j.Lost() == 0 || len(list()) != written {
		t.Fatalf("%d were lost, and the list has %d records where it had %d", j.Lost(), len(list()), written)
	}
	limitPages(ctx, t, db, "1000000")
	if err := j.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	all := list()
	if len(all) != given-int(j.Lost())+1 {
		t.Errorf("%d records, want %d and the gap", len(all), given-int(j.Lost()))
	}
	if !slices.ContainsFunc(all, func(r audit.Record) bool { return r.Action == audit.GapNoted }) {
		t.Error("the gap is not told")
	}
	if err := j.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	err = db.View(ctx, func(tx control.ReadTx) error {
		chain, err := tx.AuditChain(ctx, a.ID)
		if err != nil {
			return err
		}
		blocks, err := tx.AuditBlocks(ctx, a.ID, 0, 1000)
		if err != nil {
			return err
		}
		report, err := audit.Verify(chain, func(yield func(*audit.Block, error) bool) {
			for _, b := range blocks {
				if !yield(b, nil) {
					return
				}
			}
		}, nil)
		if err == nil && report.Records != int64(len(all)) {
			t.Errorf("the chain has %d records, the list %d", report.Records, len(all))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
