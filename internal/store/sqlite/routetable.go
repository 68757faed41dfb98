package sqlite

import (
	"context"
	"errors"
	"os"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
)

// checkpointStages is the number of those transactions after which the write-ahead log is written back.
const checkpointStages = 8

// Prepare implements control.Store.
func (db *DB) Prepare(ctx context.Context, r *gateway.Revision) (control.Prepared, error) {
	p, err := db.pages.Prepare(r)
	if err != nil {
		return nil, err
	}
	if p.Size() <= stored.StageBytes {
		return p, nil
	}
	if err := db.stage(ctx, p); err != nil {
		return nil, errors.Join(err, db.Discard(ctx, p))
	}
	return p, nil
}

// stage stores p as a table that no gateway has yet.
func (db *DB) stage(ctx context.Context, p *stored.Prepared) error {
	pages, parts := p.Pages, p.Parts
	for n := 0; n == 0 || len(pages)+len(parts) > 0; n++ {
		err := db.record(ctx, func(t *tx) (err error) {
			if n == 0 {
				if p.Table, err = t.InsertTable(ctx, p.Revision.GatewayID, p.Revision.ID, stored.TableStaged); err != nil {
					return err
				}
			}
			left := stored.StageBytes
			for len(pages) > 0 && left > 0 {
				left -= len(pages[0].Content)
				if err := t.InsertPages(ctx, p.Table, pages[:1]); err != nil {
					return err
				}
				pages = pages[1:]
			}
			for len(parts) > 0 && left > 0 {
				left -= len(parts[0].Content)
				if err := t.InsertParts(ctx, p.Revision.ID, parts[:1]); err != nil {
					return err
				}
				parts = parts[1:]
			}
			return nil
		})
		if err != nil {
			return err
		}
		db.syncLog()
		if n%checkpointStages == checkpointStages-1 {
			// Else the log could grow until the writer checkpoints itself, while others wait. If this
			// fails, the checkpointer warns.
			_, _ = db.checkpointer.from.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
		}
	}
	p.Pages, p.Parts = nil, nil
	return nil
}

// syncLog writes the write-ahead log to the disk without holding the writer, so that the next
// transaction that must be on the disk has little left to write. It is not needed for durability, so
// its errors do not matter.
func (db *DB) syncLog() {
	f, err := os.OpenFile(db.path+"-wal", os.O_RDWR, 0)
	if err != nil {
		return
	}
	_ = f.Sync()
	_ = f.Close()
}

// Discard implements control.Store.
func (db *DB) Discard(ctx context.Context, c control.Prepared) error {
	p, ok := c.(*stored.Prepared)
	if !ok || p.Table == 0 {
		return nil
	}
	return db.write(context.WithoutCancel(ctx), func(t *tx) error {
		_, err := t.Exec(ctx, "discard a route table", `UPDATE route_tables SET state = ? WHERE id = ? AND state = ?`, stored.TableDropped, p.Table, stored.TableStaged)
		return err
	})
}

// InsertTable implements rows.Tx.
func (t *tx) InsertTable(ctx context.Context, gatewayID, revisionID string, state int) (n int64, err error) {
	err = t.Query(ctx, "insert a route table", `INSERT INTO route_tables (gateway_id, revision_id, state, version, created_at) VALUES (?, ?, ?, 1, ?) RETURNING id`,
		[]any{gatewayID, revisionID, state, t.now()}, func(r *rows.Row) error { return r.Scan(&n) })
	t.wrote = t.wrote || err == nil
	return n, err
}

// InsertParts implements rows.Tx.
func (t *tx) InsertParts(ctx context.Context, revisionID string, parts []stored.RevisionPart) error {
	for _, p := range parts {
		_, err := t.Exec(ctx, "insert a part of a revision", `INSERT INTO revision_parts (revision_id, kind, n, content) VALUES (?, ?, ?, ?)`,
			revisionID, p.Kind, p.N, p.Content)
		if err != nil {
			return err
		}
	}
	return nil
}

// InsertPages implements rows.Tx.
func (t *tx) InsertPages(ctx context.Context, table int64, pages []stored.RoutePage) error {
	for _, p := range pages {
		_, err := t.Exec(ctx, "insert a page of routes", `INSERT INTO route_pages (table_id, first, routes, content) VALUES (?, ?, ?, ?)`,
			table, p.First, p.Routes, p.Content)
		if err != nil {
			return err
		}
	}
	return nil
}
