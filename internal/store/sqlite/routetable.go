package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// The states of a route table.
const (
	tableStaged  = 0 // being written, for a push that has not been committed
	tableCurrent = 1
	tableDropped = 2 // its pages are being removed
)

// A large push is written in transactions of about stageBytes each, so that no other change waits
// for more than one of them. What is smaller is written with the push itself.
const stageBytes = 128 << 10

// checkpointStages is the number of those transactions after which the write-ahead log is written back.
const checkpointStages = 8

// The kinds of parts of a revision.
const (
	contentPart = 0 // of the packed document
	routesPart  = 1 // a page of the routes, in the document's order
)

// revisionPart is a piece of a revision.
type revisionPart struct {
	kind, n int
	content []byte
}

// prepared is an encoded revision with its route table. It implements control.Prepared.
type prepared struct {
	revision gateway.Revision // without Content and Routes
	routes   int
	pages    []routePage
	parts    []revisionPart
	bytes    int64 // of the revision: its row and parts
	table    int64 // the staged table; 0 if pages and parts are not stored yet
}

// prepare encodes a revision.
func (c *pageCodec) prepare(r *gateway.Revision) (*prepared, error) {
	p := &prepared{revision: *r, routes: len(r.Routes)}
	p.revision.Content, p.revision.Routes = nil, nil
	content, err := pack(r.Content)
	if err != nil {
		return nil, fmt.Errorf("pack content: %w", err)
	}
	for part := range slices.Chunk(content, stageBytes) {
		p.parts = append(p.parts, revisionPart{contentPart, len(p.parts), part})
	}
	for i, page := range c.pages(r.Routes, pageRoutes, pageBytes) {
		p.parts = append(p.parts, revisionPart{routesPart, i, page.content})
	}
	p.bytes = revisionBytes
	for i := range p.parts {
		p.bytes += int64(len(p.parts[i].content))
	}
	sorted := r.Routes
	if !slices.IsSortedFunc(sorted, compareRoutes) {
		sorted = slices.SortedFunc(slices.Values(sorted), compareRoutes)
	}
	p.pages = c.pages(sorted, pageRoutes, pageBytes)
	return p, nil
}

func compareRoutes(a, b gateway.Route) int { return strings.Compare(a.ID, b.ID) }

// size returns the number of bytes to store.
func (p *prepared) size() (n int) {
	for i := range p.pages {
		n += len(p.pages[i].content)
	}
	for i := range p.parts {
		n += len(p.parts[i].content)
	}
	return n
}

// Prepare implements control.Store.
func (db *DB) Prepare(ctx context.Context, r *gateway.Revision) (control.Prepared, error) {
	p, err := db.pages.prepare(r)
	if err != nil {
		return nil, err
	}
	if p.size() <= stageBytes {
		return p, nil
	}
	if err := db.stage(ctx, p); err != nil {
		return nil, errors.Join(err, db.Discard(ctx, p))
	}
	return p, nil
}

