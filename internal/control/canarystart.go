package control

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/traffic"
)

// CanaryInput is what a canary is started with (targets.md, section 8). Fields that are absent, or nil, get their defaults.
type CanaryInput struct {
	Upstream    string
	Routes      []string          // identifiers; nil for all of the gateway that do not name Upstream
	Steps       []gateway.Percent // nil for 1, 5, 25 and 50 %; a negative one is not a percentage with at most two decimals
	Hold        string            // a Go duration; "" for 10m
	Abort       *CanaryAbort      // nil for errors of more than one percentage point
	MinRequests *int64            // nil for 1,000
	WhenDone    string            // promote or hold; "" for hold
}

// CanaryAbort says when a canary is aborted. One of both is given.
type CanaryAbort struct {
	Errors  *float64 // errors.more_than, in percentage points
	Latency *float64 // latency.p95_ratio
}

// The defaults of a canary, and the values of when_done.
const (
	defaultHold        = "10m"
	defaultMoreThan    = 1.0
	defaultMinRequests = 1_000

	whenDoneHold    = "hold"
	whenDonePromote = "promote"
)

// StartedCanary is a new canary.
type StartedCanary struct {
	canary.Canary
	Warnings []string
}

// plan checks each field by itself, and returns the plan without the routes.
func (in *CanaryInput) plan() (canary.Plan, error) {
	p := canary.Plan{Upstream: in.Upstream, Steps: in.Steps, Hold: cmp.Or(in.Hold, defaultHold), MinRequests: defaultMinRequests, Promote: in.WhenDone == whenDonePromote}
	if p.Steps == nil {
		p.Steps = []gateway.Percent{1_00, 5_00, 25_00, 50_00}
	}
	var badUpstream, badHold, badLeast, badDone error
	if gateway.CheckUpstreamName(p.Upstream) != nil {
		badUpstream = fault.Invalid("upstream", "must be the name of an upstream of the gateway, which the canary sends requests to")
	}
	if hold, err := time.ParseDuration(p.Hold); err != nil || hold < canary.MinHold || hold > canary.MaxHold {
		badHold = fault.Invalid("hold", "must be a duration of 1m to 24h, such as 10m")
	}
	if in.MinRequests != nil {
		if *in.MinRequests < 1 || *in.MinRequests > canary.MaxMinRequests {
			badLeast = fault.Invalid("min_requests", "must be between 1 and 1000000000")
		}
		p.MinRequests = uint64(max(0, *in.MinRequests))
	}
	if in.WhenDone != "" && in.WhenDone != whenDoneHold && in.WhenDone != whenDonePromote {
		badDone = fault.Invalid("when_done", "must be promote or hold")
	}
	err := fault.Join(badUpstream, in.checkRoutes(), checkSteps(p.Steps), badHold, in.Abort.read(&p), badLeast, badDone)
	return p, err
}

// read checks when the canary is aborted, and sets it in p.
func (a *CanaryAbort) read(p *canary.Plan) error {
	if a == nil {
		p.MoreThan = new(defaultMoreThan)
		return nil
	}
	p.MoreThan, p.P95Ratio = a.Errors, a.Latency
	var badErrors, badLatency, none error
	if p.MoreThan == nil && p.P95Ratio == nil {
		none = fault.Invalid("abort", "must have errors or latency: otherwise nothing would abort the canary; leave abort out for errors of more than 1 point")
	}
	if m := p.MoreThan; m != nil && !(*m >= 0 && *m <= 100) {
		badErrors = fault.Invalid("abort.errors.more_than", "must be between 0 and 100 percentage points")
	}
	if r := p.P95Ratio; r != nil && !(*r > 1 && *r <= canary.MaxP95Ratio) {
		badLatency = fault.Invalid("abort.latency.p95_ratio", "must be more than 1 and at most 1000, such as 1.5")
	}
	return fault.Join(none, badErrors, badLatency)
}

func checkSteps(steps []gateway.Percent) error {
	if len(steps) == 0 || len(steps) > canary.MaxSteps {
		return fault.Invalid("steps", "must have 1 to %d steps", canary.MaxSteps)
	}
	var problems []error
	for i, s := range steps {
		switch field := fmt.Sprintf("steps[%d]", i); {
		case s <= 0 || s >= 100_00:
			problems = append(problems, fault.Invalid(field, "must be more than 0 and less than 100 percent, with at most two decimals: 100 is what promotion does"))
		case i > 0 && s <= steps[i-1]:
			problems = append(problems, fault.Invalid(field, "must be more than the step before it"))
		}
	}
	return fault.Join(problems...)
}

