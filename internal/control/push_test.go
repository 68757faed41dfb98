package control_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// show writes a push's result in one line.
func show(r *control.PushResult) string {
	paths := func(list []control.RouteChange) string {
		var s []string
		for _, c := range list {
			s = append(s, strings.Join(c.Methods, "+")+" "+c.Path)
		}
		return strings.Join(s, ",")
	}
	return fmt.Sprintf("%d: +[%s] -[%s] ~[%s] =%d", r.Revision, paths(r.Added), paths(r.Removed), paths(r.Changed), r.Unchanged)
}

func (h *harness) push(c *control.Caller, gatewayID string, doc []byte) *control.PushResult {
	h.tb.Helper()
	return must[*control.PushResult](h)(h.PushSpec(ctx(), c, gatewayID, doc, false, nil))
}

func (h *harness) configure(c *control.Caller, gatewayID, doc string) *control.PushResult {
	h.tb.Helper()
	return must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, gatewayID, []byte(doc), false, nil))
}

func (h *harness) routes(c *control.Caller, gatewayID string) []gateway.Route {
	h.tb.Helper()
	list := must[[]gateway.Route](h)(h.Routes(ctx(), c, gatewayID, control.Page{Limit: 1000}))
	slices.Reverse(list)
	return list
}

// limitByAPI sets a route's sustained limit.
func (h *harness) limitByAPI(c *control.Caller, gatewayID, routeID, sustained string) {
	h.tb.Helper()
	p := control.LimitPatch{RateLimit: value(control.RateLimitPatch{Sustained: value(sustained)})}
	must[*gateway.Route](h)(h.UpdateRouteLimit(ctx(), c, gatewayID, routeID, p, nil))
}

