package control_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// show returns a push's result as one line.
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

func (h *harness) push(c *control.Actor, gatewayID string, doc []byte) *control.PushResult {
	h.tb.Helper()
	return must[*control.PushResult](h)(h.PushSpec(ctx(), c, gatewayID, doc, false, nil))
}

func (h *harness) configure(c *control.Actor, gatewayID, doc string) *control.PushResult {
	h.tb.Helper()
	return must[*control.PushResult](h)(h.PushConfiguration(ctx(), c, gatewayID, []byte(doc), false, nil))
}

func (h *harness) routes(c *control.Actor, gatewayID string) []gateway.Route {
	h.tb.Helper()
	list := must[[]gateway.Route](h)(h.Routes(ctx(), c, gatewayID, control.Page{Limit: 1000}))
	slices.Reverse(list)
	return list
}

// limitByAPI sets a route's sustained limit.
func (h *harness) limitByAPI(c *control.Actor, gatewayID, routeID, sustained string) {
	h.tb.Helper()
	p := control.LimitPatch{RateLimit: value(control.RateLimitPatch{Sustained: value(sustained)})}
	must[*gateway.Route](h)(h.UpdateRouteLimit(ctx(), c, gatewayID, routeID, p, nil))
}

// pushed is one gateway with documents pushed to it.
type pushed struct {
	*harness
	caller *control.Actor
	id     string // of the gateway
}

const (
	pushedConfig = "gateway: {name: shop, global_rate_limit: {sustained: 6000/min}}\nroutes:\n  - {path: /a, methods: [GET]}\n  - {path: /d, methods: [PUT, GET], auth: none}\n"
	pushedLimit  = "5/s" // of GET /a, set through the API before the first push
)

// pushedSpec has the routes of the pushed documents 1 to 3.
func pushedSpec() []byte { return spec("/a", "/b 7/s", "/c") }

// commentedSpec differs from pushedSpec in a comment only.
func commentedSpec() []byte { return append([]byte("# v2\n"), pushedSpec()...) }

// newPushed creates a gateway with the route GET /a, and pushes the first revisions of
// TestRevisionsAreNumberedWithoutGaps to it.
func newPushed(t *testing.T, revisions int) *pushed {
	t.Helper()
	h := newHarness(t)
	p := &pushed{harness: h, caller: h.caller("acme", "admin")}
	p.id = h.gateway(p.caller).ID
	byHand := h.route(p.caller, p.id, "/a", "GET")
	h.limitByAPI(p.caller, p.id, byHand.ID, pushedLimit)
	for n := range revisions {
		p.revise(n + 1)
	}
	return p
}

// revise makes the change that leads to the revision n, and returns its result.
func (p *pushed) revise(n int) *control.PushResult {
	p.tb.Helper()
	switch n {
	case 1:
		return p.push(p.caller, p.id, pushedSpec())
	case 2:
		p.caller.Source = gateway.CLI
		return p.push(p.caller, p.id, commentedSpec())
	case 3:
		p.setLimits()
		return p.push(p.caller, p.id, commentedSpec())
	case 4:
		p.caller.Source = gateway.Dashboard
		return p.configure(p.caller, p.id, pushedConfig)
	case 5:
		must[*gateway.Gateway](p.harness)(p.UpdateGateway(ctx(), p.caller, p.id, gateway.Patch{Name: value("other")}, nil))
		return p.configure(p.caller, p.id, pushedConfig)
	case 6:
		return p.rollback(3)
	default:
		return p.rollback(4)
	}
}

// setLimits changes the limits of GET /b, which the spec sets too, and of GET /c.
func (p *pushed) setLimits() {
	p.tb.Helper()
	routes := p.routes(p.caller, p.id)
	p.limitByAPI(p.caller, p.id, routes[1].ID, "8/s")
	p.limitByAPI(p.caller, p.id, routes[2].ID, "9/s")
}

