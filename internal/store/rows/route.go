package rows

import (
	"context"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// tableOf returns the number and the version of a gateway's route table; 0 before its first route.
func (t *Reader) tableOf(ctx context.Context, gatewayID string) (v control.TableVersion, err error) {
	err = t.Query(ctx, "find the route table", `SELECT t.id, t.version FROM gateways g JOIN route_tables t ON t.id = g.table_id WHERE g.id = $1`,
		[]any{gatewayID}, func(r *Row) error { return r.Scan(&v.Table, &v.Version) })
	return v, err
}

// TableVersion implements control.RouteReader.
func (t *Reader) TableVersion(ctx context.Context, gatewayID string) (control.TableVersion, error) {
	return t.tableOf(ctx, gatewayID)
}

// pagesOf decodes the pages that a query returns.
func (t *Reader) pagesOf(ctx context.Context, gatewayID, query string, args ...any) (list []gateway.Route, err error) {
	costs := Costs{}
	err = t.Query(ctx, "read routes", query, args, func(r *Row) error {
		var content borrowed
		if err := r.Scan(&content); err != nil {
			return err
		}
		list, err = t.Pages.Routes(list, gatewayID, content, costs)
		return Decoded(err)
	})
	return list, err
}

// Route implements control.RouteReader.
func (t *Reader) Route(ctx context.Context, gatewayID, routeID string) (*gateway.Route, error) {
	v, err := t.tableOf(ctx, gatewayID)
	if err != nil {
		return nil, err
	}
	page, err := t.pagesOf(ctx, gatewayID, `SELECT content FROM route_pages WHERE table_id = $1 AND first <= $2 ORDER BY first DESC LIMIT 1`, v.Table, routeID)
	if err != nil {
		return nil, err
	}
	if i, found := findRoute(page, routeID); found {
		return &page[i], nil
	}
	return nil, fault.Missing("route")
}

// Routes implements control.RouteReader.
func (t *Reader) Routes(ctx context.Context, gatewayID string, p control.Page) ([]gateway.Route, error) {
	v, err := t.tableOf(ctx, gatewayID)
	if err != nil {
		return nil, err
	}
	var list []gateway.Route
	want := Limit(p.Limit)
	for after := Below(p.After); len(list) < want; {
		page, err := t.pagesOf(ctx, gatewayID, `SELECT content FROM route_pages WHERE table_id = $1 AND first < $2 ORDER BY first DESC LIMIT 1`, v.Table, after)
		if err != nil || len(page) == 0 {
			return list, err
		}
		list = pageOf(list, page, after, want)
		after = page[0].ID
	}
	return list, nil
}

// RouteTable implements control.RouteReader.
func (t *Reader) RouteTable(ctx context.Context, gatewayID string) ([]gateway.Route, error) {
	v, err := t.tableOf(ctx, gatewayID)
	if err != nil {
		return nil, err
	}
	return t.pagesOf(ctx, gatewayID, `SELECT content FROM route_pages WHERE table_id = $1 ORDER BY first`, v.Table)
}

// CountRoutes implements control.RouteReader.
func (t *Reader) CountRoutes(ctx context.Context, accountID string) (n int, err error) {
	err = t.QueryRow(ctx, "number of routes", `SELECT coalesce(sum(route_count), 0) FROM gateways INDEXED BY gateways_routes WHERE account_id = $1`,
		[]any{accountID}, func(r *Row) error { return r.Scan(&n) })
	return n, err
}

// InsertRoutes implements control.RouteStore.
func (t *Writer) InsertRoutes(ctx context.Context, routes []gateway.Route) error {
	for _, list := range byGateway(routes) {
		if err := t.editPages(ctx, list[0].GatewayID, routeIDs(list), inserting(list)); err != nil {
			return err
		}
	}
	return nil
}

// UpdateRoutes implements control.RouteStore.
func (t *Writer) UpdateRoutes(ctx context.Context, routes []gateway.Route) error {
	for _, list := range byGateway(routes) {
		if err := t.editPages(ctx, list[0].GatewayID, routeIDs(list), replacing(list)); err != nil {
			return err
		}
	}
	return nil
}

// DeleteRoutes implements control.RouteStore.
func (t *Writer) DeleteRoutes(ctx context.Context, gatewayID string, routeIDs []string) error {
	return t.editPages(ctx, gatewayID, routeIDs, deleting(routeIDs))
}

// editPages edits the pages that routes belong to. If that fails, the transaction has failed: some
// pages may be changed.
func (t *Writer) editPages(ctx context.Context, gatewayID string, ids []string, edit Edit) error {
	if len(ids) == 0 {
		return t.Ready(ctx)
	}
	v, err := t.ownTable(ctx, gatewayID)
	if err != nil {
		return err
	}
	grown, bytes, err := editPages(ids,
		func(routeID string) (Page, error) { return t.pageFor(ctx, gatewayID, v.Table, routeID) }, edit,
		func(p Page) error { return t.putPage(ctx, v.Table, p) })
	if err != nil {
		return t.Fail(err)
	}
	if err := t.Queue(ctx, "change the route table", `UPDATE route_tables SET version = version + 1 WHERE id = $1`, v.Table); err != nil || grown == 0 && bytes == 0 {
		return err
	}
	return t.Queue(ctx, "count routes", `UPDATE gateways SET route_count = route_count + $1, route_bytes = greatest(0, route_bytes + $2) WHERE id = $3`, grown, bytes, gatewayID)
}

// ownTable is tableOf for a gateway that gets an empty table if it has none.
func (t *Writer) ownTable(ctx context.Context, gatewayID string) (v control.TableVersion, err error) {
	if v, err = t.read.tableOf(ctx, gatewayID); err != nil || v.Table != 0 {
		return v, err
	}
	if v.Table, err = t.InsertTable(ctx, gatewayID, "", tableCurrent); err != nil {
		return v, err
	}
	return v, t.QueueOne(ctx, "create a route table", "gateway", `UPDATE gateways SET table_id = $1 WHERE id = $2`, v.Table, gatewayID)
}

// pageFor returns the page that a route belongs to.
func (t *Writer) pageFor(ctx context.Context, gatewayID string, table int64, routeID string) (p Page, err error) {
	scan := func(r *Row) error {
		var content borrowed
		if err := r.Scan(&p.N, &p.First, &content); err != nil {
			return err
		}
		p.Routes, err = t.read.Pages.Routes(nil, gatewayID, content, Costs{})
		return err
	}
	if err := t.Query(ctx, "read routes", `SELECT n, first, content FROM route_pages WHERE table_id = $1 AND first <= $2 ORDER BY first DESC LIMIT 1`, []any{table, routeID}, scan); err != nil {
		return p, err
	}
	if p.N == 0 { // before the first page, if there is one
		if err := t.Query(ctx, "read routes", `SELECT n, first, content FROM route_pages WHERE table_id = $1 ORDER BY first LIMIT 1`, []any{table}, scan); err != nil || p.N == 0 {
			return p, err
		}
	}
	err = t.Query(ctx, "read routes", `SELECT first FROM route_pages WHERE table_id = $1 AND first > $2 ORDER BY first LIMIT 1`, []any{table, max(p.First, routeID)},
		func(r *Row) error { return r.Scan(&p.Next) })
	return p, err
}

// putPage stores a page that was changed, as several pages if it has become large.
func (t *Writer) putPage(ctx context.Context, table int64, p Page) error {
	if p.N != 0 {
		if err := t.Queue(ctx, "change a page of routes", `DELETE FROM route_pages WHERE n = $1`, p.N); err != nil {
			return err
		}
	}
	return t.insertPages(ctx, table, t.read.Pages.Split(p.Routes))
}
