package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/control"
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
