package control_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: a route created through the API follows the rules of a pushed document, and a
// rejected one writes no record.
func TestCreateRoute(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	r := must[*gateway.Route](h)(h.CreateRoute(ctx(), caller, g.ID, gateway.RouteSpec{
		Path: "/orders/{id}", Methods: []string{"GET", "DELETE"}, RateLimit: ratelimit.Config{Sustained: rate("5/s")},
	}))
	if !slices.Equal(r.Methods, []string{"DELETE", "GET"}) || r.Auth != gateway.AuthKey || r.Source != gateway.API || r.Version != 1 {
		t.Errorf("got %+v; want sorted methods, auth key, source api and version 1", r)
	}
	h.route(caller, g.ID, "/orders/{id}", "POST")
	h.wantNoRecords(caller.Account.ID, func() {
		for _, tc := range []struct {
			field string
			in    gateway.RouteSpec
		}{
			{"path", routeSpec("orders", "GET")},
			{"path", routeSpec("", "GET")},
			{"methods", routeSpec("/x")},
			{"methods", routeSpec("/x", "get")},
			{"methods", routeSpec("/x", "TRACE")},
			{"methods", routeSpec("/x", "GET", "GET")},
			{"methods", routeSpec("/orders/{id}", "GET")},
			{"methods", routeSpec("/orders/{name}", "PUT", "POST")}, // the same node of the route tree
			{"auth", gateway.RouteSpec{Path: "/x", Methods: []string{"GET"}, Auth: "maybe"}},
			{"rate_limit.daily", gateway.RouteSpec{Path: "/x", Methods: []string{"GET"}, RateLimit: ratelimit.Config{Daily: rate("5/s")}}},
			{"rate_limit.per", gateway.RouteSpec{Path: "/x", Methods: []string{"GET"}, RateLimit: ratelimit.Config{Daily: rate("5/day"), Per: "ip"}}},
			{"rate_limit", gateway.RouteSpec{Path: "/x", Methods: []string{"GET"}, RateLimit: ratelimit.Config{Per: "key"}}},
		} {
			_, err := h.CreateRoute(ctx(), caller, g.ID, tc.in)
			h.wantCode(err, fault.ValidationFailed, tc.field)
		}
	})
	h.wantRecords(caller.Account.ID, func() {
		_, err := h.DeleteRoute(ctx(), caller, g.ID, r.ID, never)
		h.wantCode(err, fault.PreconditionFailed, "")
		must[*gateway.Route](h)(h.DeleteRoute(ctx(), caller, g.ID, r.ID, version(1)))
		_, err = h.DeleteRoute(ctx(), caller, g.ID, r.ID, nil)
		h.wantCode(err, fault.NotFound, "")
	}, []string{"route.delete " + r.ID}, nil, []string{"route " + g.ID + "/" + r.ID})
}

// Guarantee: contract 3, an update of a route's limit keeps absent fields and removes null
// ones. The version changes only if the limit does.
func TestUpdateRouteLimit(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	r := h.route(caller, g.ID, "/a", "GET")
	limit := func(sustained, burst, daily, per control.Optional[string]) control.LimitPatch {
		return control.LimitPatch{RateLimit: value(control.RateLimitPatch{Sustained: sustained, Burst: burst, Daily: daily, Per: per})}
	}
	var absent control.Optional[string]
	none := null[string]()
	for i, step := range []struct {
		patch control.LimitPatch
		want  string // sustained burst daily per
	}{
		{limit(value("5/s"), absent, absent, absent), "5/s,,,"},
		{limit(absent, value("9/s"), value("100/day"), absent), "5/s,9/s,100/day,"},
		{limit(absent, absent, absent, value("key")), "5/s,9/s,100/day,key"},
		{limit(absent, absent, absent, absent), "5/s,9/s,100/day,key"},
		{limit(none, absent, value("7/day"), absent), ",9/s,7/day,key"},
		{limit(absent, none, absent, none), ",,7/day,"},
		{limit(value("1/h"), absent, none, value("key")), "1/h,,,key"},
		{limit(none, absent, absent, absent), ",,,"},
		{limit(value("1/h"), absent, absent, absent), "1/h,,,"},
		{control.LimitPatch{RateLimit: null[control.RateLimitPatch]()}, ",,,"},
	} {
		before := must[*gateway.Route](h)(h.Route(ctx(), caller, g.ID, r.ID))
		got := must[*gateway.Route](h)(h.UpdateRouteLimit(ctx(), caller, g.ID, r.ID, step.patch, version(before.Version)))
		c := got.RateLimit
		text := strings.Join([]string{c.Sustained.String(), c.Burst.String(), c.Daily.String(), c.Per}, ",")
		wantVersion := before.Version
		if c != before.RateLimit {
			wantVersion++
		}
		if text != step.want || got.Version != wantVersion {
			t.Errorf("step %d: got limit %s and version %d; want %s and %d", i, text, got.Version, step.want, wantVersion)
		}
	}
	h.wantNoRecords(caller.Account.ID, func() {
		for field, p := range map[string]control.LimitPatch{
			"rate_limit":           {},
			"rate_limit.sustained": limit(value("5"), absent, absent, absent),
			"rate_limit.daily":     limit(absent, absent, value("5/s"), absent),
			"rate_limit.per":       limit(value("5/s"), absent, absent, value("ip")),
		} {
			_, err := h.UpdateRouteLimit(ctx(), caller, g.ID, r.ID, p, nil)
			h.wantCode(err, fault.ValidationFailed, field)
			_, err = h.UpdateRouteLimit(ctx(), caller, g.ID, "rt_none", p, nil)
			h.wantCode(err, fault.ValidationFailed, field)
		}
		_, err := h.UpdateRouteLimit(ctx(), caller, g.ID, r.ID, limit(absent, absent, absent, value("key")), nil)
		h.wantCode(err, fault.ValidationFailed, "rate_limit") // per alone limits nothing
		_, err = h.UpdateRouteLimit(ctx(), caller, g.ID, r.ID, limit(value("5/s"), absent, absent, absent), never)
		h.wantCode(err, fault.PreconditionFailed, "")
	})
	h.wantRecords(caller.Account.ID, func() {
		must[*gateway.Route](h)(h.UpdateRouteLimit(ctx(), caller, g.ID, r.ID, limit(value("5/s"), absent, absent, absent), nil))
	}, []string{"route.update " + r.ID}, nil, []string{"route " + g.ID + "/" + r.ID})
}

func containsAny(s string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}
