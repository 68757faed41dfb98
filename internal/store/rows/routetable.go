package rows

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/store/stored"
)

// InsertPrepared implements control.RevisionStore.
func (t *Writer) InsertPrepared(ctx context.Context, c control.Prepared) error {
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
		if table, err = t.InsertTable(ctx, p.Revision.GatewayID, "", stored.TableCurrent); err != nil {
			return err
		}
		if err := t.InsertPages(ctx, table, p.Pages); err != nil {
			return err
		}
	} else {
		// It is not there if it was removed as one that a crash had left.
		err := t.QueueOrFail(ctx, "use a route table", fault.New(fault.Unavailable, "the push took too long: push again"),
			`UPDATE route_tables SET state = $1, revision_id = '' WHERE id = $2 AND state = $3`, stored.TableCurrent, table, stored.TableStaged)
		if err != nil {
			return err
		}
	}
	return t.QueueOne(ctx, "use a route table", "gateway", `UPDATE gateways SET table_id = $1, route_count = $2, route_bytes = $3 WHERE id = $4`,
		table, p.Routes, p.RouteBytes, p.Revision.GatewayID)
}

// TrimTables implements control.Trimmer.
func (t *Writer) TrimTables(ctx context.Context, staged time.Time, limit int) (more bool, err error) {
	if limit <= 0 {
		return false, t.Ready(ctx)
	}
	abandoned, err := t.MayDelete(ctx, "look for abandoned route tables", `DELETE FROM route_tables WHERE state = $1 AND created_at < $2`, stored.TableStaged, Micros(staged))
	if err != nil {
		return false, err
	}
	if abandoned {
		if err := t.Queue(ctx, "find abandoned route tables", `UPDATE route_tables SET state = $1 WHERE state = $2 AND created_at < $3`, stored.TableDropped, stored.TableStaged, Micros(staged)); err != nil {
			return false, err
		}
	}
	left := int64(limit)
	for _, query := range []string{
		`DELETE FROM route_pages WHERE n IN (SELECT p.n FROM route_tables t INDEXED BY route_tables_rest JOIN route_pages p ON p.table_id = t.id WHERE t.state = 2 LIMIT $1)`,
		`DELETE FROM revision_parts WHERE rowid = ANY (ARRAY(SELECT p.rowid FROM route_tables t INDEXED BY route_tables_rest JOIN revision_parts p ON p.revision_id = t.revision_id WHERE t.state = 2 LIMIT $1))`,
		`DELETE FROM revision_parts WHERE rowid = ANY (ARRAY(SELECT p.rowid FROM revisions_gone g JOIN revision_parts p ON p.revision_id = g.id LIMIT $1))`,
		`DELETE FROM route_tables WHERE id IN (SELECT id FROM route_tables INDEXED BY route_tables_rest WHERE state = 2 LIMIT $1)`,
		`DELETE FROM revisions_gone WHERE id IN (SELECT id FROM revisions_gone LIMIT $1)`,
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
