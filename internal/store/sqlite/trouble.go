package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/state"
)

// troubleHold is how long after a failure the store is in trouble at least: on a full disk
// small writes may succeed in between.
const troubleHold = 3 * time.Second

// trouble is a write transaction that failed for a reason that lasts.
type trouble struct {
	reason string
	at     time.Time
}

// fail counts a write transaction that failed with err, and returns err.
func (db *DB) fail(err error) error {
	db.failures.Add(1)
	var e *fault.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Message {
	case fullMessage:
		db.trouble.Store(&trouble{state.DiskFull, time.Now()})
	case brokenMessage, readOnlyMessage, damagedMessage:
		db.trouble.Store(&trouble{state.Unavailable, time.Now()})
	}
	return err
}

// wrote notes that a transaction has changed the database.
func (db *DB) wrote() {
	if last := db.trouble.Load(); last != nil && time.Since(last.at) >= troubleHold {
		db.trouble.CompareAndSwap(last, nil)
	}
}

// Trouble implements store.Engine.
func (db *DB) Trouble() string {
	if last := db.trouble.Load(); last != nil {
		return last.reason
	}
	return ""
}

// Probe implements store.Engine.
func (db *DB) Probe(ctx context.Context) {
	if db.Trouble() == "" {
		return
	}
	_ = db.record(ctx, func(t *tx) error { // fail notes the error
		_, err := t.Exec(ctx, "probe the store", `UPDATE changes_trimmed SET seq = seq`)
		return err
	})
}
