package sqlite

import (
	"errors"
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
)

// Guarantee: while the disk is full, the log can be read, and records beyond the memory limit are
// counted as lost. When there is space again, the other records are written, the log shows the gap,
// and the chain is valid.
func TestAuditLogOnAFullDisk(t *testing.T) {
	h := newAuditHarness(t, 300_000)
	h.take(1000)
	h.seal()
	h.take(1000)
	h.sync()
	h.exec("PRAGMA max_page_count = 1") // SQLite uses the present size

	t.Run("writing fails, and reading works", func(t *testing.T) {
		var err error
		for range 20 {
			h.take(1000)
			if err = h.writer.Sync(t.Context()); err != nil {
				break
			}
		}
		var full *fault.Error
		if !errors.As(err, &full) || full.Message != fullMessage {
			t.Fatalf("got the error %v, want %q", err, fullMessage)
		}
		written := len(h.list(audit.Filter{}, 1<<20))
		h.take(10_000)
		if err := h.writer.Sync(t.Context()); err == nil {
			t.Error("Sync succeeded, want an error")
		}
		if err := h.writer.Seal(t.Context()); err == nil {
			t.Error("Seal succeeded, want an error")
		}
		if h.writer.Lost() == 0 {
			t.Error("no records are counted as lost")
		}
		if got := len(h.list(audit.Filter{}, 1<<20)); got != written {
			t.Errorf("the list has %d records, want still %d", got, written)
		}
	})
	h.exec("PRAGMA max_page_count = 1000000")
	h.sync()
	all := h.list(audit.Filter{}, 1<<20)
	t.Run("the list has all records that are not lost, and the gap", func(t *testing.T) {
		if want := h.taken - int(h.writer.Lost()) + 1; len(all) != want {
			t.Errorf("got %d records, want %d", len(all), want)
		}
		if !slices.ContainsFunc(all, func(r audit.Record) bool { return r.Action == audit.GapNoted }) {
			t.Error("the list has no gap")
		}
	})
	t.Run("the chain is valid and complete", func(t *testing.T) {
		h.seal()
		report, err := h.verify()
		if err != nil {
			t.Fatal(err)
		}
		if report.Records != int64(len(all)) {
			t.Errorf("the chain has %d records, want %d", report.Records, len(all))
		}
	})
}
