package postgres

import (
	"context"
	"errors"
	"math"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/state"
)

var (
	_ control.Tx     = (*tx)(nil)
	_ control.ReadTx = (*readTx)(nil)
)

// Update implements control.Store. f must not call Update. If a statement failed, the
// transaction is rolled back even if f returns nil. If ctx ends before COMMIT starts, the
// transaction is rolled back; after that, ctx has no effect. f is called again if the server ended
// the transaction to resolve a conflict.
func (db *DB) Update(ctx context.Context, f func(control.Tx) error) error {
	return db.mutate(ctx, func(t *tx) error { return f(t) })
}

// View implements control.Store.
func (db *DB) View(ctx context.Context, f func(control.ReadTx) error) error {
	return db.view(ctx, db.readers, func(t *readTx) error { return f(t) })
}

// Search implements control.Store.
func (db *DB) Search(ctx context.Context, f func(control.ReadTx) error) error {
	return db.search(ctx, func(t *readTx) error { return f(t) })
}

// engine returns what the store is made of.
func (db *DB) engine() rows.Engine {
	return rows.Engine{
		Read: func(ctx context.Context, a rows.Access, f func(*rows.Reader) error) error {
			of := func(t *readTx) error { return f(&t.Reader) }
			switch a {
			case rows.OneOfThem:
				return db.statement(ctx, db.readers, readTime, of)
			case rows.Changed:
				return db.statement(ctx, db.changes, logTime, of)
			case rows.Reports:
				return db.search(ctx, of)
			case rows.DataPlane:
				return db.view(ctx, db.source, of)
			case rows.Streams:
				return db.stream(ctx, db.source, of)
			case rows.ChangedStreams:
				return db.stream(ctx, db.changes, of)
			default:
				return db.view(ctx, db.readers, of)
			}
		},
		Write: func(ctx context.Context, d rows.Durability, f func(*rows.Writer) error) error {
			k := noHead
			if d == rows.OfTraffic {
				k = noReplica
			}
			return db.update(ctx, k, func(t *tx) error { return f(&t.Writer) })
		},
		OfRecord:    ofRecord,
		Staged:      func(context.Context, int) {},
		Pages:       db.pages,
		ClaimAtOnce: math.MaxInt, // others do not wait for it
	}
}

// note notes the error of a transaction that failed in the database, and returns it.
func (db *DB) note(err error) error {
	var e *fault.Error
	if !errors.As(err, &e) || isDamage(err) { // of a record, and not of the database
		return err
	}
	switch e.Message {
	case fullMessage:
		db.InTrouble(state.DiskFull, rows.TroubleHold)
	case awayMessage, slowMessage, readOnlyMessage, brokenMessage, refusedMessage, missingMessage, unknownMessage:
		db.InTrouble(state.Unavailable, 0)
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
	db.Failed()
	return db.note(err)
}
