package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
)

// planOf returns a plan with one limit per key for each of the rates.
func planOf(name string, rates ...string) control.PlanInput {
	in := control.PlanInput{Name: name}
	for i, r := range rates {
		in.Limits = append(in.Limits, plan.LimitInput{Name: fmt.Sprintf("l%d", i), Sustained: r})
	}
	return in
}

// planOn returns a plan whose limit is for these routes of a gateway.
func planOn(name, gatewayID string, routes ...string) control.PlanInput {
	in := planOf(name, "1/s")
	in.Limits[0].GatewayID, in.Limits[0].Routes = gatewayID, routes
	return in
}

func (h *harness) plan(c *control.Actor, in control.PlanInput) *control.ChangedPlan {
	h.tb.Helper()
	return must[*control.ChangedPlan](h)(h.CreatePlan(ctx(), c, in))
}

// Guarantee: each change of a plan writes one audit record and one entry of the change log, and one that changes nothing
// writes neither.
func TestPlanLife(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	before := h.records(c.Account.ID)
	p := h.plan(c, planOf("free", "600/min"))
	if audits, _, changes := h.records(c.Account.ID).since(before).summary(); !slices.Equal(audits, []string{"plan.create " + p.ID}) || !slices.Equal(changes, []string{"plan " + p.ID}) {
		t.Errorf("got the audit records %q and the changes %q", audits, changes)
	}
	if p.TimeZone != "UTC" || p.AnchorDay != 1 || p.Version != 1 || p.Limits[0].Per != plan.PerKey {
		t.Errorf("got %+v, want the defaults", p)
	}
	change := func(patch control.PlanPatch) func() {
		return func() { p = must[*control.ChangedPlan](h)(h.UpdatePlan(ctx(), c, p.ID, patch, nil)) }
	}
	audited, changed := []string{"plan.update " + p.ID}, []string{"plan " + p.ID}
	h.wantRecords(c.Account.ID, change(control.PlanPatch{Title: value("Free"), TimeZone: value("Europe/Berlin"), AnchorDay: value(15)}), audited, nil, changed)
	h.wantRecords(c.Account.ID, change(control.PlanPatch{Limits: value(planOf("", "1/s", "2/s").Limits)}), audited, nil, changed)
	h.wantNoRecords(c.Account.ID, change(control.PlanPatch{Title: value("Free"), Limits: value(planOf("", "1/s", "2/s").Limits)}))
	if p.Version != 3 || p.Title != "Free" || len(p.Limits) != 2 {
		t.Errorf("got %+v, want two limits at version 3", p)
	}
	h.wantRecords(c.Account.ID, change(control.PlanPatch{Title: null[string](), TimeZone: null[string](), AnchorDay: null[int](), Limits: null[[]plan.LimitInput]()}), audited, nil, changed)
	if p.Title != "" || p.TimeZone != "UTC" || p.AnchorDay != 1 || len(p.Limits) != 0 {
		t.Errorf("got %+v, want the defaults again", p)
	}
	_, err := h.UpdatePlan(ctx(), c, p.ID, control.PlanPatch{Title: value("x")}, func(version int64) bool { return version == 1 })
	h.wantCode(err, fault.PreconditionFailed, "")
	h.wantRecords(c.Account.ID, func() { h.must(second(h.DeletePlan(ctx(), c, p.ID, nil))) }, []string{"plan.delete " + p.ID}, nil, changed)
	_, err = h.DeletePlan(ctx(), c, p.ID, nil)
	h.wantCode(err, fault.NotFound, "")
}

