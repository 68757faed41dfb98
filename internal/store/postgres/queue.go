package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook/sender"
)

var (
	_ sender.Exclusive = (*DB)(nil)
	_ sender.Peers     = (*DB)(nil)
)

// ReleaseAllDeliveries implements sender.Exclusive. Leases of other nodes stay: if a node has died,
// its leases end by themselves, and the deliveries are due then. Senders without a name may be of
// several nodes, so it ends none of theirs.
func (db *DB) ReleaseAllDeliveries(ctx context.Context, name string) (released int, err error) {
	if name == "" {
		return 0, ctx.Err()
	}
	prefix := sender.TokenPrefix(name)
	err = db.write(ctx, func(t *tx) error {
		n, err := t.Exec(ctx, "release deliveries", `UPDATE deliveries SET token = NULL, due_at = next_at
			WHERE token >= $1 AND token < $2 AND starts_with(token, $1)`, prefix, prefix+rows.Below(""))
		released = int(n)
		return err
	})
	return released, err
}

// releaseEnded steps through the claimants that hold deliveries, by the first of their tokens, and
// compares them with the leases of nodes. The rows are changed only if they still have the token that
// was seen: a claim may have replaced it since, by a node that joined after this statement began.
const releaseEnded = `WITH RECURSIVE claimants (name) AS (
		(SELECT split_part(token, '/', 1) FROM deliveries WHERE token >= '0' ORDER BY token LIMIT 1)
		UNION ALL
		SELECT (SELECT split_part(d.token, '/', 1) FROM deliveries d WHERE d.token >= (claimants.name || '0') COLLATE "C" ORDER BY d.token LIMIT 1)
		FROM claimants WHERE claimants.name IS NOT NULL
	), ended AS MATERIALIZED (
		SELECT d.n, d.token FROM claimants c JOIN deliveries d ON d.token >= (c.name || '/') COLLATE "C" AND d.token < (c.name || '0') COLLATE "C"
		WHERE NOT EXISTS (SELECT FROM nodes n WHERE n.state = 'live' AND encode(n.boot, 'hex') || '.' || n.epoch = c.name) LIMIT $1
	)
	UPDATE deliveries d SET token = NULL, due_at = next_at FROM ended e WHERE d.n = e.n AND d.token = e.token`

// ReleaseEnded implements sender.Peers, for the claimants that lease.Row.Claimant names.
func (db *DB) ReleaseEnded(ctx context.Context, limit int) (released int, err error) {
	err = db.write(ctx, func(t *tx) error {
		n, err := t.Exec(ctx, "release the deliveries of ended leases", releaseEnded, rows.Limit(limit))
		released = int(n)
		return err
	})
	return released, err
}
