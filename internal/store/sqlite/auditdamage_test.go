package sqlite

import (
	"errors"
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/audit"
)

// Guarantee: damage in the store costs only the damaged records. Lists of every page size show a
// gap at their position, later records are sealed, and verifying the chain finds a damaged block.
func TestDamagedAuditLog(t *testing.T) {
	h := newAuditHarness(t, 0)
	const gap = "their part of the open end was damaged"
	for _, n := range []int{10, 20, 30} {
		h.take(n)
		h.sync()
	}
	open, err := h.AuditOpen(t.Context(), h.account)
	h.must(err)
	h.damage("audit_chunks", "id", open.Chunks[1].ID)

	for _, step := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"a damaged chunk is a gap", func(t *testing.T) { h.wantGaps(t, 40, gap) }},
		{"the other chunks are sealed, and the damaged records counted", func(t *testing.T) {
			h.seal()
			if h.writer.Lost() != 20 {
				t.Errorf("got %d lost records, want 20", h.writer.Lost())
			}
			h.wantGaps(t, 40, gap)
		}},
		{"later records are sealed, and the chain is valid", func(t *testing.T) {
			h.take(5)
			h.sync()
			h.seal()
			h.take(3)
			h.sync()
			h.wantGaps(t, 48, gap)
			if _, err := h.verify(); err != nil {
				t.Errorf("the chain is not valid: %v", err)
			}
		}},
		{"a damaged block is a gap, and the chain finds it", func(t *testing.T) {
			h.damage("audit_blocks", "number", 2)
			h.wantGaps(t, 43, "block 2 is damaged", gap)
			var problem *audit.Problem
			if _, err := h.verify(); !errors.As(err, &problem) || problem.Block != 2 {
				t.Errorf("got %v, want a problem of block 2", err)
			}
		}},
	} {
		t.Run(step.name, step.run)
	}
}

// wantGaps checks that lists of every page size show that many events, and the gaps with the
// given reasons.
func (h *auditHarness) wantGaps(t *testing.T, events int, gaps ...string) {
	t.Helper()
	for _, size := range []int{1, 7, 1000} {
		all, got := h.list(audit.Filter{}, size), []string(nil)
		for _, r := range all {
			if r.Action == audit.GapNoted {
				got = append(got, r.Diff["reason"][1].(string)) //nolint:forcetypeassert // a gap has one
			}
		}
		if !slices.Equal(got, gaps) {
			t.Errorf("in pages of %d: got the gaps %q, want %q", size, got, gaps)
		}
		if len(all) != events+len(got) {
			t.Errorf("in pages of %d: got %d records, want %d", size, len(all), events+len(gaps))
		}
		if got := len(h.list(audit.Filter{Kind: audit.Authentication}, size)); got != events {
			t.Errorf("in pages of %d: got %d events, want %d", size, got, events)
		}
	}
}
