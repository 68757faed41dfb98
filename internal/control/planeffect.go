package control

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/traffic"
)

// PlanTrial is what an update of a plan would make of it.
type PlanTrial struct {
	ChangedPlan // as it would be, with the version that is in force
	before      *plan.Plan
}

// PlanEffect is what a change of a plan would have done to the requests of the last 24 hours: those of keys to which the
// plan applies today, by themselves, by their owner or as the default of their gateway.
type PlanEffect struct {
	Since    time.Time
	Requests int64 // to which a limit of the plan applies, before or after the change
	Keys     int64 // distinct ones
	// Refused is how many of the requests the changed limits refuse in a replay, RefusedBefore how many the limits in
	// force do. Both count each request once.
	Refused, RefusedBefore int64
	// Unknown is how many other requests may be of keys with the plan: those of keys beyond the first traffic.MaxPlanOwners.
	Unknown int64
	Limits  []PlanLimitEffect // of the changed plan in its order, then those that it no longer has
}

// PlanLimitEffect is the effect of a change of a plan by one of its limits. A request that several limits would have
// refused counts for the first of them.
type PlanLimitEffect struct {
	Limit  string // its name
	Change PlanLimitChange
	// Refused is how many requests the limit refuses after the change, RefusedBefore how many today's limit of the name does.
	Refused, RefusedBefore int64
	Unknown                int64 // as in LimitSimulation, after the change
}

// PlanLimitChange is what a change of a plan does to a limit.
type PlanLimitChange string

// The changes.
const (
	LimitAdded     PlanLimitChange = "added"
	LimitRemoved   PlanLimitChange = "removed"
	LimitChanged   PlanLimitChange = "changed"
	LimitUnchanged PlanLimitChange = "unchanged" // its requests may differ, because other limits come before it
)

// TryPlan returns what UpdatePlan would make of a plan, with the same errors, and changes nothing.
func (s *Service) TryPlan(ctx context.Context, actor *Actor, planID string, p PlanPatch, m Match) (*PlanTrial, error) {
	limits, invalid := p.check()
	return read(ctx, s, actor, func(tx ReadTx) (*PlanTrial, error) {
		before, after, err := p.of(ctx, tx, actor, planID, limits, invalid, m)
		if err != nil {
			return nil, err
		}
		if after.Name != before.Name {
			switch _, err := tx.PlanByName(ctx, actor.Account.ID, after.Name); {
			case err == nil:
				return nil, &fault.Error{Code: fault.Conflict, Field: "name", Message: "another record already has this name: choose a different one"}
			case fault.CodeOf(err) != fault.NotFound:
				return nil, err
			}
		}
		return &PlanTrial{*s.changedPlan(after), before}, nil
	})
}

// PlanEffect returns what the update of which t is the trial would have done to the requests of the last 24 hours. It
// replays the recorded counts through the limits of both sides, with the calendar of the plan. If there were too many
// keys, the error is fault.ValidationFailed with the field plan.
func (s *Service) PlanEffect(ctx context.Context, actor *Actor, t *PlanTrial) (*PlanEffect, error) {
	result, err := s.replayPlan(ctx, actor, func(tx ReadTx) (traffic.PlanWhat, error) { return s.planChange(ctx, tx, actor, t) })
	if err != nil {
		return nil, err
	}
	return planEffectOf(t, result), nil
}

