package postgres

import (
	"context"
	"errors"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
)

// SQLSTATE codes of records that the server itself cannot read.
const (
	dataCorrupted  = "XX001"
	indexCorrupted = "XX002"
)

// KeysByID implements snapshot.PositionLog. One statement reads all keys; only if the server cannot read one of
// them, it reads them in halves until it knows which.
func (db *DB) KeysByID(ctx context.Context, keyIDs []string, f func(keyID string, k *apikey.Key, unreadable error)) error {
	if len(keyIDs) == 0 {
		return nil
	}
	return inHalves(keyIDs, func(keyIDs []string) error {
		return db.statement(ctx, db.changes, logTime, func(t *readTx) error {
			return t.Query(ctx, "read keys", rows.KeyColumns+`WHERE id = ANY ($1)`+rows.Counted, []any{keyIDs}, func(r *rows.Row) error {
				k, err := rows.ScanKey(r)
				switch {
				case err == nil:
					f(k.ID, &k, nil)
				case k.ID == "" || resultOf(r).Err() != nil: // of the driver, which reads no further
					return rows.Decoded(err)
				default:
					f(k.ID, nil, err)
				}
				return nil
			})
		})
	}, func(keyID string, err error) { f(keyID, nil, err) })
}

// inHalves calls read with the identifiers, and with halves of them as long as its error is that one of the records is
// damaged. It calls bad for a record that is damaged.
func inHalves(ids []string, read func(ids []string) error, bad func(id string, err error)) error {
	err := read(ids)
	if !isDamage(err) {
		return err
	}
	if len(ids) == 1 {
		bad(ids[0], &corrupted{err})
		return nil
	}
	half := len(ids) / 2
	if err := inHalves(ids[:half], read, bad); err != nil {
		return err
	}
	return inHalves(ids[half:], read, bad)
}

// corrupted is the error of a record that the server cannot read, or that Keygate cannot decode. It has the text
// of the original error but, unlike that, does not say that the database cannot be used.
type corrupted struct{ err error }

func (e *corrupted) Error() string { return "the stored record is damaged: " + e.err.Error() }

// Is makes the error match snapshot.ErrDamaged.
func (e *corrupted) Is(target error) bool { return target == snapshot.ErrDamaged }

// isDamage reports whether err is of a record that is damaged, and not of the database.
func isDamage(err error) bool {
	state := stateOf(err)
	var u *rows.Undecodable
	return state == dataCorrupted || state == indexCorrupted || errors.As(err, &u)
}

// ofRecord returns err, the error of reading one record, as an error that matches snapshot.ErrDamaged if the record
// is damaged.
func ofRecord(err error) error {
	if err == nil || !isDamage(err) {
		return err
	}
	return &corrupted{err}
}
