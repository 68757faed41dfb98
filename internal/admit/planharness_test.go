package admit

import (
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
)

// plan stores a plan. Each limit is written as "name per rate" or "name per rate gateway route…".
func (h *harness) plan(name string, limits ...string) plan.Plan {
	h.t.Helper()
	p := plan.Plan{ID: id.New(id.Plan), AccountID: h.account.ID, Name: name, TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor}
	p.Limits = h.planLimits(limits...)
	h.source.PutPlan(p)
	h.catchUp()
	return p
}

// planLimits parses limits such as "a owner 5/day", "b owner quota:5/month" and, of requests in flight, "c key 5", perhaps with a gateway and its routes.
func (h *harness) planLimits(limits ...string) []plan.Limit {
	h.t.Helper()
	var in []plan.LimitInput
	for _, l := range limits {
		words := append(strings.Fields(l), "", "")
		rate := words[2]
		var concurrency *int64
		if n, err := strconv.ParseInt(rate, 10, 64); err == nil {
			rate, concurrency = "", &n
		}
		quota, isQuota := strings.CutPrefix(rate, "quota:")
		if isQuota {
			rate = ""
		} else {
			quota = ""
		}
		in = append(in, plan.LimitInput{Name: words[0], Per: words[1], Sustained: rate, Quota: quota, Concurrency: concurrency, GatewayID: words[3], Routes: slices.DeleteFunc(words[4:], func(s string) bool { return s == "" })})
	}
	parsed, err := plan.ParseLimits(in)
	if err != nil {
		h.t.Fatal(err)
	}
	return parsed
}

// owner stores an owner with a plan, or without one.
func (h *harness) owner(externalID, planID string) owner.Owner {
	h.t.Helper()
	o := owner.Owner{ID: id.New(id.Owner), AccountID: h.account.ID, ExternalID: externalID, State: owner.Active, PlanID: planID}
	h.source.PutOwner(o)
	h.catchUp()
	return o
}

// keyOf stores a key of an owner, which may be nil, with a plan, or without one.
func (h *harness) keyOf(o *owner.Owner, planID string) (apikey.Key, string) {
	h.t.Helper()
	return h.key(func(k *apikey.Key) {
		if k.PlanID = planID; o != nil {
			k.Owner, k.OwnerID = o.ExternalID, o.ID
		}
	})
}

// byDefault gives a gateway a default plan.
func byDefault(planID string) func(*gateway.Gateway) {
	return func(g *gateway.Gateway) { g.DefaultPlanID = planID }
}

// get decides a GET request with a key.
func (h *harness) get(target, secret string) *Verdict {
	h.t.Helper()
	return h.decide(Request{Target: target, Authorization: "Bearer " + secret})
}

// charged returns the labels of the limits of plans that v shows, in their order.
func charged(v *Verdict) string {
	var labels []string
	for i := range v.Charge.Shown() {
		if l := v.Charge.Status(i).Label; l != nil {
			labels = append(labels, l.String())
		}
	}
	return strings.Join(labels, " ")
}