// Guarantee: contract 5, one story of pushes: the difference, revisions
// without gaps, events with their counts, identities and limits that stay.
func TestPushStory(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	id := g.ID
	_, err := h.Spec(ctx(), caller, id)
	h.wantCode(err, fault.NotFound, "")

	byHand := h.route(caller, id, "/a", "GET")
	h.limitByAPI(caller, id, byHand.ID, "5/s")
	before := h.records(caller.Account.ID)
	step := func(got *control.PushResult, want string) {
		t.Helper()
		if show(got) != want {
			t.Errorf("got %s; want %s", show(got), want)
		}
	}
	first := spec("/a", "/b 7/s", "/c")
	dry := must[*control.PushResult](h)(h.PushSpec(ctx(), caller, id, first, true, version(1)))
	step(dry, "0: +[GET /b,GET /c] -[] ~[] =1")
	if dry.Added[0].RouteID != "" {
		t.Errorf("a dry run gave %s an identity", dry.Added[0].Path)
	}
	step(h.push(caller, id, first), "1: +[GET /b,GET /c] -[] ~[] =1")
	step(h.push(caller, id, first), "0: +[] -[] ~[] =3")
	if got := h.routes(caller, id); got[0].ID != byHand.ID || got[0].RateLimit.Sustained != rate("5/s") || got[0].Source != gateway.Spec {
		t.Errorf("the route made by hand became %+v", got[0])
	}

	// Another document with the same routes is a revision: GET gives its bytes.
	caller.Source = gateway.CLI
	commented := append([]byte("# v2\n"), first...)
	step(h.push(caller, id, commented), "2: +[] -[] ~[] =3")
	if rev := must[*gateway.Revision](h)(h.Spec(ctx(), caller, id)); !bytes.Equal(rev.Content, commented) || rev.Number != 2 || rev.Source != gateway.CLI || rev.Author != "acme admin" {
		t.Errorf("spec %+v", rev)
	}

	// A limit set through the API stays unless the document carries one.
	routes := h.routes(caller, id)
	h.limitByAPI(caller, id, routes[1].ID, "8/s")
	h.limitByAPI(caller, id, routes[2].ID, "9/s")
	dry = must[*control.PushResult](h)(h.PushSpec(ctx(), caller, id, commented, true, nil))
	step(dry, "0: +[] -[] ~[GET /b] =2")
	if dry.Changed[0].RouteID != routes[1].ID {
		t.Errorf("a dry run shows %+v", dry.Changed[0])
	}
	step(h.push(caller, id, commented), "3: +[] -[] ~[GET /b] =2")
	if got := h.routes(caller, id); got[1].RateLimit.Sustained != rate("7/s") || got[2].RateLimit.Sustained != rate("9/s") {
		t.Errorf("limits %v and %v", got[1].RateLimit, got[2].RateLimit)
	}

	// A configuration is the whole truth, its section gateway too.
	caller.Source = gateway.Dashboard
	config := "gateway: {name: shop, global_rate_limit: {sustained: 6000/min}}\nroutes:\n  - {path: /a, methods: [GET]}\n  - {path: /d, methods: [PUT, GET], auth: none}\n"
	step(h.configure(caller, id, config), "4: +[GET+PUT /d] -[GET /b,GET /c] ~[GET /a] =0")
	step(h.configure(caller, id, config), "0: +[] -[] ~[] =2")
	after := must[*gateway.Gateway](h)(h.Gateway(ctx(), caller, id))
	if after.Name != "shop" || after.GlobalLimit.Sustained != rate("6000/min") || after.Revision != 4 || after.Version != 5 {
		t.Errorf("gateway %+v", after)
	}
	_, err = h.Spec(ctx(), caller, id)
	h.wantCode(err, fault.NotFound, "")
	must[*gateway.Gateway](h)(h.UpdateGateway(ctx(), caller, id, control.GatewayPatch{Name: value("other")}, nil))
	step(h.configure(caller, id, config), "5: +[] -[] ~[] =2")

	// What is exported can be applied unchanged.
	exported := must[[]byte](h)(h.Configuration(ctx(), caller, id))
	step(must[*control.PushResult](h)(h.PushConfiguration(ctx(), caller, id, exported, true, nil)), "0: +[] -[] ~[] =2")

	// A rollback restores content and limits.
	_, err = h.Rollback(ctx(), caller, id, 9, nil)
	h.wantCode(err, fault.NotFound, "")
	step(must[*control.PushResult](h)(h.Rollback(ctx(), caller, id, 3, nil)), "6: +[GET /b,GET /c] -[GET+PUT /d] ~[GET /a] =0")
	if rev := must[*gateway.Revision](h)(h.Spec(ctx(), caller, id)); !bytes.Equal(rev.Content, commented) || rev.Number != 6 || rev.Source != gateway.Rollback || rev.Kind != gateway.SpecDocument {
		t.Errorf("spec after the rollback %+v", rev)
	}
	for i, limit := range []string{"5/s", "7/s", "9/s"} {
		if r := h.routes(caller, id)[i]; r.RateLimit.Sustained != rate(limit) {
			t.Errorf("%s has %v after the rollback; want %s", r.Path, r.RateLimit.Sustained, limit)
		}
	}
	step(must[*control.PushResult](h)(h.Rollback(ctx(), caller, id, 3, nil)), "0: +[] -[] ~[] =3")
	step(must[*control.PushResult](h)(h.Rollback(ctx(), caller, id, 4, nil)), "7: +[GET+PUT /d] -[GET /b,GET /c] ~[GET /a] =0")
	if got := must[*gateway.Gateway](h)(h.Gateway(ctx(), caller, id)); got.Name != "shop" {
		t.Errorf("the rollback to a configuration left the name %q", got.Name)
	}

	var pushes, actions []string
	left := h.records(caller.Account.ID).since(before)
	for _, e := range left.events {
		d := dataOf(e)
		pushes = append(pushes, fmt.Sprintf("%s %v %v +%v -%v ~%v %v", e.Type, d["revision"], d["source"], d["added"], d["removed"], d["changed"], d["commit"]))
	}
	for _, r := range left.audits {
		actions = append(actions, string(r.Action))
	}
	want := []string{
		"gateway.spec_pushed 1 api +2 -0 ~0 <nil>", "gateway.spec_pushed 2 cli +0 -0 ~0 <nil>", "gateway.spec_pushed 3 cli +0 -0 ~1 <nil>",
		"gateway.spec_pushed 4 dashboard +1 -2 ~1 <nil>", "gateway.spec_pushed 5 dashboard +0 -0 ~0 <nil>",
		"gateway.spec_pushed 6 rollback +2 -1 ~1 <nil>", "gateway.spec_pushed 7 rollback +1 -2 ~1 <nil>",
	}
	if !slices.Equal(pushes, want) {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(pushes, "\n"), strings.Join(want, "\n"))
	}
	wantActions := []string{
		"spec.push", "spec.push", "route.update", "route.update", "spec.push", "config.push", "gateway.update", "config.push",
		"revision.rollback", "revision.rollback",
	}
	if !slices.Equal(actions, wantActions) {
		t.Errorf("audit actions %q; want %q", actions, wantActions)
	}
	list := must[[]gateway.Revision](h)(h.Revisions(ctx(), caller, id, 3, 6))
	if len(list) != 3 || list[0].Number != 5 || list[2].Number != 3 || list[0].Content != nil {
		t.Errorf("revisions below 6: %+v", list)
	}
}

