package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/state"
)

// troubleHold is how long after a full disk the store is in trouble at least: small writes may
// succeed in between.
const troubleHold = 3 * time.Second

// trouble is a transaction that failed for a reason that lasts.
type trouble struct {
	reason string
	at     time.Time
}

// note notes the error of a transaction that failed in the database, and returns it.
func (db *DB) note(err error) error {
	var e *fault.Error
	if !errors.As(err, &e) || isDamage(err) { // of a record, and not of the database
		return err
	}
	switch e.Message {
	case fullMessage:
		db.trouble.Store(&trouble{state.DiskFull, time.Now()})
	case awayMessage, slowMessage, readOnlyMessage, brokenMessage, refusedMessage, missingMessage, unknownMessage:
		db.trouble.Store(&trouble{state.Unavailable, time.Now()})
	}
	if e.Message == readOnlyMessage { // another server accepts writes now: connect to that
		for _, p := range []*pool{db.writer, db.readers, db.searchers, db.source, db.changes} {
			p.Reset()
		}
	}
	return err
}

// fail counts a write transaction that failed in the database, and notes its error.
func (db *DB) fail(err error) error {
	db.failures.Add(1)
	return db.note(err)
}

// wrote notes that a transaction was committed.
func (db *DB) wrote() {
	if last := db.trouble.Load(); last != nil && (last.reason != state.DiskFull || time.Since(last.at) >= troubleHold) {
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
	_ = db.record(ctx, func(t *tx) error { // update notes the error
		_, err := t.Exec(ctx, "probe the store", `UPDATE changes_trimmed SET seq = seq`)
		return err
	})
}
