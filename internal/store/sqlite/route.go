package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

const routeColumns = `SELECT id, gateway_id, path, methods, sustained, burst, daily, per, limit_by_api, auth, source, created_at, version FROM routes `

func (t *readTx) routes(ctx context.Context, rest string, args ...any) ([]gateway.Route, error) {
	var list []gateway.Route
	err := t.rows(ctx, "read routes", routeColumns+rest, args, func(r *sql.Rows) error {
		route, err := scanRoute(r)
		list = append(list, route)
		return err
	})
	return list, err
}

func scanRoute(r *sql.Rows) (gateway.Route, error) {
	var (
		route                               gateway.Route
		methods, sustained, burst, day, per string
		created                             int64
	)
	err := r.Scan(&route.ID, &route.GatewayID, &route.Path, &methods, &sustained, &burst, &day, &per,
		&route.LimitByAPI, &route.Auth, &route.Source, &created, &route.Version)
	if err != nil {
		return route, err
	}
	route.Methods = strings.Fields(methods)
	route.CreatedAt = instant(created)
	route.RateLimit, err = limit(sustained, burst, day, per)
	return route, err
}

// Route implements control.RouteReader.
func (t *readTx) Route(ctx context.Context, gatewayID, routeID string) (*gateway.Route, error) {
	var route gateway.Route
	err := t.row(ctx, "route", routeColumns+`WHERE id = ? AND gateway_id = ?`, []any{routeID, gatewayID}, func(r *sql.Rows) (err error) {
		route, err = scanRoute(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &route, nil
}

// Routes implements control.RouteReader.
func (t *readTx) Routes(ctx context.Context, gatewayID string, p control.Page) ([]gateway.Route, error) {
	return t.routes(ctx, `INDEXED BY routes_list WHERE gateway_id = ? AND id < ? ORDER BY id DESC LIMIT ?+0`,
		gatewayID, below(p.After), rowLimit(p.Limit))
}

// RouteTable implements control.RouteReader.
func (t *readTx) RouteTable(ctx context.Context, gatewayID string) ([]gateway.Route, error) {
	return t.routes(ctx, `INDEXED BY routes_list WHERE gateway_id = ? ORDER BY id`, gatewayID)
}

// CountRoutes implements control.RouteReader.
func (t *readTx) CountRoutes(ctx context.Context, accountID string) (n int, err error) {
	err = t.row(ctx, "number of routes", `SELECT coalesce(sum(route_count), 0) FROM gateways INDEXED BY gateways_routes WHERE account_id = ?`,
		[]any{accountID}, func(r *sql.Rows) error { return r.Scan(&n) })
	return n, err
}

// countRoutes adds to the number of routes of a gateway.
func (t *tx) countRoutes(ctx context.Context, gatewayID string, more int) error {
	_, err := t.exec(ctx, "count routes", `UPDATE gateways SET route_count = route_count + ? WHERE id = ?`, more, gatewayID)
	return err
}

// routeValues returns the values that InsertRoutes and UpdateRoutes write, in their order.
func routeValues(r *gateway.Route) []any {
	l := &r.RateLimit
	return []any{r.Path, strings.Join(r.Methods, " "), l.Sustained.String(), l.Burst.String(), l.Daily.String(), l.Per,
		r.LimitByAPI, string(r.Auth), string(r.Source), r.Version}
}

// InsertRoutes implements control.RouteStore.
func (t *tx) InsertRoutes(ctx context.Context, routes []gateway.Route) error {
	added := 0 // to one gateway, since it was last counted
	for i := range routes {
		r := &routes[i]
		_, err := t.exec(ctx, "insert route", `INSERT INTO routes (path, methods, sustained, burst, daily, per,
			limit_by_api, auth, source, version, id, gateway_id, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			append(routeValues(r), r.ID, r.GatewayID, micros(r.CreatedAt))...)
		if err != nil {
			return err
		}
		added++
		if i+1 < len(routes) && routes[i+1].GatewayID == r.GatewayID {
			continue
		}
		if err := t.countRoutes(ctx, r.GatewayID, added); err != nil {
			return err
		}
		added = 0
	}
	return nil
}

// UpdateRoutes implements control.RouteStore.
func (t *tx) UpdateRoutes(ctx context.Context, routes []gateway.Route) error {
	for i := range routes {
		r := &routes[i]
		err := t.must(ctx, "update route", "route", `UPDATE routes SET path = ?, methods = ?, sustained = ?, burst = ?, daily = ?, per = ?,
			limit_by_api = ?, auth = ?, source = ?, version = ? WHERE id = ? AND gateway_id = ?`,
			append(routeValues(r), r.ID, r.GatewayID)...)
		if err != nil {
			return err
		}
	}
	return nil
}

// DeleteRoutes implements control.RouteStore.
func (t *tx) DeleteRoutes(ctx context.Context, gatewayID string, routeIDs []string) error {
	for _, id := range routeIDs {
		if err := t.must(ctx, "delete route", "route", `DELETE FROM routes WHERE id = ? AND gateway_id = ?`, id, gatewayID); err != nil {
			return err
		}
	}
	return t.countRoutes(ctx, gatewayID, -len(routeIDs))
}
