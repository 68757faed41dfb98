package sqlite

import (
	"context"

	"github.com/keygate/keygate/internal/webhook/sender"
)

var _ sender.Exclusive = (*DB)(nil)

// ReleaseAllDeliveries implements sender.Exclusive.
func (db *DB) ReleaseAllDeliveries(ctx context.Context, name string) (released int, err error) {
	err = db.write(ctx, func(t *tx) error {
		prefix := sender.TokenPrefix(name)
		n, err := t.Exec(ctx, "release deliveries", `UPDATE deliveries SET token = NULL, due_at = next_at WHERE n IN (
			SELECT n FROM deliveries INDEXED BY deliveries_due WHERE due_at IS NOT NULL AND token IS NOT NULL
			AND substr(token, 1, length(?)) = ?)`, prefix, prefix)
		released = int(n)
		return err
	})
	return released, err
}
