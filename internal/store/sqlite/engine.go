package sqlite

import (
	"context"
	"errors"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/state"
)

// engine returns what the store is made of.
func (db *DB) engine() rows.Engine {
	return rows.Engine{
		Read: func(ctx context.Context, a rows.Access, f func(*rows.Reader) error) error {
			p := db.source
			switch a {
			case rows.Calls, rows.OneOfThem:
				p = db.readers
			case rows.Reports:
				return db.search(ctx, func(t *readTx) error { return f(&t.Reader) })
			}
			return view(ctx, p, func(t *readTx) error { return f(&t.Reader) })
		},
		Write: func(ctx context.Context, d rows.Durability, f func(*rows.Writer) error) error {
			level := onDisk
			if d == rows.OfTraffic {
				level = inOrder
			}
			return db.update(ctx, level, func(t *tx) error { return f(&t.Writer) })
		},
		OfRecord:    func(err error) error { return err },
		Staged:      db.staged,
		Pages:       db.pages,
		ClaimAtOnce: 200,
	}
}

// fail counts a write transaction that failed with err, and returns err.
func (db *DB) fail(err error) error {
	db.Failed()
	var e *fault.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Message {
	case fullMessage:
		db.InTrouble(state.DiskFull, rows.TroubleHold)
	case brokenMessage, readOnlyMessage, damagedMessage:
		db.InTrouble(state.Unavailable, rows.TroubleHold)
	}
	return err
}
