package storetest

import (
	"context"
	"fmt"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

func (h *harness) routeTable(gatewayID string) []gateway.Route {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) ([]gateway.Route, error) {
		return tx.RouteTable(ctx, gatewayID)
	})
}

// Guarantee: routes are returned as they were inserted, belong to one gateway, and a change that
// includes a route which does not exist changes none.
func testRoutes(h *harness) {
	a := h.insertAccount("a")
	g, other := h.insertGateway(a), h.insertGateway(a)
	full := newRoute(g, "/compare/{base}...{head}", "DELETE", "GET")
	full.RateLimit = ratelimit.Config{Sustained: rate("600/min"), Burst: rate("50/s"), Daily: rate("9/day"), Per: ratelimit.PerKey}
	full.LimitByAPI, full.Auth, full.Source, full.Version = true, gateway.AuthNone, gateway.Spec, 7
	full.Cost, full.CostByAPI = costOf(h, `[{meter: tokens, reserve: 20, max: 1000, from: {json: {"a|b.c": 1, "d?": -0.5}, by: model, prices: {"ü": {a: 2}}}, unknown: {bytes_out: 0.25}}, {meter: requests, from: {request: 3}}]`), true
	full.Concurrency, full.ConcurrencyByAPI = ratelimit.Concurrency{Max: ratelimit.MaxConcurrency, Per: ratelimit.PerKey}, true
	full.Upstream, full.Split = "next", aSplit()
	full.Handling = &gateway.Handling{StripPrefix: "/a", Respond: &gateway.Respond{Status: 410, ContentType: "text/plain", Body: "gone", Headers: map[string]string{"X-A": "b"}}}
	plain := newRoute(g, "/ä/*", "GET")
	foreign := newRoute(other, "/ä/*", "GET")
	h.update(func(ctx context.Context, tx control.Tx) error {
		return tx.InsertRoutes(ctx, []gateway.Route{full, plain, foreign})
	})
	same(h, "table", h.routeTable(g.ID), []gateway.Route{full, plain})
	one := func(gatewayID, routeID string) func(context.Context, control.ReadTx) (*gateway.Route, error) {
		return func(ctx context.Context, tx control.ReadTx) (*gateway.Route, error) {
			return tx.Route(ctx, gatewayID, routeID)
		}
	}
	same(h, "route", get(h, one(g.ID, full.ID)), &full)
	missing(h, "route of another gateway", one(g.ID, foreign.ID))
	missing(h, "unknown route", one(g.ID, id.New(id.Route)))

	changed := full
	changed.Path, changed.Methods, changed.RateLimit = "/new", []string{"PUT"}, ratelimit.Config{}
	changed.LimitByAPI, changed.Auth, changed.Source, changed.Version = false, "", gateway.Config, 8
	changed.Cost, changed.CostByAPI = costOf(h, `[{meter: tokens, max: 5, from: {header: X-Tokens}, unknown: reserve}]`), false
	changed.Concurrency, changed.ConcurrencyByAPI = ratelimit.Concurrency{Max: 1}, false
	changed.Upstream, changed.Split = "other", gateway.Split{}
	changed.Handling = &gateway.Handling{Redirect: &gateway.Redirect{To: "/b", Status: 308, KeepQuery: true}}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateRoutes(ctx, []gateway.Route{changed}) })
	same(h, "updated", h.routeTable(g.ID), []gateway.Route{changed, plain})
	changed.Cost, changed.Concurrency, changed.Upstream = nil, ratelimit.Concurrency{}, ""
	changed.Split, changed.Handling = nil, nil
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateRoutes(ctx, []gateway.Route{changed}) })
	same(h, "without a cost", h.routeTable(g.ID), []gateway.Route{changed, plain})

	gone := newRoute(g, "/gone", "GET")
	stray := plain
	stray.GatewayID = other.ID
	for _, r := range []gateway.Route{gone, stray} {
		h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
			return tx.UpdateRoutes(ctx, []gateway.Route{full, r})
		})
		h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
			return tx.DeleteRoutes(ctx, r.GatewayID, []string{r.ID})
		})
	}
	same(h, "after refusals", h.routeTable(g.ID), []gateway.Route{changed, plain})
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		return tx.InsertRoutes(ctx, []gateway.Route{newRoute(newGateway(a), "/x", "GET")})
	})
	h.rejected(fault.Conflict, func(ctx context.Context, tx control.Tx) error { return tx.InsertRoutes(ctx, []gateway.Route{plain}) })

	h.update(func(ctx context.Context, tx control.Tx) error {
		return tx.DeleteRoutes(ctx, g.ID, []string{full.ID, plain.ID})
	})
	same(h, "after deletion", len(h.routeTable(g.ID)), 0)
	same(h, "the other's table", h.routeTable(other.ID), []gateway.Route{foreign})
}

// costOf returns rules that are written in YAML.
func costOf(t fataler, text string) (rules cost.Rules) {
	t.Helper()
	if err := rules.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatalf("the cost %s: %v", text, err)
	}
	return rules
}

// Guarantee: the number of routes of an account is the sum over all its gateways, after insertions,
// changes, deletions, transactions that were rolled back, and the deletion of a gateway.
func testCountRoutes(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	g, second, foreign := h.insertGateway(a), h.insertGateway(a), h.insertGateway(b)
	count := func(what string, wantA, wantB int) {
		h.Helper()
		for account, want := range map[string]int{a.ID: wantA, b.ID: wantB} {
			same(h, what, get(h, func(ctx context.Context, tx control.ReadTx) (int, error) { return tx.CountRoutes(ctx, account) }), want)
		}
	}
	count("at first", 0, 0)
	routes := []gateway.Route{
		newRoute(g, "/a", "GET"), newRoute(g, "/b", "GET"), newRoute(second, "/a", "GET"), newRoute(foreign, "/a", "GET"), newRoute(g, "/c", "GET"),
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertRoutes(ctx, routes) })
	count("after insertions", 4, 1)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateRoutes(ctx, routes[:2]) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		return tx.DeleteRoutes(ctx, g.ID, []string{routes[0].ID, id.New(id.Route)})
	})
	count("after changes", 4, 1)
	h.update(func(ctx context.Context, tx control.Tx) error {
		return tx.DeleteRoutes(ctx, g.ID, []string{routes[0].ID})
	})
	count("after a deletion", 3, 1)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeleteGateway(ctx, a.ID, g.ID) })
	count("after the deletion of a gateway", 1, 1)
}

// Guarantee: a route table of a real size is inserted and changed completely and in order.
func testLargeRouteTable(h *harness) {
	g := h.insertGateway(h.insertAccount("a"))
	var table []gateway.Route
	for i := range 1223 {
		r := newRoute(g, fmt.Sprintf("/r/%d/{id}", i), "GET")
		if i%3 > 0 {
			r.Cost = costOf(h, fmt.Sprintf(`[{meter: tokens, from: {request: %d}}]`, i%7))
		}
		table = append(table, r)
	}
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertRoutes(ctx, table) })
	same(h, "table", h.routeTable(g.ID), table)
	var ids []string
	for i := range table {
		table[i].Version++
		if i < 600 {
			ids = append(ids, table[i].ID)
		}
	}
	h.update(func(ctx context.Context, tx control.Tx) error {
		if err := tx.UpdateRoutes(ctx, table); err != nil {
			return err
		}
		return tx.DeleteRoutes(ctx, g.ID, ids)
	})
	same(h, "changed table", h.routeTable(g.ID), table[600:])
}