// Guarantee: what is wrong with a plan is said at its field, and everything at once.
func TestInvalidPlans(t *testing.T) {
	h := newHarness(t)
	c, other := h.caller("acme", "admin"), h.caller("other", "admin")
	theirs := h.gateway(other)
	h.plan(c, planOf("taken"))
	for field, in := range map[string]control.PlanInput{
		"name": planOf("Free"), "limits[0].sustained": planOf("a", "x"), "limits": planOf("a", slices.Repeat([]string{"1/s"}, 9)...),
		"limits[0].gateway_id": planOn("a", theirs.ID), "limits[0].routes": planOn("a", "", "/a"),
		"time_zone": {Name: "a", TimeZone: "Mars"}, "anchor_day": {Name: "a", AnchorDay: 29}, "title": {Name: "a", Title: "\u202e"},
	} {
		_, err := h.CreatePlan(ctx(), c, in)
		h.wantCode(err, fault.ValidationFailed, field)
	}
	for field, p := range map[string]control.PlanPatch{
		"name": {Name: null[string]()}, "limits[0].sustained": {Limits: value(planOf("", "x").Limits)}, "limits[0].gateway_id": {Limits: value(planOn("", theirs.ID).Limits)},
		"time_zone": {TimeZone: value("Mars")}, "anchor_day": {AnchorDay: value(0)},
	} {
		_, err := h.UpdatePlan(ctx(), c, "plan_x", p, nil) // before the 404
		h.wantCode(err, fault.ValidationFailed, field)
	}
	_, err := h.CreatePlan(ctx(), c, control.PlanInput{Name: "A", TimeZone: "Mars", Limits: []plan.LimitInput{{Name: "b", Sustained: "1/s", GatewayID: "gw_x"}, {Name: "B"}}})
	if len(fault.ProblemsOf(err)) < 4 {
		t.Errorf("got the problems %v, want those of name, time_zone and both limits", fault.ProblemsOf(err))
	}
	_, err = h.CreatePlan(ctx(), c, planOf("taken"))
	h.wantCode(err, fault.Conflict, "name")
	free := h.plan(c, planOf("free"))
	_, err = h.UpdatePlan(ctx(), c, free.ID, control.PlanPatch{Name: value("taken")}, nil)
	h.wantCode(err, fault.Conflict, "name")
	h.plan(other, planOf("taken"))
}

// Guarantee: a plan that somebody has cannot be deleted, and the error says who.
func TestPlansInUseStay(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	p := h.plan(c, planOf("free"))
	g := h.gateway(c)
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Plan: control.ChoosePlan("", "free")}))
	o := must[*owner.Owner](h)(h.CreateOwner(ctx(), c, control.OwnerInput{ExternalID: "o", Plan: control.ChoosePlan(p.ID, "")}))
	h.must(second(h.UpdateGateway(ctx(), c, g.ID, gateway.Patch{DefaultPlan: text("free")}, nil)))
	h.must(second(h.UpdateOwnAccount(ctx(), c, control.OwnAccountPatch{DefaultPlan: control.ChoosePlan(p.ID, "")}, nil)))
	for _, step := range []struct {
		says    string
		release func() error
	}{
		{"1 key that is not revoked has it", func() error { return second(h.RevokeKey(ctx(), c, k.ID, nil)) }},
		{"1 owner has it", func() error {
			return second(h.UpdateOwner(ctx(), c, o.ID, control.OwnerPatch{Plan: control.PlanChoice{Name: null[string]()}}, nil))
		}},
		{"1 gateway has it as its default", func() error {
			return second(h.UpdateGateway(ctx(), c, g.ID, gateway.Patch{DefaultPlan: null[string]()}, nil))
		}},
		{"it is the default of the account", func() error {
			return second(h.UpdateOwnAccount(ctx(), c, control.OwnAccountPatch{DefaultPlan: control.PlanChoice{ID: null[string]()}}, nil))
		}},
	} {
		_, err := h.DeletePlan(ctx(), c, p.ID, nil)
		h.wantCode(err, fault.Conflict, "")
		if !strings.Contains(fault.MessageOf(err), step.says) {
			t.Errorf("got %q, want it to say %q", fault.MessageOf(err), step.says)
		}
		h.must(step.release())
	}
	h.must(second(h.DeletePlan(ctx(), c, p.ID, nil)))

	// What has ended had the plan, and is still shown.
	h.must(second(h.DeleteOwner(ctx(), c, o.ID, nil)))
	shown := must[*apikey.Key](h)(h.Key(ctx(), c, k.ID))
	if shown.Plan != "" || len(must[[]apikey.Key](h)(h.Keys(ctx(), c, control.KeyFilter{}, control.Page{Limit: 10}))) == 0 {
		t.Errorf("got the plan %q, want none, and a list with the key", shown.Plan)
	}
	h.must(second(h.RevokeKey(ctx(), c, k.ID, nil)))
	h.must(second(h.KeyUsage(ctx(), c, k.ID)))
}