// checkRoutes checks the list of routes by itself.
func (in *CanaryInput) checkRoutes() error {
	if in.Routes == nil {
		return nil
	}
	if len(in.Routes) == 0 || len(in.Routes) > canary.MaxRoutes {
		return fault.Invalid("routes", "must have 1 to %d routes, or be left out for all routes of the gateway", canary.MaxRoutes)
	}
	var problems []error
	known := make(map[string]bool, len(in.Routes))
	for i, routeID := range in.Routes {
		if known[routeID] {
			problems = append(problems, fault.Invalid(fmt.Sprintf("routes[%d]", i), "is in the list twice"))
		}
		known[routeID] = true
	}
	return fault.Join(problems...)
}

// chosenRoutes are the routes of a canary.
type chosenRoutes struct {
	ids     []string // sorted
	other   string   // the upstream that all have
	refused error    // fault.Conflict if one of them has a split
}

// checkUpstream checks that g has the upstream, if its name is valid.
func (in *CanaryInput) checkUpstream(g *gateway.Gateway) error {
	if gateway.CheckUpstreamName(in.Upstream) != nil || g.UpstreamNamed(in.Upstream) != nil {
		return nil
	}
	return unknownUpstream("upstream", in.Upstream)
}

// choose finds the routes of in, and checks them. The error is a validation error.
func (in *CanaryInput) choose(ctx context.Context, tx ReadTx, g *gateway.Gateway) (*chosenRoutes, error) {
	table, err := tx.RouteTable(ctx, g.ID)
	if err != nil {
		return nil, err
	}
	var routes []*gateway.Route
	if in.Routes == nil {
		routes, err = in.allOf(table)
	} else {
		routes, err = in.named(table)
	}
	if err != nil {
		return nil, err
	}
	c := &chosenRoutes{other: upstreamName(routes[0])}
	for _, r := range routes {
		if name := upstreamName(r); name != c.other {
			return nil, fault.Invalid("routes", "must have one upstream in common: %s has %s, and %s has %s; name routes of one of them", routes[0].Path, c.other, r.Path, name)
		}
		if c.refused == nil && len(g.SplitOf(r.Split)) > 0 {
			c.refused = fault.New(fault.Conflict, "the route %s (%s) has a split, its own or that of the gateway: remove the split, or name routes without one in routes", r.Path, r.ID)
		}
		c.ids = append(c.ids, r.ID)
	}
	slices.Sort(c.ids)
	return c, nil
}

// allOf returns all routes of a table whose requests go to another upstream than that of the canary.
func (in *CanaryInput) allOf(table []gateway.Route) (routes []*gateway.Route, err error) {
	for i := range table {
		if r := &table[i]; upstreamName(r) != in.Upstream && !r.Handling.Responds() {
			routes = append(routes, &table[i])
		}
	}
	switch {
	case len(routes) == 0:
		return nil, fault.Invalid("routes", "would be empty: the gateway has no route whose requests go to another upstream than %s", in.Upstream)
	case len(routes) > canary.MaxRoutes:
		return nil, fault.Invalid("routes", "would be %d routes, and a canary has at most %d: name its routes", len(routes), canary.MaxRoutes)
	}
	return routes, nil
}

// named returns the routes of a table that in names.
func (in *CanaryInput) named(table []gateway.Route) ([]*gateway.Route, error) {
	byID := make(map[string]*gateway.Route, len(in.Routes))
	for _, routeID := range in.Routes {
		byID[routeID] = nil
	}
	for i := range table {
		if _, named := byID[table[i].ID]; named {
			byID[table[i].ID] = &table[i]
		}
	}
	var routes []*gateway.Route
	var problems []error
	for i, routeID := range in.Routes {
		r := byID[routeID]
		switch field := fmt.Sprintf("routes[%d]", i); {
		case r == nil:
			problems = append(problems, fault.Invalid(field, "the gateway has no route %.64s: list its routes", routeID))
		case r.Handling.Responds():
			problems = append(problems, fault.Invalid(field, "the route %s redirects or responds by itself, so it reaches no upstream: leave it out", r.Path))
		case upstreamName(r) == in.Upstream:
			problems = append(problems, fault.Invalid(field, "the route %s has the upstream %s already: leave it out", r.Path, in.Upstream))
		}
		routes = append(routes, r)
	}
	return routes, fault.Join(problems...)
}

