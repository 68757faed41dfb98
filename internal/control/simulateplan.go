package control

import (
	"context"
	"slices"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/traffic"
)

// LimitSimulation is what one limit of a plan would have done. A request that several limits would have refused counts
// for the first of them.
type LimitSimulation struct {
	Limit   string // its name
	Refused int64
	// Unknown is the number of requests of which it is not known whether the limit would have refused them. With per owner,
	// these are those of keys beyond the first traffic.MaxPlanOwners that used the gateway. Of a quota, they are those that
	// it admits in a window that began before the last 24 hours, since what was used of it before is not known. Of a limit of
	// requests in flight, they are all.
	Unknown int64
}

// SimulatePlan replays the recorded counts of the last 24 hours through the limits of a plan, as if every key and owner
// had it, with the calendar of the plan. Requests without a key have no plan.
func (s *Service) SimulatePlan(ctx context.Context, actor *Actor, gatewayID string, in PlanInput) (*Simulation, error) {
	if in.Name == "" {
		in.Name = "simulated"
	}
	p, invalid := in.plan()
	invalid = fault.Prefixed("plan", invalid)
	limitsOf := func(tx ReadTx) error { return fault.Prefixed("plan", checkGatewaysOfLimits(ctx, tx, actor, p.Limits)) }
	if onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, invalid, limitsOf)
	}
	what, err := search(ctx, s, actor, func(tx ReadTx) (traffic.PlanWhat, error) {
		w := traffic.PlanWhat{}
		if err := fault.Join(invalid, limitsOf(tx)); err != nil {
			return w, err
		}
		if _, err := tx.Gateway(ctx, actor.Account.ID, gatewayID); err != nil {
			return w, err
		}
		return s.planWhat(ctx, tx, actor, gatewayID, &p)
	})
	if err != nil {
		return nil, err
	}
	if err := s.complete(ctx, actor, s.cfg.Sources.Traffic); err != nil {
		return nil, err
	}
	result, err := s.cfg.Sources.Traffic.SimulatePlan(ctx, actor.Account.ID, what)
	if err != nil {
		return nil, err
	}
	out := simulationOf(&result.Simulated)
	out.Limits = make([]LimitSimulation, len(p.Limits))
	for i := range p.Limits {
		out.Limits[i] = LimitSimulation{Limit: p.Limits[i].Name, Refused: result.Limits[i].Refused, Unknown: result.Limits[i].Unknown}
	}
	return s.simulated(ctx, actor, out)
}

// planWhat returns the limits of a plan to simulate on a gateway.
func (s *Service) planWhat(ctx context.Context, tx ReadTx, actor *Actor, gatewayID string, p *plan.Plan) (w traffic.PlanWhat, err error) {
	w.Gateway, _ = id.Parse(id.Gateway, gatewayID)
	w.Limits = make([]traffic.PlanLimit, len(p.Limits))
	table, err := tx.RouteTable(ctx, gatewayID)
	if err != nil {
		return w, err
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		w.Limits[i] = traffic.PlanLimit{Limit: l.Rate(), PerOwner: l.Per == plan.PerOwner, NotRequests: l.Meter != "" || l.IsConcurrency() || anyCosts(table, gatewayID, l)}
		if l.IsQuota() {
			c, err := p.Calendar(l.Quota.Unit, "", 0)
			if err != nil {
				return w, err
			}
			w.Limits[i].Quota = &traffic.QuotaLimit{Count: l.Quota.Count, Calendar: c, Allow: l.OverageOrDefault() == plan.OverageAllow}
		}
		w.Limits[i].Routes = coveredRoutes(table, gatewayID, l)
	}
	w.Owners = func(ctx context.Context, keys [][16]byte) (map[[16]byte][16]byte, error) {
		return read(ctx, s, actor, func(tx ReadTx) (map[[16]byte][16]byte, error) { return ownersOf(ctx, tx, actor, keys) })
	}
	w.Buckets, err = sharedBuckets(ctx, tx, actor)
	return w, err
}

// coveredRoutes returns the routes of a gateway that a limit applies to; nil for all.
func coveredRoutes(table []gateway.Route, gatewayID string, l *plan.Limit) map[[16]byte]bool {
	covered := map[[16]byte]bool{}
	switch {
	case l.GatewayID == "":
		return nil
	case l.GatewayID != gatewayID:
		return covered
	case len(l.Routes) == 0:
		return nil
	}
	for i := range table {
		if l.Covers(gatewayID, table[i].Path) {
			route, _ := id.Parse(id.Route, table[i].ID)
			covered[route] = true
		}
	}
	return covered
}

// anyCosts reports whether a route that a limit applies to has a cost of the meter requests, which the recorded counts do not
// have.
func anyCosts(table []gateway.Route, gatewayID string, l *plan.Limit) bool {
	paths := plan.NewPaths(l.Routes)
	return (l.GatewayID == "" || l.GatewayID == gatewayID) && slices.ContainsFunc(table, func(r gateway.Route) bool {
		return r.Cost.Of(ratelimit.Requests) >= 0 && paths.Cover(r.Path)
	})
}

// ownersOf returns the owners of keys, without keys whose owner is not known.
func ownersOf(ctx context.Context, tx KeyReader, actor *Actor, keys [][16]byte) (map[[16]byte][16]byte, error) {
	owners := make(map[[16]byte][16]byte, len(keys))
	for _, key := range keys {
		k, err := tx.Key(ctx, actor.Account.ID, id.Format(id.Key, key))
		if fault.CodeOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		owners[key], _ = id.Parse(id.Owner, k.OwnerID)
	}
	return owners, nil
}