// Guarantee: keys and owners have the plan that their request names by its identifier or its name, and null removes it;
// both together, a plan that does not exist, and a plan of an account-level key are refused at their field.
func TestChoosingPlans(t *testing.T) {
	h := newHarness(t)
	c, other := h.caller("acme", "admin"), h.caller("other", "admin")
	free, gold, theirs := h.plan(c, planOf("free")), h.plan(c, planOf("gold")), h.plan(other, planOf("theirs"))
	create := func(choice control.PlanChoice, level string) (*control.NewKey, error) {
		return h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Level: level, Plan: choice})
	}
	k := must[*control.NewKey](h)(create(control.ChoosePlan("", "free"), ""))
	if k.PlanID != free.ID || k.Plan != "free" {
		t.Errorf("got the plan %s %s, want free", k.PlanID, k.Plan)
	}
	changed := must[*apikey.Key](h)(h.UpdateKey(ctx(), c, k.ID, control.KeyPatch{Plan: control.ChoosePlan(gold.ID, "")}, nil))
	next := must[*control.NewKey](h)(h.RotateKey(ctx(), c, k.ID, 1, "", nil))
	listed := must[[]apikey.Key](h)(h.KeysOfPlan(ctx(), c, gold.ID, control.Page{Limit: 10}))
	if changed.Plan != "gold" || next.PlanID != gold.ID || next.Plan != "gold" || len(listed) != 2 || listed[0].ID != next.ID || listed[0].Plan != "gold" {
		t.Errorf("got %+v, %+v and %+v, want the key and its successor on the plan gold", changed, next, listed)
	}
	for _, test := range []struct {
		choice control.PlanChoice
		level  string
		field  string
	}{
		{control.ChoosePlan(free.ID, "free"), "", "plan"}, {control.ChoosePlan(theirs.ID, ""), "", "plan_id"}, {control.ChoosePlan("", "theirs"), "", "plan"},
		{control.ChoosePlan(free.ID, ""), "account", "plan_id"}, {control.ChoosePlan("", "free"), "account", "plan"},
	} {
		_, err := create(test.choice, test.level)
		h.wantCode(err, fault.ValidationFailed, test.field)
		_, err = h.CreateKey(control.OnlyCheck(ctx()), c, control.KeyInput{Name: "k", Scope: "read", Level: test.level, Plan: test.choice})
		h.wantCode(err, fault.ValidationFailed, test.field)
		if test.level == "" {
			_, err = h.UpdateKey(ctx(), c, "key_x", control.KeyPatch{Plan: test.choice}, nil) // before the 404
			h.wantCode(err, fault.ValidationFailed, test.field)
			_, err = h.CreateOwner(ctx(), c, control.OwnerInput{ExternalID: "o", Plan: test.choice})
			h.wantCode(err, fault.ValidationFailed, test.field)
			_, err = h.UpdateOwner(ctx(), c, "own_x", control.OwnerPatch{Plan: test.choice}, nil)
			h.wantCode(err, fault.ValidationFailed, test.field)
			_, err = h.UpdateOwnAccount(ctx(), c, control.OwnAccountPatch{DefaultPlan: test.choice}, nil)
			h.wantCode(err, fault.ValidationFailed, "default_"+test.field)
		}
	}
	_, err := h.UpdateKey(ctx(), c, c.KeyID, control.KeyPatch{Plan: control.ChoosePlan(free.ID, "")}, nil)
	h.wantCode(err, fault.ValidationFailed, "plan_id")
	changed = must[*apikey.Key](h)(h.UpdateKey(ctx(), c, next.ID, control.KeyPatch{Plan: control.PlanChoice{Name: null[string]()}}, nil))
	if changed.PlanID != "" || changed.Plan != "" {
		t.Errorf("got the plan %q, want none", changed.Plan)
	}
}

