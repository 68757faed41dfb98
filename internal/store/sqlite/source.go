package sqlite

import (
	"context"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ snapshot.Source = (*DB)(nil)

// Analyze implements control.Store. SQLite keeps no sizes of tables here: it plans by the indexes that there are.
func (db *DB) Analyze(ctx context.Context) error { return ctx.Err() }

// Settle implements control.Store: what can be read here is on the disk. Nobody asks for the number of an account's
// change, since there is one node.
func (db *DB) Settle(ctx context.Context, _ string) (p snapshot.Position, ofAccount int64, err error) {
	p.Number, err = db.LastSeq(ctx)
	return p, 0, err
}

// Accounts implements snapshot.Source.
func (db *DB) Accounts(ctx context.Context) (list []account.Account, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		list, err = t.SelectAccounts(ctx, `WHERE state IN ('active', 'suspended') ORDER BY id`)
		return err
	})
	return list, err
}

// KeyByID implements snapshot.KeySource.
func (db *DB) KeyByID(ctx context.Context, keyID string) (k *apikey.Key, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		k, err = t.SelectKey(ctx, `WHERE id = ?`+rows.Counted, keyID)
		return err
	})
	return k, err
}
