package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// tableOf returns the number and the version of a gateway's route table; 0 before its first route.
func (t *readTx) tableOf(ctx context.Context, gatewayID string) (v control.TableVersion, err error) {
	err = t.rows(ctx, "find the route table", `SELECT t.id, t.version FROM gateways g JOIN route_tables t ON t.id = g.table_id WHERE g.id = ?`,
		[]any{gatewayID}, func(r *sql.Rows) error { return r.Scan(&v.Table, &v.Version) })
	return v, err
}

// TableVersion implements control.RouteReader.
func (t *readTx) TableVersion(ctx context.Context, gatewayID string) (control.TableVersion, error) {
	return t.tableOf(ctx, gatewayID)
}

// pagesOf decodes the pages that a query returns.
func (t *readTx) pagesOf(ctx context.Context, gatewayID, query string, args ...any) (list []gateway.Route, err error) {
	err = t.rows(ctx, "read routes", query, args, func(r *sql.Rows) error {
		var content sql.RawBytes
		if err := r.Scan(&content); err != nil {
			return err
		}
		list, err = t.c.pages.routes(list, gatewayID, content)
		return err
	})
	return list, err
}

// Route implements control.RouteReader.
func (t *readTx) Route(ctx context.Context, gatewayID, routeID string) (*gateway.Route, error) {
	v, err := t.tableOf(ctx, gatewayID)
	if err != nil {
		return nil, err
	}
	page, err := t.pagesOf(ctx, gatewayID, `SELECT content FROM route_pages WHERE table_id = ? AND first <= ? ORDER BY first DESC LIMIT 1`, v.Table, routeID)
	if err != nil {
		return nil, err
	}
	if i, found := findRoute(page, routeID); found {
		return &page[i], nil
	}
	return nil, fault.Missing("route")
}

func findRoute(page []gateway.Route, routeID string) (int, bool) {
	return slices.BinarySearchFunc(page, routeID, func(r gateway.Route, id string) int { return strings.Compare(r.ID, id) })
}

// Routes implements control.RouteReader.
func (t *readTx) Routes(ctx context.Context, gatewayID string, p control.Page) ([]gateway.Route, error) {
	v, err := t.tableOf(ctx, gatewayID)
	if err != nil {
		return nil, err
	}
	var list []gateway.Route
	want := rowLimit(p.Limit)
	for after := below(p.After); len(list) < want; {
		page, err := t.pagesOf(ctx, gatewayID, `SELECT content FROM route_pages WHERE table_id = ? AND first < ? ORDER BY first DESC LIMIT 1`, v.Table, after)
		if err != nil || len(page) == 0 {
			return list, err
		}
		for i := range slices.Backward(page) {
			if page[i].ID < after && len(list) < want {
				list = append(list, page[i])
			}
		}
		after = page[0].ID
	}
	return list, nil
}

// RouteTable implements control.RouteReader.
func (t *readTx) RouteTable(ctx context.Context, gatewayID string) ([]gateway.Route, error) {
	v, err := t.tableOf(ctx, gatewayID)
	if err != nil {
		return nil, err
	}
	return t.pagesOf(ctx, gatewayID, `SELECT content FROM route_pages WHERE table_id = ? ORDER BY first`, v.Table)
}

// CountRoutes implements control.RouteReader.
func (t *readTx) CountRoutes(ctx context.Context, accountID string) (n int, err error) {
	err = t.row(ctx, "number of routes", `SELECT coalesce(sum(route_count), 0) FROM gateways INDEXED BY gateways_routes WHERE account_id = ?`,
		[]any{accountID}, func(r *sql.Rows) error { return r.Scan(&n) })
	return n, err
}

