package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
)

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
	for first := true; first || len(pages)+len(parts) > 0; first = false {
		restPages, restParts := pages, parts
		err := db.record(ctx, func(t *tx) (err error) {
			pages, parts = restPages, restParts
			if first {
				if p.Table, err = t.insertTable(ctx, p.Revision.GatewayID, p.Revision.ID, stored.TableStaged); err != nil {
					return err
				}
			}
			nowPages, nowParts := 0, 0
			for left := stored.StageBytes; left > 0 && nowPages+nowParts < len(pages)+len(parts); {
				if nowPages < len(pages) {
					left -= len(pages[nowPages].Content)
					nowPages++
				} else {
					left -= len(parts[nowParts].Content)
					nowParts++
				}
			}
			if err := t.insertPages(ctx, p.Table, pages[:nowPages]); err != nil {
				return err
			}
			if err := t.insertParts(ctx, p.Revision.ID, parts[:nowParts]); err != nil {
				return err
			}
			pages, parts = pages[nowPages:], parts[nowParts:]
			return nil
		})
		if err != nil {
			return err
		}
	}
	p.Pages, p.Parts = nil, nil
	return nil
}

// Discard implements control.Store.
func (db *DB) Discard(ctx context.Context, c control.Prepared) error {
	p, ok := c.(*stored.Prepared)
	if !ok || p.Table == 0 {
		return nil
	}
	return db.write(context.WithoutCancel(ctx), func(t *tx) error {
		return t.Queue(ctx, "discard a route table", `UPDATE route_tables SET state = $1 WHERE id = $2 AND state = $3`, stored.TableDropped, p.Table, stored.TableStaged)
	})
}

// insertTable adds a route table.
func (t *tx) insertTable(ctx context.Context, gatewayID, revisionID string, state int) (n int64, err error) {
	err = t.value(ctx, "number a route table", `SELECT nextval(pg_get_serial_sequence('route_tables', 'id'))`, func(r rows.Row) error { return r.Scan(&n) })
	if err != nil {
		return 0, err
	}
	return n, t.Queue(ctx, "insert a route table", `INSERT INTO route_tables (id, gateway_id, revision_id, state, version, created_at) OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, $4, 1, $5)`,
		n, gatewayID, revisionID, state, t.now())
}

func (t *tx) insertParts(ctx context.Context, revisionID string, parts []stored.RevisionPart) error {
	if len(parts) == 0 {
		return t.Ready(ctx)
	}
	kinds, numbers, contents := make([]int, len(parts)), make([]int, len(parts)), make([][]byte, len(parts))
	for i, p := range parts {
		kinds[i], numbers[i], contents[i] = p.Kind, p.N, p.Content
	}
	return t.Queue(ctx, "insert parts of a revision", `INSERT INTO revision_parts (revision_id, kind, n, content)
		SELECT $1::text, p.kind, p.n, p.content FROM unnest($2::int[], $3::bigint[], $4::bytea[]) AS p (kind, n, content)`, revisionID, kinds, numbers, contents)
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
	if err := t.Queue(ctx, "drop a route table", `UPDATE route_tables SET state = $1 WHERE id = (SELECT table_id FROM gateways WHERE id = $2)`, stored.TableDropped, p.Revision.GatewayID); err != nil {
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
		// It is not there if it was removed as one that a crash had left.
		err := t.enqueue(ctx, statement{what: "use a route table", fails: fault.New(fault.Unavailable, "the push took too long: push again"),
			query: `WITH changed AS (UPDATE route_tables SET state = $1, revision_id = '' WHERE id = $2 AND state = $3 RETURNING 1) SELECT 1 / count(*) FROM changed`,
			args:  []any{stored.TableCurrent, table, stored.TableStaged}})
		if err != nil {
			return err
		}
	}
	return t.QueueOne(ctx, "use a route table", "gateway", `UPDATE gateways SET table_id = $1, route_count = $2, route_bytes = $3 WHERE id = $4`,
		table, p.Routes, p.RouteBytes, p.Revision.GatewayID)
}

// TrimTables implements control.Trimmer.
func (t *tx) TrimTables(ctx context.Context, staged time.Time, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.Ready(ctx)
	}
	abandoned, err := t.finds(ctx, "look for abandoned route tables", `SELECT FROM route_tables WHERE state = $1 AND created_at < $2`, stored.TableStaged, rows.Micros(staged))
	if err != nil {
		return false, err
	}
	if abandoned {
		if err := t.Queue(ctx, "find abandoned route tables", `UPDATE route_tables SET state = $1 WHERE state = $2 AND created_at < $3`, stored.TableDropped, stored.TableStaged, rows.Micros(staged)); err != nil {
			return false, err
		}
	}
	left := int64(limit)
	for _, query := range []string{
		`DELETE FROM route_pages WHERE n IN (SELECT p.n FROM route_tables t JOIN route_pages p ON p.table_id = t.id WHERE t.state = 2 LIMIT $1)`,
		`DELETE FROM revision_parts WHERE ctid = ANY (ARRAY(SELECT p.ctid FROM route_tables t JOIN revision_parts p ON p.revision_id = t.revision_id WHERE t.state = 2 LIMIT $1))`,
		`DELETE FROM revision_parts WHERE ctid = ANY (ARRAY(SELECT p.ctid FROM revisions_gone g JOIN revision_parts p ON p.revision_id = g.id LIMIT $1))`,
		`DELETE FROM route_tables WHERE id IN (SELECT id FROM route_tables WHERE state = 2 LIMIT $1)`,
		`DELETE FROM revisions_gone WHERE id IN (SELECT id FROM revisions_gone LIMIT $1)`,
	} {
		n, err := t.Delete(ctx, "remove route tables and revisions", query, left)
		if err != nil {
			return false, err
		}
		if left -= n; left <= 0 {
			return true, nil // what the next statement removes may still be referred to
		}
	}
	return false, nil
}
