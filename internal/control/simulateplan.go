package control

import (
	"context"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/plan"
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
	result, err := s.replayPlan(ctx, actor, func(tx ReadTx) (traffic.PlanWhat, error) {
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
	out := simulationOf(&result.Simulated)
	out.Limits = make([]LimitSimulation, len(p.Limits))
	for i := range p.Limits {
		out.Limits[i] = LimitSimulation{Limit: p.Limits[i].Name, Refused: result.Limits[i].Refused, Unknown: result.Limits[i].Unknown}
	}
	return s.simulated(ctx, actor, out)
}

// replayPlan replays the recorded counts through the limits that find returns.
func (s *Service) replayPlan(ctx context.Context, actor *Actor, find func(tx ReadTx) (traffic.PlanWhat, error)) (*traffic.SimulatedPlan, error) {
	what, err := search(ctx, s, actor, find)
	if err != nil {
		return nil, err
	}
	if err := s.complete(ctx, actor, s.cfg.Sources.Traffic); err != nil {
		return nil, err
	}
	return s.cfg.Sources.Traffic.SimulatePlan(ctx, actor.Account.ID, what)
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
		var found foundRoutes
		found.look(&p.Limits[i], gatewayID, table)
		if w.Limits[i], err = trafficLimit(p, &p.Limits[i], &found); err != nil {
			return w, err
		}
	}
	w.Callers = s.callers(actor, "")
	w.Buckets, err = sharedBuckets(ctx, tx, actor)
	return w, err
}