// Guarantee: a bad document, or a condition that does not hold, changes
// nothing, and the error names the place.
func TestPushRefuses(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	h.push(caller, g.ID, spec("/a"))
	h.wantNoRecords(caller.Account.ID, func() {
		for _, doc := range []string{"", "[]", "openapi: 3.1.0\npaths: [", "swagger: '2.0'", "openapi: 3.1.0\npaths: {a: {get: {}}}"} {
			_, err := h.PushSpec(ctx(), caller, g.ID, []byte(doc), false, nil)
			h.wantCode(err, fault.ValidationFailed, "")
		}
		for doc, field := range map[string]string{
			"routes: [":                                                        "",
			"gateway: {name: x}":                                               "",
			"gateway: {name: null}\nroutes: []":                                "gateway.name",
			"gateway: {name: ''}\nroutes: []":                                  "gateway.name",
			"gateway: {upstream_url: ftp://x}\nroutes: []":                     "gateway.upstream_url",
			"gateway: {global_rate_limit: {burst: 5/s}}\nroutes: []":           "",
			"routes: [{path: /a, methods: [GET]}, {path: /a, methods: [GET]}]": "",
		} {
			_, err := h.PushConfiguration(ctx(), caller, g.ID, []byte(doc), false, nil)
			h.wantCode(err, fault.ValidationFailed, field)
			_, err = h.PushConfiguration(ctx(), caller, "gw_none", []byte(doc), false, nil) // before 404
			h.wantCode(err, fault.ValidationFailed, field)
		}
		_, err := h.PushSpec(ctx(), caller, g.ID, spec("/b"), false, version(1))
		h.wantCode(err, fault.PreconditionFailed, "")
		_, err = h.PushSpec(ctx(), caller, g.ID, spec("/b"), true, version(1))
		h.wantCode(err, fault.PreconditionFailed, "")
	})
	if got := must[*gateway.Gateway](h)(h.Gateway(ctx(), caller, g.ID)); got.Revision != 1 || got.Version != 2 {
		t.Errorf("gateway %+v", got)
	}
}

// Guarantee: whatever stood before, a push gives exactly the document's table;
// a route that stands before and after keeps its identity, the difference is
// the true one, and a rollback gives the earlier table again.
func TestPushProperty(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	document := rapid.Custom(func(t *rapid.T) map[string]string {
		doc := map[string]string{} // identity to limit
		for range rapid.IntRange(0, 5).Draw(t, "routes") {
			path := rapid.SampledFrom([]string{"/a", "/b", "/c", "/d/{x}"}).Draw(t, "path")
			methods := rapid.SampledFrom([]string{"GET", "PUT", "GET,PUT"}).Draw(t, "methods")
			if taken(doc, path, methods) {
				continue
			}
			doc[path+" "+methods] = rapid.SampledFrom([]string{"", "1/s", "2/s"}).Draw(t, "limit")
		}
		return doc
	})
	rapid.Check(t, func(rt *rapid.T) {
		h.tb = rt
		defer func() { h.tb = t }()
		g := h.gateway(caller)
		var tables []map[string]string
		revision := int64(0)
		for i, doc := range rapid.SliceOfN(document, 1, 4).Draw(rt, "documents") {
			before := identities(h.routes(caller, g.ID))
			previous := limitsOf(h.routes(caller, g.ID))
			got := h.configure(caller, g.ID, asConfig(doc, i))
			revision++
			if got.Revision != revision {
				rt.Fatalf("revision %d; want %d", got.Revision, revision)
			}
			h.wantTable(caller, g.ID, doc, before)
			wantDifference(rt, got, previous, doc)
			tables = append(tables, doc)
		}
		to := rapid.IntRange(1, len(tables)).Draw(rt, "rollback")
		before := identities(h.routes(caller, g.ID))
		must[*control.PushResult](h)(h.Rollback(ctx(), caller, g.ID, int64(to), nil))
		h.wantTable(caller, g.ID, tables[to-1], before)
	})
}

