package control_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// rulesOf returns rules that are written in YAML.
func rulesOf(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, text string,
) (rules cost.Rules) {
	t.Helper()
	if err := rules.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return rules
}

// price returns the cost of so many tokens for each request; none for 0.
func price(t *testing.T, n int64) cost.Rules {
	t.Helper()
	if n == 0 {
		return nil
	}
	return rulesOf(t, fmt.Sprintf("[{meter: tokens, from: {request: %d}}]", n))
}

// prices returns the prices of the gateway's routes, by path.
func (h *harness) prices(c *control.Actor, gatewayID string) string {
	h.tb.Helper()
	var list []string
	for _, r := range h.routes(c, gatewayID) {
		if len(r.Cost) > 0 {
			list = append(list, fmt.Sprintf("%s:%d", r.Path, r.Cost[0].From.Price))
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// Guarantee: the cost of a route is set when it is created, replaced as a whole and removed by an update, and stays in all
// others. A change raises the version, is in force, and is in the audit log; the same cost in another order is none.
func TestCostOfARoute(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	two := rulesOf(t, "[{meter: tokens, max: 9, from: {json: {a: 1, b: 2}}}, {meter: requests, from: {request: 3}}]")
	r := must[*gateway.Route](h)(h.CreateRoute(ctx(), caller, g.ID, gateway.RouteSpec{Path: "/a", Methods: []string{"GET"}, Cost: two}))
	if !r.Cost.Equal(two) || !r.CostByAPI || r.Version != 1 {
		t.Errorf("got %+v, want the cost", r)
	}
	const asJSON = `[{"meter":"tokens","reserve":1,"max":9,"from":{"json":{"a":1,"b":2}}},{"meter":"requests","reserve":3,"max":3,"from":{"request":3}}]`
	wantDiff := func(before, after string) {
		t.Helper()
		diff, err := json.Marshal(h.newest(caller.Account.ID, 1, 0).audits[0].Diff["cost"])
		h.must(err)
		var got, want any
		h.must(json.Unmarshal(diff, &got))
		h.must(json.Unmarshal([]byte("["+before+","+after+"]"), &want))
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got the audit diff %s, want %v", diff, want)
		}
	}
	wantDiff("null", asJSON)
	turned := slices.Clone(two)
	slices.Reverse(turned)
	const one = `[{"meter":"tokens","reserve":7,"max":7,"from":{"request":7}}]`
	for _, step := range []struct {
		name          string
		patch         control.RoutePatch
		want          cost.Rules
		before, after string // of the audit diff; "" without a change
	}{
		{"another field", control.RoutePatch{Auth: value("none")}, two, "", ""},
		{"another order", control.RoutePatch{Cost: value(turned)}, two, "", ""},
		{"another cost", control.RoutePatch{Cost: value(price(t, 7))}, price(t, 7), asJSON, one},
		{"the same cost", control.RoutePatch{Cost: value(price(t, 7))}, price(t, 7), "", ""},
		{"null", control.RoutePatch{Cost: null[cost.Rules]()}, nil, one, "null"},
		{"null again", control.RoutePatch{Cost: null[cost.Rules]()}, nil, "", ""},
		{"a cost again", control.RoutePatch{Cost: value(price(t, 7)), Path: value("/b")}, price(t, 7), "null", one},
		{"an empty list", control.RoutePatch{Cost: value(cost.Rules{})}, nil, one, "null"},
	} {
		before := must[*gateway.Route](h)(h.Route(ctx(), caller, g.ID, r.ID))
		var audits, changes []string
		wantVersion := before.Version
		if step.after != "" || step.name == "another field" {
			audits, changes = []string{"route.update " + r.ID}, []string{"route " + g.ID + "/" + r.ID}
			wantVersion++
		}
		h.wantRecords(caller.Account.ID, func() {
			must[*gateway.Route](h)(h.UpdateRoute(ctx(), caller, g.ID, r.ID, step.patch, version(before.Version)))
		}, audits, nil, changes)
		got := must[*gateway.Route](h)(h.Route(ctx(), caller, g.ID, r.ID))
		if !got.Cost.Equal(step.want) || got.Version != wantVersion || got.CostByAPI != (len(step.want) > 0) {
			t.Errorf("%s: got %+v, want the cost %v and version %d", step.name, got, step.want, wantVersion)
		}
		if step.after != "" {
			wantDiff(step.before, step.after)
		}
	}
}

// Guarantee: a cost that is invalid, or one too many for the gateway, is refused with its field, and changes nothing, whether
// the route is created or updated.
func TestRefusedCostsOfRoutes(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	r := h.route(caller, g.ID, "/a", "GET")
	bad := price(t, 5)
	bad[0].Meter, bad[0].From.Price = "bytes_in", -1
	h.wantNoRecords(caller.Account.ID, func() {
		_, err := h.CreateRoute(ctx(), caller, g.ID, gateway.RouteSpec{Path: "/b", Methods: []string{"GET"}, Cost: bad})
		_, err2 := h.UpdateRoute(ctx(), caller, g.ID, r.ID, control.RoutePatch{Cost: value(bad)}, nil)
		for _, err := range []error{err, err2} {
			var fields []string
			for _, p := range fault.ProblemsOf(err) {
				fields = append(fields, p.Field)
			}
			if !slices.Equal(fields, []string{"cost[0].meter", "cost[0].from.request"}) {
				t.Errorf("got problems of %q", fields)
			}
		}
	})
	doc := "routes:\n- {path: /a, methods: [GET]}\n"
	for i := range gateway.MaxCosts {
		doc += fmt.Sprintf("- {path: /r%d, methods: [GET], cost: [{meter: tokens, from: {request: %d}}]}\n", i, i+1)
	}
	h.configure(caller, g.ID, doc)
	more := price(t, gateway.MaxCosts+1)
	h.wantNoRecords(caller.Account.ID, func() {
		_, err := h.CreateRoute(ctx(), caller, g.ID, gateway.RouteSpec{Path: "/b", Methods: []string{"GET"}, Cost: more})
		h.wantCode(err, fault.ValidationFailed, "cost")
		_, err = h.UpdateRoute(ctx(), caller, g.ID, r.ID, control.RoutePatch{Cost: value(more)}, nil)
		h.wantCode(err, fault.ValidationFailed, "cost")
		_, err = h.PushConfiguration(ctx(), caller, g.ID, []byte(doc+"- {path: /b, methods: [GET], cost: [{meter: tokens, from: {request: 0}}]}\n"), false, nil)
		h.wantCode(err, fault.ValidationFailed, fmt.Sprintf("routes[%d].cost", gateway.MaxCosts+1))
	})
	must[*gateway.Route](h)(h.UpdateRoute(ctx(), caller, g.ID, r.ID, control.RoutePatch{Cost: value(price(t, gateway.MaxCosts))}, nil))
}

// costSpec returns a spec with a path for each price; 0 is a path without one.
func costSpec(prices ...int64) []byte {
	text := "openapi: 3.1.0\npaths:\n"
	for i, n := range prices {
		text += fmt.Sprintf("  /%d:\n    get: {}\n", i)
		if n > 0 {
			text += fmt.Sprintf("    x-keygate-cost: [{meter: tokens, from: {request: %d}}]\n", n)
		}
	}
	return []byte(text)
}

// Guarantee: a cost that was set through the API stays when a spec is pushed, unless the spec has one, or the cost was set to
// that of the spec before it left the spec; a cost of a former spec goes. A configuration file replaces all costs, and a
// rollback restores those of the revision, and whether they came from the API.
func TestCostOfTheSpecReplacesThatOfTheAPI(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	want := func(what, prices string) {
		t.Helper()
		if got := h.prices(caller, g.ID); got != prices {
			t.Errorf("%s: got %q, want %q", what, got, prices)
		}
	}
	set := func(path string, n int64) {
		t.Helper()
		for _, r := range h.routes(caller, g.ID) {
			if r.Path == path {
				must[*gateway.Route](h)(h.UpdateRoute(ctx(), caller, g.ID, r.ID, control.RoutePatch{Cost: value(price(t, n))}, nil))
			}
		}
	}
	h.push(caller, g.ID, costSpec(1, 2, 3, 0)) // 1
	want("a spec", "/0:1 /1:2 /2:3")
	set("/1", 20)
	set("/2", 3) // claimed
	set("/3", 40)
	h.push(caller, g.ID, costSpec(0, 0, 0, 0)) // 2
	want("a spec without costs", "/1:20 /2:3 /3:40")
	h.push(caller, g.ID, costSpec(0, 5, 0, 0)) // 3
	want("a spec with one", "/1:5 /2:3 /3:40")
	h.push(caller, g.ID, costSpec(0, 0, 0, 0)) // 4
	want("a spec without it", "/2:3 /3:40")
	set("/3", 0)
	h.push(caller, g.ID, costSpec(0, 0, 0, 1)) // 5
	want("after a removal", "/2:3 /3:1")
	h.configure(caller, g.ID, "routes:\n- {path: /0, methods: [GET], cost: [{meter: tokens, from: {request: 9}}]}\n- {path: /2, methods: [GET]}\n") // 6
	want("a configuration file", "/0:9")
	must[*control.PushResult](h)(h.Rollback(ctx(), caller, g.ID, 2, false, nil))
	want("a rollback", "/1:20 /2:3 /3:40")
	h.push(caller, g.ID, []byte(string(costSpec(0, 0, 0, 0))+"# again\n"))
	want("a spec after the rollback", "/1:20 /2:3 /3:40")
	exported := must[[]byte](h)(h.Configuration(ctx(), caller, g.ID))
	if r := must[*control.PushResult](h)(h.PushConfiguration(ctx(), caller, g.ID, exported, true, nil)); len(r.Added)+len(r.Removed)+len(r.Changed) > 0 || !strings.Contains(string(exported), "from: {request: 40}") {
		t.Errorf("the exported configuration\n%s\nchanges %+v", exported, r)
	}
}

// Guarantee: what a push changes about costs is in its result: rules or nil before and after, in the order limit, cost,
// authentication. Costs beyond 1 MiB in all are digests.
func TestChangesOfCosts(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	h.push(caller, g.ID, costSpec(1, 2, 0))
	r := h.push(caller, g.ID, []byte(strings.Replace(string(costSpec(7, 2, 3)), "/0:", "/0:\n    x-keygate-auth: none", 1)))
	if got := show(r); got != "2: +[] -[] ~[GET /0,GET /2] =1" {
		t.Errorf("got %s", got)
	}
	text, err := json.Marshal([]any{r.Changed[0].Changes, r.Changed[1].Changes})
	h.must(err)
	const a, b, c = `[{"meter":"tokens","reserve":1,"max":1,"from":{"request":1}}]`, `[{"meter":"tokens","reserve":7,"max":7,"from":{"request":7}}]`, `[{"meter":"tokens","reserve":3,"max":3,"from":{"request":3}}]`
	want := `[[{"Field":"cost","Before":` + a + `,"After":` + b + `},{"Field":"auth","Before":"key","After":"none"}],[{"Field":"cost","Before":null,"After":` + c + `}]]`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}

	var large strings.Builder
	large.WriteString("x: &x [{meter: tokens, max: 5, from: {json: {a: 1")
	for i := range 15 {
		fmt.Fprintf(&large, ", %s%d: 1", strings.Repeat("x", 200), i)
	}
	large.WriteString("}}}]\n")
	doc := "routes:\n"
	for i := range 500 {
		doc += fmt.Sprintf("- {path: /r%d, methods: [GET]}\n", i)
	}
	h.configure(caller, g.ID, doc)
	list := strings.SplitN(large.String(), "&x ", 2)[1]
	doc = strings.Replace(doc, "[GET]}", "[GET], cost: &x "+strings.TrimSpace(list)+"}", 1)
	doc = strings.ReplaceAll(doc, "[GET]}", "[GET], cost: *x}")
	r = h.configure(caller, g.ID, doc)
	text, err = json.Marshal(r)
	h.must(err)
	last := r.Changed[499].Changes[0].After
	if digest, ok := last.(string); len(r.Changed) != 500 || len(text) > 2<<20 || !ok || !strings.HasPrefix(digest, "sha256:") {
		t.Errorf("%d routes with a cost of %d bytes: the result has %d bytes, the last is %v; want a digest", len(r.Changed), len(list), len(text), last)
	}
}

// Guarantee: the effect of a push lists routes with requests whose cost changes, also when another route takes the requests
// over, and warns that it does not count what limits of plans would refuse.
func TestEffectOfCosts(t *testing.T) {
	h := newHarness(t)
	c := h.caller("a", "admin")
	g := h.gateway(c)
	const a = "[{meter: tokens, from: {request: 1}}]"
	file := func(routes ...string) []byte { return []byte("routes:\n- {" + strings.Join(routes, "}\n- {") + "}\n") }
	before := file("path: /a/b, methods: [GET], cost: "+a, "path: /same, methods: [GET], cost: "+a, "path: /new, methods: [GET], rate_limit: {sustained: 5/day}", "path: /gone, methods: [GET], cost: "+a, "path: /unused, methods: [GET]")
	after := file("path: /a/*, methods: [GET]", "path: /same, methods: [GET], cost: "+a, "path: /new, methods: [GET], rate_limit: {sustained: 2/day}, cost: "+a, "path: /unused, methods: [GET], cost: "+a)
	must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, before, false, nil))
	p := h.withPlane(c.Account.ID, g.ID, nil)
	for _, r := range h.routes(c, g.ID) {
		for range 4 {
			if r.Path != "/unused" {
				p.end(r.ID, "", accesslog.Forwarded, 200)
			}
		}
	}
	r := must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, g.ID, after, true, nil))
	e := must[*control.Effect](h)(h.Effect(ctx(), c, r))
	want := []string{"/a/b cost 4/0/0 0", "/gone removed 4/0/0 4", "/new rate_limit cost 4/0/0 2"}
	if got := effects(e); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if last := r.Warnings[len(r.Warnings)-1]; !strings.HasPrefix(last, "the cost of 2 routes that had requests changes (/a/b, /new): the effect does not count what limits of plans would refuse") {
		t.Errorf("got the warnings %q", r.Warnings)
	}
}