// StartCanary starts a canary of a gateway. A gateway that has one that has not ended is fault.Conflict, and so is a route with a
// split.
func (s *Service) StartCanary(ctx context.Context, actor *Actor, gatewayID string, in CanaryInput) (*StartedCanary, error) {
	plan, err := in.plan()
	var chosen *chosenRoutes
	check := func(tx ReadTx) error {
		g, err := tx.Gateway(ctx, actor.Account.ID, gatewayID)
		if err != nil {
			return err
		}
		chosen, err = in.choose(ctx, tx, g)
		return err
	}
	if err != nil || onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, err, func(tx ReadTx) error {
			g, err := tx.Gateway(ctx, actor.Account.ID, gatewayID)
			if err != nil {
				return err
			}
			return in.checkUpstream(g)
		})
	}
	// It only makes warnings, so it does not take part in the transaction.
	callers := s.callersOf(ctx, actor, gatewayID, in.Routes, plan.Steps[0])
	return beside(ctx, s, actor, gatewayID, check, func(w *work, bad func() (error, error)) (*StartedCanary, error) {
		g, err := w.Gateway(ctx, actor.Account.ID, gatewayID)
		if err != nil {
			return nil, err
		}
		misfit, err := bad()
		if err := cmp.Or(err, fault.Join(in.checkUpstream(g), misfit)); err != nil {
			return nil, err
		}
		if err := cmp.Or(w.roomForCanary(ctx, g), chosen.refused); err != nil {
			return nil, err
		}
		c := canary.Canary{ID: id.NewAt(id.Canary, w.now), AccountID: g.AccountID, GatewayID: g.ID, Plan: plan, State: canary.Running, Number: 1, Since: w.now, CreatedAt: w.now, Version: 1}
		c.Plan.Routes, c.Plan.Other = chosen.ids, chosen.other
		if c.Plan.Before, err = w.beforeCanaries(ctx, gatewayID); err != nil {
			return nil, err
		}
		c.Progress = []canary.Progress{{Step: 1, Number: 1, Weight: plan.Steps[0], Since: w.now}}
		c.Explanation = fmt.Sprintf("started: %s %% of the callers go to %s", plan.Steps[0], plan.Upstream)
		config := c.Plan.Config()
		started := &StartedCanary{Canary: c, Warnings: config.Warnings(percents(plan.Steps), callers)}
		if err := w.InsertCanary(ctx, &c); err != nil {
			return nil, err
		}
		if err := w.TrimCanaries(ctx, c.AccountID, c.GatewayID, canary.EndedOfGateway, canary.EndedOfAccount); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.CanaryStart, c.ID, g.ID, differ(nil, canaryFields(&c))); err != nil {
			return nil, err
		}
		return started, w.setShare(ctx, g, &c)
	})
}

// roomForCanary checks that a gateway may have one more canary. Otherwise the error is fault.Conflict.
func (w *work) roomForCanary(ctx context.Context, g *gateway.Gateway) error {
	if g.Canary != nil {
		return fault.New(fault.Conflict, "the gateway has the canary %s, which has not ended: promote or abort it first", g.Canary.ID)
	}
	full, err := w.HasCanaries(ctx, g.AccountID, canary.MaxOfAccount)
	if err != nil {
		return err
	}
	if full {
		return fault.New(fault.Conflict, "the account has %d canaries that have not ended, which is the most that it may have: promote or abort one first", canary.MaxOfAccount)
	}
	return w.roomToRun(ctx)
}

// roomToRun checks that one more canary may run. Otherwise the error is fault.Conflict.
func (w *work) roomToRun(ctx context.Context) error {
	full, err := w.HasRunningCanaries(ctx, canary.MaxRunning)
	if err != nil || !full {
		return err
	}
	return fault.New(fault.Conflict, "%d canaries run on this installation, which is the most that it judges at once: try again when one has ended", canary.MaxRunning)
}

// percents returns steps as numbers.
func percents(steps []gateway.Percent) []float64 {
	list := make([]float64, len(steps))
	for i, s := range steps {
		list[i] = float64(s) / 100
	}
	return list
}

// callersOf returns how many keys called a gateway, or its only route of the canary, in the last hour. If that is not known,
// because the reports do not say it or callers had no key, it returns a large number.
func (s *Service) callersOf(ctx context.Context, actor *Actor, gatewayID string, routes []string, first gateway.Percent) int {
	const many = math.MaxInt32
	q := traffic.Query{GatewayID: gatewayID, Group: traffic.ByKey, Since: s.now().Add(-time.Hour)}
	if len(routes) == 1 {
		q.RouteID = routes[0]
	}
	if s.cfg.Sources.Traffic == nil {
		return many
	}
	enough := min(50_000, int(500_00/first)+1) // five callers on the canary
	top, err := s.TopTraffic(ctx, actor, q, traffic.ByRequests, enough)
	if err != nil || len(top) == enough || slices.ContainsFunc(top, func(t traffic.Total) bool { return t.Group == "" }) {
		return many
	}
	return len(top)
}

// lookedBack is how many canaries of a gateway beforeCanaries looks at.
const lookedBack = 10

// beforeCanaries returns canary.Plan.Before of a canary that starts now: the start of the first of the canaries of the gateway that
// followed each other within canary.LeftOutFor until now. Without such canaries it is now.
func (w *work) beforeCanaries(ctx context.Context, gatewayID string) (time.Time, error) {
	at := w.now
	list, err := w.Canaries(ctx, gatewayID, Page{Limit: lookedBack})
	if err != nil {
		return at, err
	}
	for i := range list { // the newest first
		if list[i].EndedAt.Before(at.Add(-canary.LeftOutFor)) {
			break
		}
		at = list[i].CreatedAt
	}
	return at, nil
}
