package rows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Prepare implements control.Store.
func (s *Store) Prepare(ctx context.Context, r *gateway.Revision) (control.Prepared, error) {
	p, err := s.engine.Pages.Prepare(r)
	if err != nil {
		return nil, err
	}
	if p.Size() <= stageBytes {
		return p, nil
	}
	if err := s.stage(ctx, p); err != nil {
		return nil, errors.Join(err, s.Discard(ctx, p))
	}
	return p, nil
}

// stage stores p as a table that no gateway has yet.
func (s *Store) stage(ctx context.Context, p *Prepared) error {
	pages, parts := p.Pages, p.Parts
	for n := 0; n == 0 || len(pages)+len(parts) > 0; n++ {
		nowPages, nowParts := 0, 0
		for left := stageBytes; left > 0 && nowPages+nowParts < len(pages)+len(parts); {
			if nowPages < len(pages) {
				left -= len(pages[nowPages].Content)
				nowPages++
			} else {
				left -= len(parts[nowParts].Content)
				nowParts++
			}
		}
		err := s.engine.Write(ctx, OfTraffic, func(t *Writer) (err error) {
			if n == 0 {
				if p.Table, err = t.InsertTable(ctx, p.Revision.GatewayID, p.Revision.ID, tableStaged); err != nil {
					return err
				}
			}
			if err := t.insertPages(ctx, p.Table, pages[:nowPages]); err != nil {
				return err
			}
			return t.insertParts(ctx, p.Revision.ID, parts[:nowParts])
		})
		if err != nil {
			return err
		}
		pages, parts = pages[nowPages:], parts[nowParts:]
		s.engine.Staged(ctx, n)
	}
	p.Pages, p.Parts = nil, nil
	return nil
}

// Discard implements control.Store.
func (s *Store) Discard(ctx context.Context, c control.Prepared) error {
	p, ok := c.(*Prepared)
	if !ok || p.Table == 0 {
		return nil
	}
	return s.engine.Write(context.WithoutCancel(ctx), Durable, func(t *Writer) error {
		return t.Queue(ctx, "discard a route table", `UPDATE route_tables SET state = $1 WHERE id = $2 AND state = $3`, tableDropped, p.Table, tableStaged)
	})
}

// insertParts adds parts of a revision.
func (t *Writer) insertParts(ctx context.Context, revisionID string, parts []RevisionPart) error {
	kinds, numbers, contents := make([]int64, len(parts)), make([]int64, len(parts)), make([][]byte, len(parts))
	for i, p := range parts {
		kinds[i], numbers[i], contents[i] = int64(p.Kind), int64(p.N), p.Content
	}
	return t.QueueEach(ctx, "insert parts of a revision", `INSERT INTO revision_parts (revision_id, kind, n, content)
		SELECT $1::text, p.kind, p.n, p.content FROM unnest($2::int[], $3::bigint[], $4::bytea[]) AS p (kind, n, content)`, revisionID, kinds, numbers, contents)
}

// insertPages adds pages of a route table.
func (t *Writer) insertPages(ctx context.Context, table int64, pages []RoutePage) error {
	firsts, numbers, contents := make([]string, len(pages)), make([]int64, len(pages)), make([][]byte, len(pages))
	for i, p := range pages {
		firsts[i], numbers[i], contents[i] = p.First, int64(p.Routes), p.Content
	}
	return t.QueueEach(ctx, "insert pages of routes", `INSERT INTO route_pages (table_id, first, routes, content)
		SELECT $1::bigint, p.first, p.routes, p.content FROM unnest($2::text[], $3::int[], $4::bytea[]) AS p (first, routes, content)`, table, firsts, numbers, contents)
}

// InsertPrepared implements control.RevisionStore.
func (t *Writer) InsertPrepared(ctx context.Context, c control.Prepared) error {
	p, ok := c.(*Prepared)
	if !ok {
		return fmt.Errorf("%T was not prepared by this store", c)
	}
	if err := t.insertRevision(ctx, p); err != nil {
		return err
	}
	if err := t.Queue(ctx, "drop a route table", `UPDATE route_tables SET state = $1 WHERE id = (SELECT table_id FROM gateways WHERE id = $2)`, tableDropped, p.Revision.GatewayID); err != nil {
		return err
	}
	table := p.Table
	if table == 0 {
		var err error
		if table, err = t.InsertTable(ctx, p.Revision.GatewayID, "", tableCurrent); err != nil {
			return err
		}
		if err := t.insertPages(ctx, table, p.Pages); err != nil {
			return err
		}
	} else {
		// It does not exist if it was removed as a remainder of a crash.
		err := t.QueueOrFail(ctx, "use a route table", fault.New(fault.Unavailable, "the push took too long: push again"),
			`UPDATE route_tables SET state = $1, revision_id = '' WHERE id = $2 AND state = $3`, tableCurrent, table, tableStaged)
		if err != nil {
			return err
		}
	}
	return t.QueueOne(ctx, "use a route table", "gateway", `UPDATE gateways SET table_id = $1, route_count = $2, route_bytes = $3 WHERE id = $4`,
		table, p.Routes, p.RouteBytes, p.Revision.GatewayID)
}

// The first tables and revisions whose pages and parts are to be removed. A transaction looks at no others: an account may
// leave a million of them, and those whose pages are gone stay in front until they are removed too.
const (
	droppedTables  = `SELECT id FROM route_tables INDEXED BY route_tables_rest WHERE state = 2 ORDER BY created_at, id LIMIT $1`
	unusedPrepared = `SELECT revision_id FROM route_tables INDEXED BY route_tables_rest WHERE state = 2 ORDER BY created_at, id LIMIT $1`
	goneRevisions  = `SELECT id FROM revisions_gone ORDER BY id LIMIT $1`
)

// TrimTables implements control.Trimmer.
func (t *Writer) TrimTables(ctx context.Context, staged time.Time, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.Ready(ctx)
	}
	abandoned, err := t.MayDelete(ctx, "look for abandoned route tables", `DELETE FROM route_tables WHERE state = $1 AND created_at < $2`, tableStaged, Micros(staged))
	if err != nil {
		return false, err
	}
	if abandoned {
		if err := t.Queue(ctx, "find abandoned route tables", `UPDATE route_tables SET state = $1 WHERE state = $2 AND created_at < $3`, tableDropped, tableStaged, Micros(staged)); err != nil {
			return false, err
		}
	}
	left := int64(limit)
	for _, query := range []string{
		`DELETE FROM route_pages WHERE n = ANY (ARRAY(SELECT n FROM route_pages WHERE table_id = ANY (ARRAY(` + droppedTables + `)) LIMIT $1))`,
		`DELETE FROM revision_parts WHERE rowid = ANY (ARRAY(SELECT rowid FROM revision_parts WHERE revision_id = ANY (ARRAY(` + unusedPrepared + `)) LIMIT $1))`,
		`DELETE FROM route_tables WHERE id = ANY (ARRAY(` + droppedTables + `))`,
		`DELETE FROM revision_parts WHERE rowid = ANY (ARRAY(SELECT rowid FROM revision_parts WHERE revision_id = ANY (ARRAY(` + goneRevisions + `)) LIMIT $1))`,
		`DELETE FROM revisions_gone WHERE id = ANY (ARRAY(` + goneRevisions + `))`,
	} {
		n, err := t.Delete(ctx, "remove route tables and revisions", query, left)
		if err != nil {
			return false, err
		}
		if left -= n; left <= 0 {
			return true, nil // rows that the next statement removes may still be referred to
		}
	}
	return false, nil
}
