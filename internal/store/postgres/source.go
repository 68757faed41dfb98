package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ snapshot.Source = (*DB)(nil)

// readOn returns the value that f reads in a transaction on a connection of p.
func readOn[T any](ctx context.Context, db *DB, p *pool, f func(*readTx) (T, error)) (v T, err error) {
	err = db.view(ctx, p, func(t *readTx) error {
		v, err = f(t)
		return err
	})
	return v, err
}

// Accounts implements snapshot.Source. A record that cannot be read is an error.
func (db *DB) Accounts(ctx context.Context) ([]account.Account, error) {
	var first error
	list, err := db.ReadableAccounts(ctx, func(_ string, err error) { first = err })
	if err == nil {
		err = first
	}
	return list, err
}

const visibleAccounts = `WHERE state IN ('active', 'suspended') `

// ReadableAccounts implements snapshot.PositionLog. One statement reads all accounts; only if the server cannot read
// one of them, it reads them one by one.
func (db *DB) ReadableAccounts(ctx context.Context, bad func(accountID string, err error)) ([]account.Account, error) {
	list, err := db.accounts(ctx, visibleAccounts+`ORDER BY id`, nil, bad)
	if err == nil || !isDamage(err) {
		return list, err
	}
	ids, err := readOn(ctx, db, db.changes, func(t *readTx) ([]string, error) {
		return t.Texts(ctx, "read accounts", `SELECT id FROM accounts `+visibleAccounts+`ORDER BY id`)
	})
	if err != nil {
		return nil, err
	}
	list = nil
	for _, accountID := range ids {
		some, err := db.accounts(ctx, visibleAccounts+`AND id = $1`, []any{accountID}, bad)
		if err != nil && isDamage(err) {
			bad(accountID, &corrupted{err})
			some, err = []account.Account{{ID: accountID, State: account.Suspended}}, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	return list, nil
}

// accounts reads accounts. It calls bad for an account that cannot be decoded, and lists it as suspended.
func (db *DB) accounts(ctx context.Context, rest string, args []any, bad func(accountID string, err error)) (list []account.Account, err error) {
	err = db.statement(ctx, db.changes, readTime, func(t *readTx) error {
		list = nil // of an attempt whose connection was lost
		return t.Query(ctx, "read accounts", rows.AccountColumns+rest, args, func(r *rows.Row) error {
			a, err := rows.ScanAccount(r)
			if err != nil {
				if a.ID == "" || resultOf(r).Err() != nil { // of the driver, which reads no further
					return rows.Decoded(err)
				}
				bad(a.ID, &corrupted{err})
				a.State = account.Suspended
			}
			list = append(list, a)
			return nil
		})
	})
	return list, err
}

// KeyByID implements snapshot.KeySource.
func (db *DB) KeyByID(ctx context.Context, keyID string) (*apikey.Key, error) {
	return readOn(ctx, db, db.changes, func(t *readTx) (*apikey.Key, error) { return t.SelectKey(ctx, `WHERE id = $1`+rows.Counted, keyID) })
}
