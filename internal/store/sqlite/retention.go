package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keygate/keygate/internal/retention"
	"github.com/keygate/keygate/internal/store/rows"
)

var _ retention.Store = (*DB)(nil)

// LoadRetention implements retention.Store.
func (db *DB) LoadRetention(ctx context.Context) (s retention.State, err error) {
	err = view(ctx, db.source, func(t *readTx) error {
		return t.Query(ctx, "read the clock of retention", `SELECT state FROM retention`, nil, func(r *rows.Row) error {
			var text []byte
			if err := r.Scan(&text); err != nil {
				return err
			}
			return json.Unmarshal(text, &s)
		})
	})
	return s, err
}

// SaveRetention implements retention.Store.
func (db *DB) SaveRetention(ctx context.Context, s retention.State) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the clock of retention: %w", err)
	}
	return db.record(ctx, func(t *tx) error {
		_, err := t.Exec(ctx, "write the clock of retention", `INSERT INTO retention (id, state) VALUES (1, ?)
			ON CONFLICT (id) DO UPDATE SET state = excluded.state`, string(text))
		return err
	})
}