// wantTable compares the routes in force with doc, and the identities of those
// that stood before.
func (h *harness) wantTable(c *control.Caller, gatewayID string, doc, before map[string]string) {
	h.tb.Helper()
	routes := h.routes(c, gatewayID)
	if got := limitsOf(routes); fmt.Sprint(got) != fmt.Sprint(doc) {
		h.tb.Fatalf("table %v; want %v", got, doc)
	}
	for name, id := range identities(routes) {
		if was, stood := before[name]; stood && was != id {
			h.tb.Fatalf("%s was %s and is %s", name, was, id)
		}
	}
}

func wantDifference(t *rapid.T, got *control.PushResult, before, after map[string]string) {
	added, removed, changed, unchanged := 0, 0, 0, 0
	for name, limit := range after {
		was, stood := before[name]
		switch {
		case !stood:
			added++
		case was != limit:
			changed++
		default:
			unchanged++
		}
	}
	for name := range before {
		if _, stands := after[name]; !stands {
			removed++
		}
	}
	if len(got.Added) != added || len(got.Removed) != removed || len(got.Changed) != changed || got.Unchanged != unchanged {
		t.Fatalf("difference %s from %v to %v", show(got), before, after)
	}
}

func taken(doc map[string]string, path, methods string) bool {
	for name := range doc {
		p, m, _ := strings.Cut(name, " ")
		if p == path && containsAny(m, strings.Split(methods, ",")...) {
			return true
		}
	}
	return false
}

// asConfig writes doc as a configuration file that differs from every other.
func asConfig(doc map[string]string, number int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %d\nroutes:\n", number)
	for name, limit := range doc {
		path, methods, _ := strings.Cut(name, " ")
		fmt.Fprintf(&b, "  - {path: '%s', methods: [%s]", path, methods)
		if limit != "" {
			fmt.Fprintf(&b, ", rate_limit: {sustained: %s}", limit)
		}
		b.WriteString("}\n")
	}
	if len(doc) == 0 {
		b.WriteString("  []\n")
	}
	return b.String()
}

func nameOf(r gateway.Route) string { return r.Path + " " + strings.Join(r.Methods, ",") }

func limitsOf(routes []gateway.Route) map[string]string {
	m := map[string]string{}
	for _, r := range routes {
		m[nameOf(r)] = r.RateLimit.Sustained.String()
	}
	return m
}

func identities(routes []gateway.Route) map[string]string {
	m := map[string]string{}
	for _, r := range routes {
		m[nameOf(r)] = r.ID
	}
	return m
}

// Guarantee: contract 5: a limit set through the API stays when a spec carries
// none, even if an earlier spec carried the very same one; to set it changes
// nothing that anyone sees.
func TestSameLimitByAPI(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	h.push(caller, g.ID, spec("/a 7/s", "/b 7/s"))
	before := h.routes(caller, g.ID)
	h.wantNoRecords(caller.Account.ID, func() { h.limitByAPI(caller, g.ID, before[0].ID, "7/s") })
	if after := h.routes(caller, g.ID); after[0].Version != before[0].Version {
		t.Errorf("version %d after %d; want no change", after[0].Version, before[0].Version)
	}
	h.push(caller, g.ID, spec("/a", "/b"))
	for i, want := range []string{"7/s", ""} {
		if got := h.routes(caller, g.ID)[i].RateLimit.Sustained.String(); got != want {
			t.Errorf("route %d has the limit %q; want %q", i, got, want)
		}
	}
}
