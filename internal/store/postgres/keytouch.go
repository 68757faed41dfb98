package postgres

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
)

// TouchKeys implements control.KeyStore.
func (t *tx) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	ids := slices.Sorted(maps.Keys(used)) // in order, because neighbours share pages
	times := make([]int64, len(ids))
	for i, id := range ids {
		times[i] = rows.Micros(used[id])
	}
	return t.Queue(ctx, "touch keys", `UPDATE keys k SET last_used_at = u.at FROM unnest($1::text[], $2::bigint[]) AS u (id, at)
		WHERE k.id = u.id AND (k.last_used_at IS NULL OR k.last_used_at < u.at)`, ids, times)
}
