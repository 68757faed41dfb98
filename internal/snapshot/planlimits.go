package snapshot

import "github.com/keygate/keygate/internal/ratelimit"

// What AddPlanLimits returns if the limits cannot be counted, for the message of a 503.
const (
	NoRoomForPlan = "the plans of this account have as many keys and owners in use as this node can count: try again later, or use fewer"
	PlanUnusable  = "this node cannot use the newest form of the plan"
)

// plansFor returns the plans whose limits apply to the requests of c, which is not nobody, to g (contract, plans,
// section 3): the plan whose limits with per: owner apply, and the plan whose limits with per: key do. Either is nil if
// there is none.
func (g *Gateway) plansFor(c *Caller) (perOwner, perKey *compiledPlan) {
	byDefault := g.defaultPlan.load()
	if c.owner != nil {
		perOwner = c.owner.plan.Load().load()
	}
	if perOwner == nil {
		perOwner = byDefault
	}
	if perKey = c.rights.plan.load(); perKey == nil {
		perKey = perOwner // the owner's, else the gateway's
	}
	return perOwner, perKey
}

// load returns the plan in the slot, which may be nil.
func (s *planSlot) load() *compiledPlan {
	if s == nil {
		return nil
	}
	return s.plan.Load()
}

// AddPlanLimits adds to charge the limits of plans that apply to a request of c to the route of g. Without a route, r is
// nil, and limits that name routes are left out. needs is what the request is charged before it is forwarded. It returns the name of the first plan that there is of c, of its owner
// and of g, and "", or why some limit cannot be counted. It allocates only for the first request of a subject.
func (g *Gateway) AddPlanLimits(charge *ratelimit.Charge, c *Caller, r *Route, needs *ratelimit.Used) (plan, problem string) {
	if c == nil {
		return "", ""
	}
	perOwner, perKey := g.plansFor(c)
	fits := true
	if perOwner != nil {
		fits = addPlanLimits(charge, perOwner.perOwner, g, c, r, needs)
	}
	if perKey != nil {
		plan = perKey.name
		fits = addPlanLimits(charge, perKey.perKey, g, c, r, needs) && fits
	}
	switch {
	case perOwner != nil && perOwner.unusable || perKey != nil && perKey.unusable:
		return plan, PlanUnusable
	case !fits:
		return plan, NoRoomForPlan
	default:
		return plan, ""
	}
}

// takes returns what of a request to the route the limit counts, and how much of it is taken before the request is
// forwarded. ok is false if the request uses nothing of the limit's meter. r is nil if the route is not known.
func (l *planLimit) takes(r *Route, needs *ratelimit.Used) (use ratelimit.Use, amount int64, ok bool) {
	if l.most > 0 {
		return ratelimit.UseRequest, 1, true
	}
	if r != nil && r.cost != nil {
		rules := r.cost.Rules()
		if i := rules.Of(l.meter); i >= 0 {
			return ratelimit.UseCost + ratelimit.Use(i), rules[i].Reserve, true
		}
	}
	return l.use, needs[l.use], l.use != ratelimit.UseCost
}

// addPlanLimits adds those of limits that cover the route, as far as there is room for the buckets of c, and reports
// whether there is.
func addPlanLimits(charge *ratelimit.Charge, limits []planLimit, g *Gateway, c *Caller, r *Route, needs *ratelimit.Used) (fits bool) {
	fits = true
	for i := range limits {
		l := &limits[i]
		if !l.covers(g, r) {
			continue
		}
		use, amount, ok := l.takes(r, needs)
		if !ok {
			continue
		}
		limit, ok := l.of(c)
		if !ok {
			fits = false
			continue
		}
		if limit.Quota != nil {
			charge.AddQuota(limit, use, amount) // two plans may have a limit of what belongs to the same key
			continue
		}
		charge.AddUse(limit, use, amount)
	}
	return fits
}
