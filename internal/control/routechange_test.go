package control_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: an update of a route changes the given fields and nothing else: the route keeps its identifier
// and source, the audit record has what changed, and the version rises only with a change.
func TestUpdateRoute(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	must[*control.PushResult](h)(h.PushSpec(ctx(), caller, g.ID, spec("/a"), false, nil))
	before := h.routes(caller, g.ID)[0]
	h.route(caller, g.ID, "/orders/{id}", "POST")
	for _, step := range []struct {
		patch control.RoutePatch
		edit  func(*gateway.Route)
		diff  string
	}{
		{
			control.RoutePatch{Path: value("/orders/{id}")},
			func(r *gateway.Route) { r.Path = "/orders/{id}" },
			"map[path:[/a /orders/{id}]]",
		},
		{
			control.RoutePatch{Path: value("/orders/{name}"), Methods: value([]string{"PUT", "GET"}), Auth: value("none")},
			func(r *gateway.Route) {
				r.Path, r.Methods, r.Auth, r.AuthOfGateway = "/orders/{name}", []string{"GET", "PUT"}, gateway.AuthNone, false
			},
			"map[auth:[<nil> none] methods:[[GET] [GET PUT]] path:[/orders/{id} /orders/{name}]]",
		},
		{control.RoutePatch{Methods: value([]string{"PUT", "GET"})}, func(*gateway.Route) {}, ""},
		{control.RoutePatch{}, func(*gateway.Route) {}, ""},
		{
			control.RoutePatch{Auth: null[string](), RateLimit: value(control.RateLimitPatch{Sustained: value("5/s")})},
			func(r *gateway.Route) {
				r.Auth, r.AuthOfGateway, r.RateLimit, r.LimitByAPI = gateway.AuthKey, true, ratelimit.Config{Sustained: rate("5/s")}, true
			},
			"map[auth:[none <nil>] rate_limit:[<nil> map[sustained:5/s]]]",
		},
	} {
		want := before
		var records, changes []string
		if step.edit(&want); step.diff != "" {
			want.Version++
			records, changes = []string{"route.update " + want.ID}, []string{"route " + g.ID + "/" + before.ID}
		}
		h.wantRecords(caller.Account.ID, func() {
			got := must[*gateway.Route](h)(h.UpdateRoute(ctx(), caller, g.ID, before.ID, step.patch, version(before.Version)))
			if !reflect.DeepEqual(*got, want) {
				t.Errorf("got %+v, want %+v", *got, want)
			}
		}, records, nil, changes)
		if got := fmt.Sprint(h.newest(caller.Account.ID, 1, 0).audits[0].Diff); step.diff != "" && got != step.diff {
			t.Errorf("got the audit diff %s, want %s", got, step.diff)
		}
		if before = *must[*gateway.Route](h)(h.Route(ctx(), caller, g.ID, before.ID)); !reflect.DeepEqual(before, want) {
			t.Errorf("stored %+v, want %+v", before, want)
		}
	}
}

// Guarantee: an update of a route that would not be a valid route, or not fit another route of the
// gateway, names every invalid field and changes nothing.
func TestInvalidUpdateOfARoute(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	r := h.route(caller, g.ID, "/a", "GET", "PUT")
	h.route(caller, g.ID, "/b/{id}", "GET")
	h.route(caller, g.ID, "/a", "POST")
	perKey := value(control.RateLimitPatch{Per: value("key")})
	h.wantNoRecords(caller.Account.ID, func() {
		for _, row := range []struct {
			patch  control.RoutePatch
			fields []string
		}{
			{control.RoutePatch{Path: value("a"), Methods: value([]string{"get"}), Auth: value("x"), RateLimit: value(control.RateLimitPatch{Daily: value("x")})}, []string{"path", "methods", "auth", "rate_limit.daily"}},
			{control.RoutePatch{Path: null[string](), Methods: null[[]string]()}, []string{"path", "methods"}},
			{control.RoutePatch{Methods: value([]string{})}, []string{"methods"}},
			{control.RoutePatch{Path: value("/b/{name}")}, []string{"methods"}},
			{control.RoutePatch{Methods: value([]string{"POST"})}, []string{"methods"}},
			{control.RoutePatch{Path: value("/b/{id}"), RateLimit: perKey}, []string{"methods", "rate_limit"}},
			{control.RoutePatch{Path: value("/c"), RateLimit: perKey}, []string{"rate_limit"}},
		} {
			_, err := h.UpdateRoute(ctx(), caller, g.ID, r.ID, row.patch, nil)
			var fields []string
			for _, p := range fault.ProblemsOf(err) {
				fields = append(fields, p.Field)
			}
			if !slices.Equal(fields, row.fields) {
				t.Errorf("%+v: got %v, want errors for %q", row.patch, err, row.fields)
			}
		}
		move := control.RoutePatch{Path: value("/c")}
		_, err := h.UpdateRoute(ctx(), caller, g.ID, r.ID, move, never)
		h.wantCode(err, fault.PreconditionFailed, "")
		_, err = h.UpdateRoute(ctx(), caller, g.ID, "rt_none", move, nil)
		h.wantCode(err, fault.NotFound, "")
	})
}

// Guarantee: a push replaces a route that was moved. If the document has the new path and methods,
// the route keeps its identifier; if it has the old path and methods, these get a new identifier.
func TestPushAfterAMove(t *testing.T) {
	for _, row := range []struct {
		path string
		same bool
	}{{"/moved", true}, {"/a", false}} {
		h := newHarness(t)
		caller := h.caller("acme", "admin")
		g := h.gateway(caller)
		must[*control.PushResult](h)(h.PushSpec(ctx(), caller, g.ID, spec("/a"), false, nil))
		r := h.routes(caller, g.ID)[0]
		must[*gateway.Route](h)(h.UpdateRoute(ctx(), caller, g.ID, r.ID, control.RoutePatch{Path: value("/moved")}, nil))
		must[*control.PushResult](h)(h.PushSpec(ctx(), caller, g.ID, spec(row.path), false, nil))
		after := h.routes(caller, g.ID)
		if len(after) != 1 || after[0].Path != row.path || (after[0].ID == r.ID) != row.same {
			t.Errorf("got %+v after a push of %s, want that path and the identifier %s: %v", after, row.path, r.ID, row.same)
		}
	}
}