func (p *pushed) rollback(revision int64) *control.PushResult {
	p.tb.Helper()
	return must[*control.PushResult](p.harness)(p.Rollback(ctx(), p.caller, p.id, revision, false, nil))
}

func (p *pushed) want(got *control.PushResult, want string) {
	p.tb.Helper()
	if show(got) != want {
		p.tb.Errorf("got %s; want %s", show(got), want)
	}
}

func (p *pushed) wantSpec(content []byte, number int64, source gateway.Source) {
	p.tb.Helper()
	got := must[*gateway.Revision](p.harness)(p.Spec(ctx(), p.caller, p.id))
	if !bytes.Equal(got.Content, content) {
		p.tb.Errorf("got spec\n%s\nwant\n%s", got.Content, content)
	}
	if got.Number != number || got.Source != source || got.Kind != gateway.SpecDocument || got.Author != "acme admin" {
		p.tb.Errorf("got spec %d from %s of kind %s by %q; want %d from %s by acme admin", got.Number, got.Source, got.Kind, got.Author, number, source)
	}
}

func (p *pushed) wantNoSpec() {
	p.tb.Helper()
	_, err := p.Spec(ctx(), p.caller, p.id)
	p.wantCode(err, fault.NotFound, "")
}

// wantLimits compares the sustained limits of the routes with want.
func (p *pushed) wantLimits(want ...string) {
	p.tb.Helper()
	var got []string
	for _, r := range p.routes(p.caller, p.id) {
		got = append(got, r.RateLimit.Sustained.String())
	}
	if !slices.Equal(got, want) {
		p.tb.Errorf("got limits %q; want %q", got, want)
	}
}

// Guarantee: contract 5, every push and rollback that changes something is the next
// revision, with its difference, one event with the counts, and one audit record.
func TestRevisionsAreNumberedWithoutGaps(t *testing.T) {
	p := newPushed(t, 0)
	before := p.records(p.caller.Account.ID)
	for i, want := range []string{
		"1: +[GET /b,GET /c] -[] ~[] =1",
		"2: +[] -[] ~[] =3",
		"3: +[] -[] ~[GET /b] =2",
		"4: +[GET+PUT /d] -[GET /b,GET /c] ~[GET /a] =0",
		"5: +[] -[] ~[] =2",
		"6: +[GET /b,GET /c] -[GET+PUT /d] ~[GET /a] =0",
		"7: +[GET+PUT /d] -[GET /b,GET /c] ~[GET /a] =0",
	} {
		p.want(p.revise(i+1), want)
	}

	var events, actions []string
	written := p.records(p.caller.Account.ID).since(before)
	for _, e := range written.events {
		d := dataOf(e)
		events = append(events, fmt.Sprintf("%s %v %v +%v -%v ~%v %v", e.Type, d["revision"], d["source"], d["added"], d["removed"], d["changed"], d["commit"]))
	}
	for _, r := range written.audits {
		actions = append(actions, string(r.Action))
	}
	wantEvents := []string{
		"gateway.spec_pushed 1 api +2 -0 ~0 <nil>", "gateway.spec_pushed 2 cli +0 -0 ~0 <nil>", "gateway.spec_pushed 3 cli +0 -0 ~1 <nil>",
		"gateway.spec_pushed 4 dashboard +1 -2 ~1 <nil>", "gateway.spec_pushed 5 dashboard +0 -0 ~0 <nil>",
		"gateway.spec_pushed 6 rollback +2 -1 ~1 <nil>", "gateway.spec_pushed 7 rollback +1 -2 ~1 <nil>",
	}
	if !slices.Equal(events, wantEvents) {
		t.Errorf("got events\n%s\nwant\n%s", strings.Join(events, "\n"), strings.Join(wantEvents, "\n"))
	}
	wantActions := []string{
		"spec.push", "spec.push", "route.update", "route.update", "spec.push", "config.push", "gateway.update", "config.push",
		"revision.rollback", "revision.rollback",
	}
	if !slices.Equal(actions, wantActions) {
		t.Errorf("got audit actions %q; want %q", actions, wantActions)
	}
	list := must[[]gateway.Revision](p.harness)(p.Revisions(ctx(), p.caller, p.id, 3, 6))
	if len(list) != 3 || list[0].Number != 5 || list[2].Number != 3 || list[0].Content != nil {
		t.Errorf("got revisions below 6 %+v; want 5, 4 and 3 without content", list)
	}
}

