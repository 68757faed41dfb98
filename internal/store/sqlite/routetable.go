package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
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
				if p.Table, err = t.insertTable(ctx, p.Revision.GatewayID, p.Revision.ID, stored.TableStaged); err != nil {
					return err
				}
			}
			left := stored.StageBytes
			for len(pages) > 0 && left > 0 {
				left -= len(pages[0].Content)
				if err := t.insertPages(ctx, p.Table, pages[:1]); err != nil {
					return err
				}
				pages = pages[1:]
			}
			for len(parts) > 0 && left > 0 {
				left -= len(parts[0].Content)
				if err := t.insertParts(ctx, p.Revision.ID, parts[:1]); err != nil {
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

// insertTable adds a route table.
func (t *tx) insertTable(ctx context.Context, gatewayID, revisionID string, state int) (n int64, err error) {
	err = t.Query(ctx, "insert a route table", `INSERT INTO route_tables (gateway_id, revision_id, state, version, created_at) VALUES (?, ?, ?, 1, ?) RETURNING id`,
		[]any{gatewayID, revisionID, state, t.now()}, func(r rows.Row) error { return r.Scan(&n) })
	t.wrote = t.wrote || err == nil
	return n, err
}

func (t *tx) insertParts(ctx context.Context, revisionID string, parts []stored.RevisionPart) error {
	for _, p := range parts {
		_, err := t.Exec(ctx, "insert a part of a revision", `INSERT INTO revision_parts (revision_id, kind, n, content) VALUES (?, ?, ?, ?)`,
			revisionID, p.Kind, p.N, p.Content)
		if err != nil {
			return err
		}
	}
	return nil
}

// InsertPrepared implements control.RevisionStore.
func (t *tx) InsertPrepared(ctx context.Context, c control.Prepared) error {
	p, ok := c.(*stored.Prepared)
	if !ok {
		return fmt.Errorf("%T was not prepared by this store", c)
	}
	if err := t.insertRevision(ctx, p); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, "drop a route table", `UPDATE route_tables SET state = ? WHERE id = (SELECT table_id FROM gateways WHERE id = ?)`, stored.TableDropped, p.Revision.GatewayID); err != nil {
		return err
	}
	table := p.Table
	if table == 0 {
		var err error
		if table, err = t.insertTable(ctx, p.Revision.GatewayID, "", stored.TableCurrent); err != nil {
			return err
		}
		if err := t.insertPages(ctx, table, p.Pages); err != nil {
			return err
		}
	} else {
		n, err := t.Exec(ctx, "use a route table", `UPDATE route_tables SET state = ?, revision_id = '' WHERE id = ? AND state = ?`, stored.TableCurrent, table, stored.TableStaged)
		if err != nil {
			return err
		}
		if n == 0 { // removed as one that a crash had left
			t.failed = fault.New(fault.Unavailable, "the push took too long: push again")
			return t.failed
		}
	}
	return t.QueueOne(ctx, "use a route table", "gateway", `UPDATE gateways SET table_id = ?, route_count = ?, route_bytes = ? WHERE id = ?`,
		table, p.Routes, p.RouteBytes, p.Revision.GatewayID)
}

// TrimTables implements control.Trimmer.
func (t *tx) TrimTables(ctx context.Context, staged time.Time, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.Ready(ctx)
	}
	if _, err := t.Exec(ctx, "find abandoned route tables", `UPDATE route_tables SET state = ? WHERE state = ? AND created_at < ?`, stored.TableDropped, stored.TableStaged, rows.Micros(staged)); err != nil {
		return false, err
	}
	left := int64(limit)
	for _, query := range []string{
		`DELETE FROM route_pages WHERE n IN (SELECT p.n FROM route_tables t INDEXED BY route_tables_rest JOIN route_pages p ON p.Table_id = t.id WHERE t.state = 2 LIMIT ?+0)`,
		`DELETE FROM revision_parts WHERE rowid IN (SELECT p.rowid FROM route_tables t INDEXED BY route_tables_rest JOIN revision_parts p ON p.revision_id = t.revision_id WHERE t.state = 2 LIMIT ?+0)`,
		`DELETE FROM revision_parts WHERE rowid IN (SELECT p.rowid FROM revisions_gone g JOIN revision_parts p ON p.revision_id = g.id LIMIT ?+0)`,
		`DELETE FROM route_tables WHERE id IN (SELECT id FROM route_tables INDEXED BY route_tables_rest WHERE state = 2 LIMIT ?+0)`,
		`DELETE FROM revisions_gone WHERE id IN (SELECT id FROM revisions_gone LIMIT ?+0)`,
	} {
		n, err := t.Exec(ctx, "remove route tables and revisions", query, left)
		if err != nil {
			return false, err
		}
		if left -= n; left <= 0 {
			return true, nil // what the next statement removes may still be referred to
		}
	}
	return false, nil
}