// planChange returns the limits of both sides of a change, those in force first.
func (s *Service) planChange(ctx context.Context, tx ReadTx, actor *Actor, t *PlanTrial) (w traffic.PlanWhat, err error) {
	w.OnlyUsers, w.Defaults = true, map[[16]byte]bool{}
	limits := slices.Concat(t.before.Limits, t.Limits)
	named, wholeAccount := map[string]bool{}, false
	for i := range limits {
		l := &limits[i]
		if named[l.GatewayID] = true; l.GatewayID == "" && l.Meter == "" && !l.IsConcurrency() {
			wholeAccount = true // a route of any gateway may have a cost of requests
		}
	}
	found := make([]foundRoutes, len(limits))
	for g, err := range allGateways(ctx, tx, actor) {
		if err != nil {
			return w, err
		}
		if g.DefaultPlanID == t.ID {
			parsed, _ := id.Parse(id.Gateway, g.ID)
			w.Defaults[parsed] = true
		}
		if !named[g.ID] && !wholeAccount {
			continue
		}
		table, err := tx.RouteTable(ctx, g.ID) // no two at once: an account may have 500,000 routes
		if err != nil {
			return w, err
		}
		for i := range limits {
			found[i].look(&limits[i], g.ID, table)
		}
	}
	for i := range limits {
		side, p := traffic.Before, t.before
		if i >= len(t.before.Limits) {
			side, p = traffic.After, &t.Plan
		}
		l, err := trafficLimit(p, &limits[i], &found[i])
		if err != nil {
			return w, err
		}
		l.Side = side
		w.Limits = append(w.Limits, l)
	}
	w.Callers = s.callers(actor, t.ID)
	w.Buckets, err = sharedBuckets(ctx, tx, actor)
	return w, err
}

// allGateways calls yield for each gateway of the account.
func allGateways(ctx context.Context, tx GatewayReader, actor *Actor) func(yield func(*gateway.Gateway, error) bool) {
	const atOnce = 500
	return func(yield func(*gateway.Gateway, error) bool) {
		for after := ""; ; {
			page, err := tx.Gateways(ctx, actor.Account.ID, Page{Limit: atOnce, After: after})
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page {
				if !yield(&page[i], nil) {
					return
				}
			}
			if len(page) < atOnce {
				return
			}
			after = page[len(page)-1].ID
		}
	}
}

// foundRoutes is what the routes of gateways say about a limit.
type foundRoutes struct {
	costs   bool              // one that it applies to has a cost of the meter requests
	covered map[[16]byte]bool // those of its gateway that it applies to; nil for all
}

// look looks at the routes of a gateway.
func (f *foundRoutes) look(l *plan.Limit, gatewayID string, table []gateway.Route) {
	f.costs = f.costs || anyCosts(table, gatewayID, l)
	if l.GatewayID == gatewayID {
		f.covered = coveredRoutes(table, l)
	}
}

// trafficLimit returns a limit of a plan in the form that package traffic replays.
func trafficLimit(p *plan.Plan, l *plan.Limit, found *foundRoutes) (traffic.PlanLimit, error) {
	out := traffic.PlanLimit{Limit: l.Rate(), PerOwner: l.Per == plan.PerOwner, NotRequests: l.Meter != "" || l.IsConcurrency() || found.costs}
	if l.IsQuota() {
		c, err := p.Calendar(l.Quota.Unit, "", 0)
		if err != nil {
			return out, err
		}
		out.Quota = &traffic.QuotaLimit{Count: l.Quota.Count, Calendar: c, Allow: l.OverageOrDefault() == plan.OverageAllow}
	}
	if l.GatewayID == "" {
		return out, nil
	}
	out.Gateway, _ = id.Parse(id.Gateway, l.GatewayID)
	if out.Routes = found.covered; out.Routes == nil && len(l.Routes) > 0 { // the gateway has no routes, or there is none
		out.Routes = map[[16]byte]bool{}
	}
	return out, nil
}

// anyCosts reports whether a route that a limit applies to has a cost of the meter requests, which the recorded counts do not
// have.
func anyCosts(table []gateway.Route, gatewayID string, l *plan.Limit) bool {
	paths := plan.NewPaths(l.Routes)
	return (l.GatewayID == "" || l.GatewayID == gatewayID) && slices.ContainsFunc(table, func(r gateway.Route) bool {
		return r.Cost.Of(ratelimit.Requests) >= 0 && paths.Cover(r.Path)
	})
}

