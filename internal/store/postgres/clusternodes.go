package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/snapshot"
)

// ServingNodes implements cluster.NodeStore.
func (db *DB) ServingNodes(ctx context.Context) (names []string, err error) {
	err = db.view(ctx, db.source, func(t *readTx) error {
		names, err = t.Texts(ctx, "read the nodes", `SELECT name FROM nodes WHERE state = 'live' AND role <> 'control' ORDER BY name COLLATE "C"`)
		return err
	})
	return names, err
}

// AnnounceNode implements cluster.NodeStore.
func (db *DB) AnnounceNode(ctx context.Context, name string) (p snapshot.Position, err error) {
	err = db.mutate(ctx, func(t *tx) error {
		t.OnCommit("", func(at snapshot.Position, _ int64) { p = at })
		_, err := t.AppendChange(ctx, snapshot.NodeChange, name)
		return err
	})
	return p, err
}
