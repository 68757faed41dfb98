package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/store/rows"
)

// InsertTable implements rows.Tx.
func (t *tx) InsertTable(ctx context.Context, gatewayID, revisionID string, state int) (n int64, err error) {
	err = t.value(ctx, "number a route table", `SELECT nextval(pg_get_serial_sequence('route_tables', 'id'))`, func(r *rows.Row) error { return r.Scan(&n) })
	if err != nil {
		return 0, err
	}
	return n, t.Queue(ctx, "insert a route table", `INSERT INTO route_tables (id, gateway_id, revision_id, state, version, created_at) OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, $4, 1, $5)`,
		n, gatewayID, revisionID, state, t.now())
}
