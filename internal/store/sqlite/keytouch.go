package sqlite

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
)

// TouchKeys implements control.KeyStore.
func (t *tx) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	for _, id := range slices.Sorted(maps.Keys(used)) { // in order, because neighbours share pages
		at := rows.Micros(used[id])
		if err := t.Queue(ctx, "touch key", `UPDATE keys SET last_used_at = ? WHERE id = ? AND (last_used_at IS NULL OR last_used_at < ?)`, at, id, at); err != nil {
			return err
		}
	}
	return nil
}