// coveredRoutes returns the routes of the limit's gateway that it applies to; nil for all.
func coveredRoutes(table []gateway.Route, l *plan.Limit) map[[16]byte]bool {
	if len(l.Routes) == 0 {
		return nil
	}
	covered, paths := map[[16]byte]bool{}, plan.NewPaths(l.Routes)
	for i := range table {
		if paths.Cover(table[i].Path) {
			route, _ := id.Parse(id.Route, table[i].ID)
			covered[route] = true
		}
	}
	return covered
}

// callers returns the function that says whose keys are, and whether the plan applies to them.
func (s *Service) callers(actor *Actor, planID string) func(context.Context, [][16]byte) (map[[16]byte]traffic.Caller, error) {
	return func(ctx context.Context, keys [][16]byte) (map[[16]byte]traffic.Caller, error) {
		return read(ctx, s, actor, func(tx ReadTx) (map[[16]byte]traffic.Caller, error) { return callersOf(ctx, tx, actor, keys, planID) })
	}
}

// callersOf returns whose keys are, without the keys that are not known.
func callersOf(ctx context.Context, tx ReadTx, actor *Actor, keys [][16]byte, planID string) (map[[16]byte]traffic.Caller, error) {
	callers, owners := make(map[[16]byte]traffic.Caller, len(keys)), map[string]*owner.Owner{}
	for _, key := range keys {
		k, err := tx.Key(ctx, actor.Account.ID, id.Format(id.Key, key))
		if fault.CodeOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		c := traffic.Caller{PerOwner: traffic.DefaultPlan, PerKey: useOf(k.PlanID, planID)}
		if k.OwnerID != "" {
			o := owners[k.OwnerID]
			if o == nil {
				switch o, err = tx.Owner(ctx, actor.Account.ID, k.OwnerID); {
				case fault.CodeOf(err) == fault.NotFound: // of a key that has ended
					o = &owner.Owner{}
				case err != nil:
					return nil, err
				}
				owners[k.OwnerID] = o
			}
			c.Owner, _ = id.Parse(id.Owner, k.OwnerID)
			c.PerOwner = useOf(o.PlanID, planID)
			c.PerKey = useOf(cmp.Or(k.PlanID, o.PlanID), planID)
		}
		callers[key] = c
	}
	return callers, nil
}

// useOf returns whether a plan applies to whom or what has another one; "" for none.
func useOf(has, planID string) traffic.PlanUse {
	switch has {
	case "":
		return traffic.DefaultPlan
	case planID:
		return traffic.ThisPlan
	}
	return traffic.OtherPlan
}

// planEffectOf joins the limits of both sides by their names.
func planEffectOf(t *PlanTrial, r *traffic.SimulatedPlan) *PlanEffect {
	e := &PlanEffect{Since: r.Since, Requests: r.Requests, Keys: r.Users, Unknown: r.Unknown}
	old, before := map[string]int{}, t.before.Limits
	for i := range before {
		old[before[i].Name] = i
		e.RefusedBefore += r.Limits[i].Refused
	}
	for i := range t.Limits {
		l, n := &t.Limits[i], r.Limits[len(before)+i]
		one := PlanLimitEffect{Limit: l.Name, Change: LimitAdded, Refused: n.Refused, Unknown: n.Unknown}
		if was, there := old[l.Name]; there {
			if one.RefusedBefore, one.Change = r.Limits[was].Refused, LimitUnchanged; !l.Equal(&before[was]) || l.IsQuota() && !sameCalendar(&t.Plan, t.before) {
				one.Change = LimitChanged
			}
			delete(old, l.Name)
		}
		e.Refused += n.Refused
		e.Limits = append(e.Limits, one)
	}
	for _, i := range slices.Sorted(maps.Values(old)) {
		e.Limits = append(e.Limits, PlanLimitEffect{Limit: before[i].Name, Change: LimitRemoved, RefusedBefore: r.Limits[i].Refused})
	}
	return e
}

func sameCalendar(a, b *plan.Plan) bool {
	return a.TimeZone == b.TimeZone && a.AnchorDay == b.AnchorDay
}
