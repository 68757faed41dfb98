package rows

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keygate/keygate/internal/retention"
)

var _ retention.Store = (*Store)(nil)

// LoadRetention implements retention.Store.
func (s *Store) LoadRetention(ctx context.Context) (r retention.State, err error) {
	err = s.engine.Read(ctx, DataPlane, func(t *Reader) error {
		return t.Query(ctx, "read the clock of retention", `SELECT state FROM retention`, nil, func(row *Row) error {
			var text borrowed
			if err := row.Scan(&text); err != nil {
				return err
			}
			return json.Unmarshal(text, &r)
		})
	})
	return r, err
}

// SaveRetention implements retention.Store.
func (s *Store) SaveRetention(ctx context.Context, r retention.State) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the clock of retention: %w", err)
	}
	return s.engine.Write(ctx, OfTraffic, func(t *Writer) error {
		const what = "write the clock of retention"
		err := t.Queue(ctx, what, `INSERT INTO retention (state) SELECT $1::text WHERE NOT EXISTS (SELECT 1 FROM retention) ON CONFLICT DO NOTHING`, string(text))
		if err != nil {
			return err
		}
		return t.Queue(ctx, what, `UPDATE retention SET state = $1`, string(text))
	})
}