// Guarantee: a push or rollback to what is in force writes nothing.
func TestPushWithoutChangeWritesNothing(t *testing.T) {
	for _, tc := range []struct {
		name      string
		revisions int
		repeat    func(p *pushed) *control.PushResult
		want      string
	}{
		{"the same spec", 1, func(p *pushed) *control.PushResult { return p.push(p.caller, p.id, pushedSpec()) }, "0: +[] -[] ~[] =3"},
		{"the same configuration", 4, func(p *pushed) *control.PushResult { return p.configure(p.caller, p.id, pushedConfig) }, "0: +[] -[] ~[] =2"},
		{"the same rollback", 6, func(p *pushed) *control.PushResult { return p.rollback(3) }, "0: +[] -[] ~[] =3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPushed(t, tc.revisions)
			p.wantNoRecords(p.caller.Account.ID, func() { p.want(tc.repeat(p), tc.want) })
		})
	}
}

// Guarantee: a dry run returns the difference and writes nothing. A route that it would add has no
// identifier; a route that it would change has its identifier.
func TestDryRun(t *testing.T) {
	t.Run("of a spec that adds routes", func(t *testing.T) {
		p := newPushed(t, 0)
		p.wantNoRecords(p.caller.Account.ID, func() {
			got := must[*control.PushResult](p.harness)(p.PushSpec(ctx(), p.caller, p.id, pushedSpec(), true, version(1)))
			p.want(got, "0: +[GET /b,GET /c] -[] ~[] =1")
			if got.Added[0].RouteID != "" {
				t.Errorf("got identifier %s of %s; want none", got.Added[0].RouteID, got.Added[0].Path)
			}
		})
	})
	t.Run("of a spec that changes a limit", func(t *testing.T) {
		p := newPushed(t, 2)
		p.setLimits()
		p.wantNoRecords(p.caller.Account.ID, func() {
			got := must[*control.PushResult](p.harness)(p.PushSpec(ctx(), p.caller, p.id, commentedSpec(), true, nil))
			p.want(got, "0: +[] -[] ~[GET /b] =2")
			if id := p.routes(p.caller, p.id)[1].ID; got.Changed[0].RouteID != id {
				t.Errorf("got changed route %+v; want %s", got.Changed[0], id)
			}
		})
	})
	t.Run("of an exported configuration", func(t *testing.T) {
		p := newPushed(t, 5)
		exported := must[[]byte](p.harness)(p.Configuration(ctx(), p.caller, p.id))
		p.wantNoRecords(p.caller.Account.ID, func() {
			p.want(must[*control.PushResult](p.harness)(p.PushConfiguration(ctx(), p.caller, p.id, exported, true, nil)), "0: +[] -[] ~[] =2")
		})
	})
}

// Guarantee: a route that is in the pushed spec keeps its identifier and limit, and then
// comes from the spec.
func TestPushedRouteKeepsItsIdentifierAndLimit(t *testing.T) {
	p := newPushed(t, 0)
	byHand := p.routes(p.caller, p.id)[0]
	p.revise(1)
	got := p.routes(p.caller, p.id)[0]
	if got.ID != byHand.ID || got.RateLimit.Sustained != rate(pushedLimit) || got.Source != gateway.Spec {
		t.Errorf("got route %+v; want %s with the limit %s from the spec", got, byHand.ID, pushedLimit)
	}
}

