package adminapi

import (
	"net/http"
	"net/url"
	"reflect"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

func (a *API) routeOperations() []operation {
	record := reflect.TypeFor[routeRecord]()
	return []operation{{
		id: "listRoutes", method: http.MethodGet, path: "/v1/gateways/{gateway_id}/routes", tag: "Routes",
		summary: "List routes", description: "Returns the routes of a gateway, newest first.",
		query: append(pageParams(), routeFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[routeRecord]](),
		run: a.listRoutes,
	}, {
		id: "createRoute", method: http.MethodPost, path: "/v1/gateways/{gateway_id}/routes", tag: "Routes",
		summary: "Create a route", description: "Creates one route without a push. The next push of a document replaces all routes of the gateway, including this one.",
		body: reflect.TypeFor[createRouteRequest](), replayable: true,
		success: http.StatusCreated, result: record, hasETag: true, hasLocation: true,
		run: takes(a.createRoute),
	}, {
		id: "getRoute", method: http.MethodGet, path: "/v1/gateways/{gateway_id}/routes/{route_id}", tag: "Routes",
		summary: "Get a route", description: "Returns one route.",
		success: http.StatusOK, result: record, hasETag: true,
		run: a.getRoute,
	}, {
		id: "updateRouteLimit", method: http.MethodPost, path: "/v1/gateways/{gateway_id}/routes/{route_id}", tag: "Routes",
		summary:     "Update the rate limit of a route",
		description: "Changes the rate limit of one route without a push. An absent field is unchanged; null removes it.",
		body:        reflect.TypeFor[updateRouteRequest](), ifMatch: true, replayable: true,
		success: http.StatusOK, result: record, hasETag: true,
		run: takes(a.updateRouteLimit),
	}, {
		id: "updateRoute", method: http.MethodPatch, path: "/v1/gateways/{gateway_id}/routes/{route_id}", tag: "Routes",
		summary: "Update a route",
		description: "Changes the path, the methods, the authentication, the rate limit, the concurrency, the cost, the upstream, the split, the prefix that is cut off, the redirect or the response of one route without a push. An absent field is unchanged. " +
			"The route keeps its identifier, its source and what was used of its limits. The next push of a document replaces all routes of the gateway, " +
			"including this one; it keeps the identifier of a route with the same path and methods.",
		body: reflect.TypeFor[patchRouteRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: takes(a.updateRoute),
	}, {
		id: "deleteRoute", method: http.MethodDelete, path: "/v1/gateways/{gateway_id}/routes/{route_id}", tag: "Routes",
		summary: "Delete a route", description: "Deletes the route. Returns the record as it was before.",
		ifMatch: true, success: http.StatusOK, result: record,
		run: a.deleteRoute,
	}}
}

func routeFilters() []queryParam {
	return []queryParam{
		{name: "q", doc: "Only routes whose path contains this text.", schema: textSchema(), example: "orders"},
		{name: "method", doc: "Only routes with this method.", schema: textSchema(), example: "GET"},
	}
}

func (a *API) listRoutes(c *call) (response, error) {
	filter := control.RouteFilter{Query: c.query.Get("q"), Method: c.query.Get("method")}
	bound := url.Values{"gateway_id": {c.params["gateway_id"]}, "q": {filter.Query}, "method": {filter.Method}}
	return page(c, "routes", bound.Encode(), func(p control.Page) ([]gateway.Route, error) {
		if filter == (control.RouteFilter{}) {
			return a.cfg.Control.Routes(c.ctx, &c.actor, c.params["gateway_id"], p)
		}
		return searching(c, func() ([]gateway.Route, error) {
			return a.cfg.Control.SearchRoutes(c.ctx, &c.actor, c.params["gateway_id"], filter, p)
		})
	}, func(r *gateway.Route) (string, routeRecord) { return r.ID, presentRoute(r) })
}

// routeResponse returns a response with a route. What the route requires is in the ETag if the gateway says it, since a change
// of the gateway does not change the route's version.
func routeResponse(r *gateway.Route) response {
	res := withETag(presentRoute(r), r.Version)
	if r.AuthOfGateway && r.Auth != gateway.DefaultAuth {
		res = res.with("ETag", etagBeside(r.Version, string(r.Auth)))
	}
	return res
}

func (a *API) getRoute(c *call) (response, error) {
	return respond(routeResponse)(a.cfg.Control.Route(c.ctx, &c.actor, c.params["gateway_id"], c.params["route_id"]))
}

func (a *API) createRoute(c *call, req createRouteRequest) (response, error) {
	in := gateway.RouteSpec{Path: req.Path, Methods: req.Methods, Auth: gateway.Auth(value(req.Auth))}
	in.Upstream, in.Split, in.Handling = value(req.Upstream), splitOf(req.Split), req.handling()
	in.Concurrency, in.Cost = req.Concurrency.concurrency(), c.costOf(req.Cost)
	if req.RateLimit != nil {
		var err error
		in.RateLimit, err = req.RateLimit.config()
		c.refuse(fault.Prefixed("rate_limit", err))
	}
	present := func(r *gateway.Route) response {
		return routeResponse(r).created("/v1/gateways/" + r.GatewayID + "/routes/" + r.ID)
	}
	return respond(present)(a.cfg.Control.CreateRoute(withIdempotency(c, present), &c.actor, c.params["gateway_id"], in))
}

func (a *API) updateRouteLimit(c *call, req updateRouteRequest) (response, error) {
	p := control.LimitPatch{RateLimit: limitPatch(&req.RateLimit)}
	return respond(routeResponse)(a.cfg.Control.UpdateRouteLimit(withIdempotency(c, routeResponse), &c.actor, c.params["gateway_id"], c.params["route_id"], p, c.match))
}

func (a *API) updateRoute(c *call, req patchRouteRequest) (response, error) {
	p := control.RoutePatch{
		Path: setTo(req.Path), Methods: setTo(req.Methods), Auth: req.Auth.Optional, RateLimit: limitPatch(&req.RateLimit), Cost: c.costPatch(&req.Cost), Upstream: req.Upstream.Optional, Split: splitPatch(&req.Split), Handling: req.HandlingPatch.patch(),
		Concurrency: control.Optional[ratelimit.Concurrency]{Present: req.Concurrency.Present, Null: req.Concurrency.Null, Value: req.Concurrency.Value.concurrency()},
	}
	return respond(routeResponse)(a.cfg.Control.UpdateRoute(c.ctx, &c.actor, c.params["gateway_id"], c.params["route_id"], p, c.match))
}

// limitPatch converts the field rate_limit of an update of a route.
func limitPatch(p *optional[rateLimitPatch]) control.Optional[control.RateLimitPatch] {
	return control.Optional[control.RateLimitPatch]{Present: p.Present, Null: p.Null, Value: p.Value.control()}
}

func (a *API) deleteRoute(c *call) (response, error) {
	return show(presentRoute)(a.cfg.Control.DeleteRoute(c.ctx, &c.actor, c.params["gateway_id"], c.params["route_id"], c.match))
}
