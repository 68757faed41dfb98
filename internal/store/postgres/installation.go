package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/store/rows"
)

// Installation is what belongs to all nodes together.
type Installation struct {
	ID     string // names the installation in other stores
	Canary []byte // a known text, sealed with the secret key of all nodes
}

// Installation returns the record that the first node has stored. If this node is the first, it
// stores own. If several nodes start at once, exactly one is the first.
func (db *DB) Installation(ctx context.Context, own Installation) (i Installation, err error) {
	err = db.write(ctx, func(t *tx) error {
		if _, err := t.Exec(ctx, "found the installation", `INSERT INTO installation (id, canary) VALUES ($1, $2) ON CONFLICT DO NOTHING`, own.ID, own.Canary); err != nil {
			return err
		}
		return t.QueryRow(ctx, "installation", `SELECT id, canary FROM installation`, nil, func(r *rows.Row) error { return r.Scan(&i.ID, &i.Canary) })
	})
	return i, err
}