// Guarantee: a gateway's default plan is named in its settings, in pushed files and in rollbacks; a name that no plan has
// is refused at its field and changes nothing; and an export has the name of the present.
func TestDefaultPlanOfGateways(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	free := h.plan(c, planOf("free"))
	file := func(name string) []byte { return []byte("gateway: {default_plan: " + name + "}\nroutes: []\n") }
	g := must[*gateway.Gateway](h)(h.CreateGatewayFrom(ctx(), c, control.NewGateway{Settings: newGateway("https://h"), Config: string(file("free"))}))
	if g.DefaultPlanID != free.ID || g.DefaultPlan != "free" {
		t.Errorf("got the default plan %q, want free", g.DefaultPlan)
	}
	h.must(second(h.UpdatePlan(ctx(), c, free.ID, control.PlanPatch{Name: value("starter")}, nil)))
	if content := must[[]byte](h)(h.Configuration(ctx(), c, g.ID)); !strings.Contains(string(content), "default_plan: starter") {
		t.Errorf("got the export %s, want the plan's new name", content)
	}
	h.must(second(h.PushConfiguration(ctx(), c, g.ID, file("null"), false, nil)))
	if got := must[*gateway.Gateway](h)(h.Gateway(ctx(), c, g.ID)); got.DefaultPlanID != "" {
		t.Errorf("got the default plan %q, want none", got.DefaultPlan)
	}
	_, err := h.CreateGatewayFrom(ctx(), c, control.NewGateway{Settings: newGateway("https://i"), Config: string(file("none"))})
	h.wantCode(err, fault.ValidationFailed, "config.gateway.default_plan")
	h.wantNoRecords(c.Account.ID, func() {
		_, err := h.PushConfiguration(ctx(), c, g.ID, file("none"), false, nil)
		h.wantCode(err, fault.ValidationFailed, "gateway.default_plan")
		_, err = h.UpdateGateway(ctx(), c, g.ID, gateway.Patch{DefaultPlan: text("none")}, nil)
		h.wantCode(err, fault.ValidationFailed, "default_plan")
		_, err = h.Rollback(ctx(), c, g.ID, 1, false, nil) // its name was free
		h.wantCode(err, fault.ValidationFailed, "gateway.default_plan")
		if !strings.Contains(fault.MessageOf(err), `"free"`) {
			t.Errorf("got %q, want the name of the plan", fault.MessageOf(err))
		}
	})
	h.must(second(h.UpdatePlan(ctx(), c, free.ID, control.PlanPatch{Name: value("free")}, nil)))
	h.must(second(h.Rollback(ctx(), c, g.ID, 1, false, nil)))
	if list := must[[]gateway.Gateway](h)(h.Gateways(ctx(), c, control.GatewayFilter{}, control.Page{Limit: 5})); list[0].DefaultPlan != "free" {
		t.Errorf("got the default plan %q, want free", list[0].DefaultPlan)
	}
}

// Guarantee: a push that leaves a route of a plan's limit without a route of the gateway warns and names it.
func TestPushesWarnOfUnmatchedRoutesOfPlans(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	g, other := h.gateway(c), h.gateway(c)
	h.plan(c, planOn("free", g.ID, "/orders", "/v1/*", "/{id}"))
	h.plan(c, planOn("gold", other.ID, "/elsewhere"))
	for _, test := range []struct {
		paths []string
		want  string
	}{
		{[]string{"/orders", "/v1/a/b", "/{id}"}, ""},
		{[]string{"/v1", "/{other}"}, "/orders of the limit free.l0"}, // the names of parameters do not matter
		{[]string{"/v1/*"}, "/orders of the limit free.l0, /{id} of the limit free.l0"},
		{[]string{"/orders", "/{id}", "/v10"}, "/v1/* of the limit free.l0"},
	} {
		r := must[*control.PushResult](h)(h.PushSpec(ctx(), c, g.ID, spec(test.paths...), true, nil))
		if got := strings.Join(r.Warnings, "\n"); (test.want != "") != strings.Contains(got, "no route of the gateway matches these routes of plans") || !strings.HasSuffix(got, test.want) {
			t.Errorf("%v: got the warnings %q, want them to name %q", test.paths, got, test.want)
		}
	}
}