// InsertRoutes implements control.RouteStore.
func (t *tx) InsertRoutes(ctx context.Context, routes []gateway.Route) error {
	byGateway := map[string][]gateway.Route{}
	var order []string
	for i := range routes {
		g := routes[i].GatewayID
		if byGateway[g] == nil {
			order = append(order, g)
		}
		byGateway[g] = append(byGateway[g], routes[i])
	}
	for _, gatewayID := range order {
		list := byGateway[gatewayID]
		err := t.editPages(ctx, gatewayID, idsOf(list), func(page []gateway.Route, i int) ([]gateway.Route, error) {
			at, found := findRoute(page, list[i].ID)
			if found {
				return nil, &fault.Error{Code: fault.Conflict, Message: conflictMessage("")}
			}
			return slices.Insert(page, at, list[i]), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// UpdateRoutes implements control.RouteStore.
func (t *tx) UpdateRoutes(ctx context.Context, routes []gateway.Route) error {
	byGateway := map[string][]gateway.Route{}
	for i := range routes {
		byGateway[routes[i].GatewayID] = append(byGateway[routes[i].GatewayID], routes[i])
	}
	for gatewayID, list := range byGateway {
		err := t.editPages(ctx, gatewayID, idsOf(list), func(page []gateway.Route, i int) ([]gateway.Route, error) {
			at, found := findRoute(page, list[i].ID)
			if !found {
				return nil, fault.Missing("route")
			}
			created := page[at].CreatedAt
			page[at] = list[i]
			page[at].CreatedAt = created
			return page, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// DeleteRoutes implements control.RouteStore.
func (t *tx) DeleteRoutes(ctx context.Context, gatewayID string, routeIDs []string) error {
	return t.editPages(ctx, gatewayID, routeIDs, func(page []gateway.Route, i int) ([]gateway.Route, error) {
		at, found := findRoute(page, routeIDs[i])
		if !found {
			return nil, fault.Missing("route")
		}
		return slices.Delete(page, at, at+1), nil
	})
}

func idsOf(routes []gateway.Route) []string {
	ids := make([]string, len(routes))
	for i := range routes {
		ids[i] = routes[i].ID
	}
	return ids
}

// editPages calls edit for each of the routes with the page that it belongs to, and stores the
// pages that edit returns. edit gets the index of the route in ids.
func (t *tx) editPages(ctx context.Context, gatewayID string, ids []string, edit func(page []gateway.Route, i int) ([]gateway.Route, error)) error {
	if len(ids) == 0 {
		return t.ready(ctx)
	}
	v, err := t.ownTable(ctx, gatewayID)
	if err != nil {
		return err
	}
	order := make([]int, len(ids))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(ids[a], ids[b]) })
	difference := 0
	for len(order) > 0 {
		p, err := t.pageFor(ctx, gatewayID, v.Table, ids[order[0]])
		if err != nil {
			return err
		}
		before := len(p.routes)
		for len(order) > 0 && (p.next == "" || ids[order[0]] < p.next) {
			if p.routes, err = edit(p.routes, order[0]); err != nil {
				t.failed = err // the pages before this one are changed
				return err
			}
			order = order[1:]
		}
		difference += len(p.routes) - before
		if err := t.putPage(ctx, v.Table, p); err != nil {
			return err
		}
	}
	if _, err := t.exec(ctx, "change the route table", `UPDATE route_tables SET version = version + 1 WHERE id = ?`, v.Table); err != nil || difference == 0 {
		return err
	}
	_, err = t.exec(ctx, "count routes", `UPDATE gateways SET route_count = route_count + ? WHERE id = ?`, difference, gatewayID)
	return err
}

// ownTable is tableOf for a gateway that gets an empty table if it has none.
func (t *tx) ownTable(ctx context.Context, gatewayID string) (v control.TableVersion, err error) {
	if v, err = t.tableOf(ctx, gatewayID); err != nil || v.Table != 0 {
		return v, err
	}
	if v.Table, err = t.insertTable(ctx, gatewayID, "", tableCurrent); err != nil {
		return v, err
	}
	n, err := t.exec(ctx, "create a route table", `UPDATE gateways SET table_id = ? WHERE id = ?`, v.Table, gatewayID)
	if err == nil && n == 0 {
		t.failed = fault.Missing("gateway")
		return v, t.failed
	}
	return v, err
}

// loadedPage is a page that is being changed.
type loadedPage struct {
	n      int64 // its row; 0 for a new page
	first  string
	next   string // the first identifier of the next page; "" for the last page
	routes []gateway.Route
}

// pageFor returns the page that a route belongs to.
func (t *tx) pageFor(ctx context.Context, gatewayID string, table int64, routeID string) (p loadedPage, err error) {
	scan := func(r *sql.Rows) error {
		var content sql.RawBytes
		if err := r.Scan(&p.n, &p.first, &content); err != nil {
			return err
		}
		p.routes, err = t.c.pages.routes(nil, gatewayID, content)
		return err
	}
	if err := t.rows(ctx, "read routes", `SELECT n, first, content FROM route_pages WHERE table_id = ? AND first <= ? ORDER BY first DESC LIMIT 1`, []any{table, routeID}, scan); err != nil {
		return p, err
	}
	if p.n == 0 { // before the first page, if there is one
		if err := t.rows(ctx, "read routes", `SELECT n, first, content FROM route_pages WHERE table_id = ? ORDER BY first LIMIT 1`, []any{table}, scan); err != nil || p.n == 0 {
			return p, err
		}
	}
	err = t.rows(ctx, "read routes", `SELECT first FROM route_pages WHERE table_id = ? AND first > ? ORDER BY first LIMIT 1`, []any{table, max(p.first, routeID)},
		func(r *sql.Rows) error { return r.Scan(&p.next) })
	return p, err
}

// putPage stores a page that was changed, as several if it has become large.
func (t *tx) putPage(ctx context.Context, table int64, p loadedPage) error {
	if p.n != 0 {
		if _, err := t.exec(ctx, "change a page of routes", `DELETE FROM route_pages WHERE n = ?`, p.n); err != nil {
			return err
		}
	}
	pages := t.c.pages.pages(p.routes, splitRoutes, splitBytes)
	if len(pages) > 1 {
		pages = t.c.pages.pages(p.routes, pageRoutes, pageBytes)
	}
	return t.insertPages(ctx, table, pages)
}

func (t *tx) insertPages(ctx context.Context, table int64, pages []routePage) error {
	for _, p := range pages {
		_, err := t.exec(ctx, "insert a page of routes", `INSERT INTO route_pages (table_id, first, routes, content) VALUES (?, ?, ?, ?)`,
			table, p.first, p.routes, p.content)
		if err != nil {
			return err
		}
	}
	return nil
}