// Guarantee: a limit set through the API stays, unless the pushed spec has one.
func TestLimitOfTheSpecReplacesThatOfTheAPI(t *testing.T) {
	p := newPushed(t, 2)
	p.setLimits()
	p.wantLimits(pushedLimit, "8/s", "9/s")
	p.push(p.caller, p.id, commentedSpec())
	p.wantLimits(pushedLimit, "7/s", "9/s")
}

// Guarantee: GET of the spec returns the bytes of the last pushed spec, even if only a comment
// changed, and 404 if there is none or a configuration replaced it.
func TestSpecIsThatOfTheLastPush(t *testing.T) {
	p := newPushed(t, 0)
	p.wantNoSpec()
	p.revise(1)
	p.wantSpec(pushedSpec(), 1, gateway.API)
	p.revise(2)
	p.wantSpec(commentedSpec(), 2, gateway.CLI)
	p.revise(3)
	p.revise(4)
	p.wantNoSpec()
	p.revise(5)
	p.revise(6)
	p.wantSpec(commentedSpec(), 6, gateway.Rollback)
}

// Guarantee: a configuration replaces the routes and the settings in its section gateway.
func TestConfigurationReplacesSettings(t *testing.T) {
	p := newPushed(t, 4)
	got := must[*gateway.Gateway](p.harness)(p.Gateway(ctx(), p.caller, p.id))
	if got.Name != "shop" || got.GlobalLimit.Sustained != rate("6000/min") || got.Revision != 4 || got.Version != 5 {
		t.Errorf("got gateway %+v; want the name shop, the limit 6000/min, revision 4 and version 5", got)
	}
}

// Guarantee: a rollback restores the routes' limits and the gateway's settings of the
// revision. A revision that does not exist is not found.
func TestRollback(t *testing.T) {
	p := newPushed(t, 5)
	_, err := p.Rollback(ctx(), p.caller, p.id, 9, false, nil)
	p.wantCode(err, fault.NotFound, "")
	p.revise(6)
	p.wantLimits(pushedLimit, "7/s", "9/s")
	must[*gateway.Gateway](p.harness)(p.UpdateGateway(ctx(), p.caller, p.id, gateway.Patch{Name: value("other")}, nil))
	p.revise(7)
	if got := must[*gateway.Gateway](p.harness)(p.Gateway(ctx(), p.caller, p.id)); got.Name != "shop" {
		t.Errorf("got name %q after the rollback to a configuration; want shop", got.Name)
	}
}

// Guarantee: an invalid document, or an If-Match that does not match, changes nothing, and
// the error names the field.
func TestInvalidPushesAreRejected(t *testing.T) {
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
		t.Errorf("got gateway %+v; want revision 1 and version 2", got)
	}
}

// Guarantee: after a push, the routes are exactly the routes of the document, whatever they were
// before; a route in both keeps its identifier; the difference is correct; and a rollback restores
// the earlier routes.
func TestPushReplacesAllRoutes(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	document := rapid.Custom(func(t *rapid.T) map[string]string {
		doc := map[string]string{} // limits by path and methods
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
			before := identifiers(h.routes(caller, g.ID))
			previous := limitsOf(h.routes(caller, g.ID))
			got := h.configure(caller, g.ID, asConfig(doc, i))
			want := int64(0) // if nothing changes
			if fmt.Sprint(previous) != fmt.Sprint(doc) {
				revision++
				want = revision
				tables = append(tables, doc)
			}
			if got.Revision != want {
				rt.Fatalf("got revision %d; want %d", got.Revision, want)
			}
			h.wantTable(caller, g.ID, doc, before)
			wantDifference(rt, got, previous, doc)
		}
		if len(tables) == 0 {
			return
		}
		to := rapid.IntRange(1, len(tables)).Draw(rt, "rollback")
		before := identifiers(h.routes(caller, g.ID))
		must[*control.PushResult](h)(h.Rollback(ctx(), caller, g.ID, int64(to), false, nil))
		h.wantTable(caller, g.ID, tables[to-1], before)
	})
}

