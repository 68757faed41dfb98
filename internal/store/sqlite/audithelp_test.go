package sqlite

import (
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	auditwriter "github.com/keygate/keygate/internal/audit/writer"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/id"
)

// auditHarness is a new store with one account and the writer of its audit log.
type auditHarness struct {
	*DB
	t       *testing.T
	account string
	writer  *auditwriter.Writer
	now     time.Time
	taken   int // entries given to the writer
}

// newAuditHarness returns a harness whose writer holds at most maxHeld bytes; 0 means its
// default.
func newAuditHarness(t *testing.T, maxHeld int) *auditHarness {
	t.Helper()
	h := &auditHarness{DB: fresh(t), t: t, account: id.New(id.Account), now: time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)}
	a := account.Account{ID: h.account, Name: "a", Tier: account.Scale, CreatedAt: h.now}
	h.must(h.Update(t.Context(), func(tx control.Tx) error { return tx.InsertAccount(t.Context(), &a) }))
	var err error
	h.writer, err = auditwriter.New(auditwriter.Config{
		Store: h.DB, Keeper: h.DB, OperatorID: h.account, MaxHeld: maxHeld, Now: func() time.Time { return h.now },
	})
	h.must(err)
	return h
}

func (h *auditHarness) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// take gives the writer n entries, one each millisecond.
func (h *auditHarness) take(n int) {
	batch := make([]accesslog.Entry, n)
	for i := range batch {
		h.now = h.now.Add(time.Millisecond)
		e := &batch[i]
		e.Account, _ = id.Parse(id.Account, h.account)
		e.Start, e.Request, e.Authenticated, e.Method, e.Path = h.now.UnixMicro(), id.NewFastAt(h.now.UnixMilli()), true, accesslog.GET, "/x"
	}
	h.writer.Take(batch)
	h.taken += n
}

func (h *auditHarness) sync() {
	h.t.Helper()
	h.must(h.writer.Sync(h.t.Context()))
}

func (h *auditHarness) seal() {
	h.t.Helper()
	h.must(h.writer.Seal(h.t.Context()))
}

// list reads the whole log in pages.
func (h *auditHarness) list(f audit.Filter, pageSize int) (list []audit.Record) {
	h.t.Helper()
	for after := ""; ; after = list[len(list)-1].Cursor {
		var page []audit.Record
		h.must(h.View(h.t.Context(), func(tx control.ReadTx) (err error) {
			page, err = tx.AuditLog(h.t.Context(), h.account, f, control.Page{Limit: pageSize, After: after})
			return err
		}))
		if list = append(list, page...); len(page) < pageSize {
			return list
		}
	}
}

// verify verifies the chain of the log.
func (h *auditHarness) verify() (report audit.Report, err error) {
	h.t.Helper()
	err = h.View(h.t.Context(), func(tx control.ReadTx) error {
		chain, err := tx.AuditChain(h.t.Context(), h.account)
		if err != nil {
			return err
		}
		blocks, err := tx.AuditBlocks(h.t.Context(), h.account, 0, 1000)
		if err != nil {
			return err
		}
		report, err = audit.Verify(chain, func(yield func(*audit.Block, error) bool) {
			for _, b := range blocks {
				if !yield(b, nil) {
					return
				}
			}
		}, nil)
		return err
	})
	return report, err
}

// damage cuts the end off the content of a row.
func (h *auditHarness) damage(table, column string, key int64) {
	h.t.Helper()
	h.exec("UPDATE "+table+" SET content = substr(content, 1, length(content) - 9) WHERE "+column+" = ?", key)
}

func (h *auditHarness) exec(query string, args ...any) {
	h.t.Helper()
	c, err := h.DB.writer.take(h.t.Context())
	h.must(err)
	defer h.DB.writer.give(c)
	_, err = c.sql.ExecContext(h.t.Context(), query, args...)
	h.must(err)
}
