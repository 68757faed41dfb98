package control_test

import (
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/plan"
)

// Guarantee: a dry run of a plan's update says what each limit would have refused before and after it, of the requests of
// keys that have the plan themselves, by their owner or as the default of a gateway, and of no others. It changes nothing.
func TestEffectOfAPlan(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	p, other := h.plan(c, planOf("pro", "5/day", "100/day")), h.plan(c, planOf("other"))
	gatewayID := h.gateway(c).ID
	h.must(second(h.UpdateGateway(ctx(), c, gatewayID, gateway.Patch{DefaultPlan: text("pro")}, nil)))
	orders, reports := h.route(c, gatewayID, "/orders/{id}", "GET"), h.route(c, gatewayID, "/reports", "GET")
	h.must(second(h.CreateOwner(ctx(), c, control.OwnerInput{ExternalID: "o", Plan: control.ChoosePlan(p.ID, "")})))
	h.must(second(h.CreateOwner(ctx(), c, control.OwnerInput{ExternalID: "elsewhere", Plan: control.ChoosePlan(other.ID, "")})))
	data := h.withPlane(c.Account.ID, gatewayID, nil)
	for _, in := range []control.KeyInput{
		{Owner: "o"}, {Owner: "o"}, {Plan: control.ChoosePlan(p.ID, "")}, {}, // by the owner, by themselves, by the gateway
		{Owner: "elsewhere"}, {Owner: "o", Plan: control.ChoosePlan(other.ID, "")},
	} {
		in.Name, in.Scope = "k", "read"
		k := must[*control.NewKey](h)(h.CreateKey(ctx(), c, in))
		for range 3 {
			data.end(orders.ID, k.ID, accesslog.Forwarded, 200)
			data.end(reports.ID, k.ID, accesslog.Forwarded, 200)
		}
	}
	before := h.records(c.Account.ID)
	trial := must[*control.PlanTrial](h)(h.TryPlan(ctx(), c, p.ID, control.PlanPatch{Limits: value([]plan.LimitInput{
		{Name: "l0", Sustained: "4/day", GatewayID: gatewayID, Routes: []string{"/reports"}}, // of each 6 are 3 on it
		{Name: "together", Sustained: "20/day", Per: "owner"},                                // of the owner's key with another plan, and of its others, 18
		{Name: "l1", Sustained: "100/day"}, {Name: "tokens", Quota: "9/day", Meter: "tokens"},
	})}, nil))
	e := must[*control.PlanEffect](h)(h.PlanEffect(ctx(), c, trial))
	want := []control.PlanLimitEffect{
		{Limit: "l0", Change: control.LimitChanged, RefusedBefore: 4}, {Limit: "together", Change: control.LimitAdded},
		{Limit: "l1", Change: control.LimitUnchanged}, {Limit: "tokens", Change: control.LimitAdded, Unknown: 24},
	}
	if !slices.Equal(e.Limits, want) || e.Requests != 30 || e.Keys != 5 || e.RefusedBefore != 4 || e.Refused != 0 || e.Unknown != 0 {
		t.Errorf("got %+v, want %+v of 30 requests of 5 keys", e, want)
	}
	if audits, _, changes := h.records(c.Account.ID).since(before).summary(); len(audits)+len(changes) > 0 {
		t.Errorf("a dry run wrote %q and %q", audits, changes)
	}
	_, err := h.TryPlan(ctx(), c, p.ID, control.PlanPatch{Name: value("other")}, nil)
	h.wantCode(err, fault.Conflict, "name")
	_, err = h.TryPlan(ctx(), c, p.ID, control.PlanPatch{TimeZone: value("Mars")}, nil)
	h.wantCode(err, fault.ValidationFailed, "time_zone")
	_, err = h.TryPlan(ctx(), c, p.ID, control.PlanPatch{}, func(int64) bool { return false })
	h.wantCode(err, fault.PreconditionFailed, "")
}
