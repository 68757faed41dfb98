package postgres

import (
	"context"
	"errors"

	"github.com/keygate/keygate/internal/control"
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
				if p.Table, err = t.InsertTable(ctx, p.Revision.GatewayID, p.Revision.ID, stored.TableStaged); err != nil {
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
			if err := t.InsertPages(ctx, p.Table, pages[:nowPages]); err != nil {
				return err
			}
			if err := t.InsertParts(ctx, p.Revision.ID, parts[:nowParts]); err != nil {
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

// InsertTable implements rows.Tx.
func (t *tx) InsertTable(ctx context.Context, gatewayID, revisionID string, state int) (n int64, err error) {
	err = t.value(ctx, "number a route table", `SELECT nextval(pg_get_serial_sequence('route_tables', 'id'))`, func(r *rows.Row) error { return r.Scan(&n) })
	if err != nil {
		return 0, err
	}
	return n, t.Queue(ctx, "insert a route table", `INSERT INTO route_tables (id, gateway_id, revision_id, state, version, created_at) OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, $4, 1, $5)`,
		n, gatewayID, revisionID, state, t.now())
}

// InsertParts implements rows.Tx.
func (t *tx) InsertParts(ctx context.Context, revisionID string, parts []stored.RevisionPart) error {
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

// InsertPages implements rows.Tx.
func (t *tx) InsertPages(ctx context.Context, table int64, pages []stored.RoutePage) error {
	if len(pages) == 0 {
		return t.Ready(ctx)
	}
	firsts, numbers, contents := make([]string, len(pages)), make([]int, len(pages)), make([][]byte, len(pages))
	for i, p := range pages {
		firsts[i], numbers[i], contents[i] = p.First, p.Routes, p.Content
	}
	return t.Queue(ctx, "insert pages of routes", `INSERT INTO route_pages (table_id, first, routes, content)
		SELECT $1::bigint, p.first, p.routes, p.content FROM unnest($2::text[], $3::int[], $4::bytea[]) AS p (first, routes, content)`, table, firsts, numbers, contents)
}