// stage stores p as a table that no gateway has yet.
func (db *DB) stage(ctx context.Context, p *prepared) error {
	pages, parts := p.pages, p.parts
	for n := 0; n == 0 || len(pages)+len(parts) > 0; n++ {
		err := db.record(ctx, func(t *tx) (err error) {
			if n == 0 {
				if p.table, err = t.insertTable(ctx, p.revision.GatewayID, p.revision.ID, tableStaged); err != nil {
					return err
				}
			}
			left := stageBytes
			for len(pages) > 0 && left > 0 {
				left -= len(pages[0].content)
				if err := t.insertPages(ctx, p.table, pages[:1]); err != nil {
					return err
				}
				pages = pages[1:]
			}
			for len(parts) > 0 && left > 0 {
				left -= len(parts[0].content)
				if err := t.insertParts(ctx, p.revision.ID, parts[:1]); err != nil {
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
	p.pages, p.parts = nil, nil
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
	p, ok := c.(*prepared)
	if !ok || p.table == 0 {
		return nil
	}
	return db.write(context.WithoutCancel(ctx), func(t *tx) error {
		_, err := t.exec(ctx, "discard a route table", `UPDATE route_tables SET state = ? WHERE id = ? AND state = ?`, tableDropped, p.table, tableStaged)
		return err
	})
}

// insertTable adds a route table.
func (t *tx) insertTable(ctx context.Context, gatewayID, revisionID string, state int) (n int64, err error) {
	err = t.rows(ctx, "insert a route table", `INSERT INTO route_tables (gateway_id, revision_id, state, version, created_at) VALUES (?, ?, ?, 1, ?) RETURNING id`,
		[]any{gatewayID, revisionID, state, t.now()}, func(r *sql.Rows) error { return r.Scan(&n) })
	t.wrote = t.wrote || err == nil
	return n, err
}

func (t *tx) insertParts(ctx context.Context, revisionID string, parts []revisionPart) error {
	for _, p := range parts {
		_, err := t.exec(ctx, "insert a part of a revision", `INSERT INTO revision_parts (revision_id, kind, n, content) VALUES (?, ?, ?, ?)`,
			revisionID, p.kind, p.n, p.content)
		if err != nil {
			return err
		}
	}
	return nil
}

// InsertPrepared implements control.RevisionStore.
func (t *tx) InsertPrepared(ctx context.Context, c control.Prepared) error {
	p, ok := c.(*prepared)
	if !ok {
		return fmt.Errorf("%T was not prepared by this store", c)
	}
	if err := t.insertRevision(ctx, p); err != nil {
		return err
	}
	if _, err := t.exec(ctx, "drop a route table", `UPDATE route_tables SET state = ? WHERE id = (SELECT table_id FROM gateways WHERE id = ?)`, tableDropped, p.revision.GatewayID); err != nil {
		return err
	}
	table := p.table
	if table == 0 {
		var err error
		if table, err = t.insertTable(ctx, p.revision.GatewayID, "", tableCurrent); err != nil {
			return err
		}
		if err := t.insertPages(ctx, table, p.pages); err != nil {
			return err
		}
	} else {
		n, err := t.exec(ctx, "use a route table", `UPDATE route_tables SET state = ?, revision_id = '' WHERE id = ? AND state = ?`, tableCurrent, table, tableStaged)
		if err != nil {
			return err
		}
		if n == 0 { // removed as one that a crash had left
			t.failed = fault.New(fault.Unavailable, "the push took too long: push again")
			return t.failed
		}
	}
	return t.must(ctx, "use a route table", "gateway", `UPDATE gateways SET table_id = ?, route_count = ? WHERE id = ?`, table, p.routes, p.revision.GatewayID)
}

// TrimTables implements control.Trimmer.
func (t *tx) TrimTables(ctx context.Context, staged time.Time, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.ready(ctx)
	}
	if _, err := t.exec(ctx, "find abandoned route tables", `UPDATE route_tables SET state = ? WHERE state = ? AND created_at < ?`, tableDropped, tableStaged, micros(staged)); err != nil {
		return false, err
	}
	left := int64(limit)
	for _, query := range []string{
		`DELETE FROM route_pages WHERE n IN (SELECT p.n FROM route_tables t INDEXED BY route_tables_rest JOIN route_pages p ON p.table_id = t.id WHERE t.state = 2 LIMIT ?+0)`,
		`DELETE FROM revision_parts WHERE rowid IN (SELECT p.rowid FROM route_tables t INDEXED BY route_tables_rest JOIN revision_parts p ON p.revision_id = t.revision_id WHERE t.state = 2 LIMIT ?+0)`,
		`DELETE FROM revision_parts WHERE rowid IN (SELECT p.rowid FROM revisions_gone g JOIN revision_parts p ON p.revision_id = g.id LIMIT ?+0)`,
		`DELETE FROM route_tables WHERE id IN (SELECT id FROM route_tables INDEXED BY route_tables_rest WHERE state = 2 LIMIT ?+0)`,
		`DELETE FROM revisions_gone WHERE id IN (SELECT id FROM revisions_gone LIMIT ?+0)`,
	} {
		n, err := t.exec(ctx, "remove route tables and revisions", query, left)
		if err != nil {
			return false, err
		}
		if left -= n; left <= 0 {
			return true, nil // what the next statement removes may still be referred to
		}
	}
	return false, nil
}