// wantTable compares the routes with doc, and the identifiers of those that are also in
// before.
func (h *harness) wantTable(c *control.Actor, gatewayID string, doc, before map[string]string) {
	h.tb.Helper()
	routes := h.routes(c, gatewayID)
	if got := limitsOf(routes); fmt.Sprint(got) != fmt.Sprint(doc) {
		h.tb.Fatalf("got routes %v; want %v", got, doc)
	}
	for name, id := range identifiers(routes) {
		if was, existed := before[name]; existed && was != id {
			h.tb.Fatalf("got identifier %s of %s; want %s", id, name, was)
		}
	}
}

func wantDifference(t *rapid.T, got *control.PushResult, before, after map[string]string) {
	added, removed, changed, unchanged := 0, 0, 0, 0
	for name, limit := range after {
		was, existed := before[name]
		switch {
		case !existed:
			added++
		case was != limit:
			changed++
		default:
			unchanged++
		}
	}
	for name := range before {
		if _, exists := after[name]; !exists {
			removed++
		}
	}
	if len(got.Added) != added || len(got.Removed) != removed || len(got.Changed) != changed || got.Unchanged != unchanged {
		t.Fatalf("got difference %s from %v to %v; want %d added, %d removed, %d changed, %d unchanged",
			show(got), before, after, added, removed, changed, unchanged)
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

// asConfig returns doc as a configuration file with its number in a comment.
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

func identifiers(routes []gateway.Route) map[string]string {
	m := map[string]string{}
	for _, r := range routes {
		m[nameOf(r)] = r.ID
	}
	return m
}

// Guarantee: contract 5, a limit set through the API stays when a later spec has none, even if it
// equals the limit in the earlier spec. Setting it then writes no record.
func TestLimitSetThroughTheAPIStays(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	h.push(caller, g.ID, spec("/a 7/s", "/b 7/s"))
	before := h.routes(caller, g.ID)
	h.wantNoRecords(caller.Account.ID, func() { h.limitByAPI(caller, g.ID, before[0].ID, "7/s") })
	if after := h.routes(caller, g.ID); after[0].Version != before[0].Version {
		t.Errorf("got version %d; want %d", after[0].Version, before[0].Version)
	}
	h.push(caller, g.ID, spec("/a", "/b"))
	for i, want := range []string{"7/s", ""} {
		if got := h.routes(caller, g.ID)[i].RateLimit.Sustained.String(); got != want {
			t.Errorf("got limit %q of route %d; want %q", got, i, want)
		}
	}
}

// Guarantee: a push, its dry run and a comparison say what changes about a route, so that a person
// notices when a route becomes public or loses its limit.
func TestPushSaysWhatChangesAboutARoute(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.create(caller)
	push := func(routes string, dryRun bool) *control.PushResult {
		t.Helper()
		return must[*control.PushResult](h)(h.PushConfiguration(ctx(), caller, g.ID, []byte("routes: ["+routes+"]"), dryRun, nil))
	}
	push("{path: /a, methods: [GET], rate_limit: {sustained: 5/s}}, {path: /b, methods: [GET]}", false)
	want := []control.SettingChange{
		{Field: "rate_limit", Before: map[string]string{"sustained": "5/s"}},
		{Field: "auth", Before: "key", After: "none"},
	}
	const after = "{path: /a, methods: [GET], auth: none}, {path: /b, methods: [GET]}"
	dry, done := push(after, true), push(after, false)
	compared := must[*control.PushResult](h)(h.CompareRevisions(ctx(), caller, g.ID, 1, 2))
	for name, got := range map[string]*control.PushResult{"dry run": dry, "push": done, "comparison": compared} {
		if len(got.Changed) != 1 || got.Changed[0].Path != "/a" || !reflect.DeepEqual(got.Changed[0].Changes, want) {
			t.Errorf("%s: got %+v, want /a with %v", name, got.Changed, want)
		}
	}
}
