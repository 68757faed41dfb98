package rows

import (
	"context"
	"sync/atomic"
	"time"
)

// Health is why a store accepts no writes, and how many of its transactions failed. The zero value is for a store
// that accepts writes. It is safe for concurrent use.
type Health struct {
	failures atomic.Int64
	trouble  atomic.Pointer[trouble]
}

// trouble is a transaction that failed for a reason that lasts.
type trouble struct {
	reason string
	until  time.Time // at least
}

// TroubleHold is how long after a failure a store is in trouble at least: on a full disk, small writes may succeed in
// between.
const TroubleHold = 3 * time.Second

// InTrouble notes that a transaction failed for a reason of package state, which lasts as long as given, and until a
// transaction was committed.
func (h *Health) InTrouble(reason string, hold time.Duration) {
	h.trouble.Store(&trouble{reason, time.Now().Add(hold)})
}

// Failed counts a write transaction that failed in the database.
func (h *Health) Failed() { h.failures.Add(1) }

// Failures returns the number of write transactions that failed in the database.
func (h *Health) Failures() int64 { return h.failures.Load() }

// Wrote notes that a transaction was committed.
func (h *Health) Wrote() {
	if last := h.trouble.Load(); last != nil && !time.Now().Before(last.until) {
		h.trouble.CompareAndSwap(last, nil)
	}
}

// Trouble implements store.Engine.
func (h *Health) Trouble() string {
	if last := h.trouble.Load(); last != nil {
		return last.reason
	}
	return ""
}

// Probe implements store.Engine.
func (s *Store) Probe(ctx context.Context) {
	if s.Trouble() == "" {
		return
	}
	_ = s.engine.Write(ctx, OfTraffic, func(t *Writer) error { // the engine notes the error
		_, err := t.Exec(ctx, "probe the store", `UPDATE changes_trimmed SET seq = seq`)
		return err
	})
}