// Guarantee: the simulation of a plan applies its limits to what was recorded, on their gateway and routes and by the owners
// of keys, and says what is wrong with the plan at its field.
func TestSimulatePlan(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	g, other := h.gateway(c), h.gateway(c)
	orders, reports := h.route(c, g.ID, "/orders/{id}", "GET"), h.route(c, g.ID, "/reports", "GET")
	first := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Owner: "o"}))
	second := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Owner: "o"}))
	data := h.withPlane(c.Account.ID, g.ID, nil)
	for range 3 {
		for _, k := range []string{first.ID, second.ID, ""} {
			data.end(orders.ID, k, accesslog.Forwarded, 200)
			data.end(reports.ID, k, accesslog.Forwarded, 200)
		}
	}
	in := control.PlanInput{Limits: []plan.LimitInput{
		{Name: "elsewhere", Sustained: "1/day", GatewayID: other.ID}, {Name: "orders", Sustained: "2/day", GatewayID: g.ID, Routes: []string{"/orders/*"}},
		{Name: "together", Sustained: "9/day", Per: "owner"},
	}}
	s := must[*control.Simulation](h)(h.SimulatePlan(ctx(), c, g.ID, in))
	want := []control.LimitSimulation{{Limit: "elsewhere"}, {Limit: "orders", Refused: 2}, {Limit: "together", Refused: 1}}
	if !slices.Equal(s.Limits, want) || s.Requests != 12 || s.Refused != 3 {
		t.Errorf("got %+v; want %+v of 12 requests", s, want)
	}
	// What a limit of another meter, or of routes with a cost of requests, would do is not known.
	must[*gateway.Route](h)(h.UpdateRoute(ctx(), c, g.ID, reports.ID, control.RoutePatch{Cost: value(rulesOf(t, "[{meter: requests, from: {request: 2}}, {meter: tokens, from: {request: 1}}]"))}, nil))
	units := control.PlanInput{Limits: []plan.LimitInput{
		{Name: "tokens", Quota: "1/day", Meter: "tokens"}, {Name: "orders", Sustained: "2/day", GatewayID: g.ID, Routes: []string{"/orders/*"}},
		{Name: "reports", Sustained: "2/day", GatewayID: g.ID, Routes: []string{"/reports"}}, {Name: "all", Sustained: "2/day"},
		{Name: "parallel", Concurrency: new(int64(1)), GatewayID: g.ID, Routes: []string{"/orders/*"}},
	}}
	s = must[*control.Simulation](h)(h.SimulatePlan(ctx(), c, g.ID, units))
	want = []control.LimitSimulation{{Limit: "tokens", Unknown: 12}, {Limit: "orders", Refused: 2}, {Limit: "reports", Unknown: 6}, {Limit: "all", Unknown: 10}, {Limit: "parallel", Unknown: 4}}
	if !slices.Equal(s.Limits, want) {
		t.Errorf("got %+v; want %+v", s.Limits, want)
	}
	for field, in := range map[string]control.PlanInput{
		"plan.limits[0].sustained": planOf("", "x"), "plan.limits[0].gateway_id": planOn("", "gw_x"), "plan.time_zone": {TimeZone: "Mars"},
	} {
		_, err := h.SimulatePlan(ctx(), c, "gw_x", in)
		h.wantCode(err, fault.ValidationFailed, field)
	}
	_, err := h.SimulatePlan(ctx(), c, "gw_x", in)
	h.wantCode(err, fault.NotFound, "")
}
