package control

import (
	"cmp"
	"context"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// UpdateRouteLimit changes the fields in p of a route's limit. A limit without fields is
// removed. A spec push keeps the limit that is set here, unless the spec has one.
func (s *Service) UpdateRouteLimit(ctx context.Context, actor *Actor, gatewayID, routeID string, p LimitPatch, m Match) (*gateway.Route, error) {
	if !p.RateLimit.Present {
		return nil, fault.Invalid("rate_limit", "is required: give the fields to change, or null for no limit")
	}
	return s.UpdateRoute(ctx, actor, gatewayID, routeID, RoutePatch{RateLimit: p.RateLimit}, m)
}

// UpdateRoute changes the fields in p of a route, which keeps its identifier, its source, and what was
// used of its limits. Its path and methods must fit the other routes, as if the route were new. A
// later push keeps the limit as after UpdateRouteLimit, and a cost and a bound of requests in flight likewise, and takes everything else from the document.
func (s *Service) UpdateRoute(ctx context.Context, actor *Actor, gatewayID, routeID string, p RoutePatch, m Match) (*gateway.Route, error) {
	badKeys := fault.Prefixed("split", s.findSplitKeys(ctx, actor, &p.Split.Value))
	edit, err := p.read()
	err = fault.Join(err, badKeys)
	if err != nil || onlyChecks(ctx) {
		return nil, cmp.Or(fault.Join(err, s.misfit(ctx, actor, gatewayID, routeID, err, p), s.checkUpstreamOf(ctx, actor, gatewayID, p.Upstream.Value, p.Split.Value, p.Handling.apply(nil))), errOnlyChecked)
	}
	var check func(tx ReadTx) error // nil if nothing of it changes
	if p.Path.Present || p.Methods.Present || p.Cost.Present || p.Split.Present || p.Handling.isGiven() {
		check = func(tx ReadTx) error {
			_, before, err := route(ctx, tx, actor, gatewayID, routeID)
			if err != nil {
				return err
			}
			r := *before
			_ = edit(&r) // the transaction says what is wrong with it
			return fits(ctx, tx, gatewayID, before, r.Spec())
		}
	}
	return beside(ctx, s, actor, gatewayID, check, func(w *work, bad func() (error, error)) (*gateway.Route, error) {
		g, before, err := route(ctx, w, actor, gatewayID, routeID)
		if err != nil {
			return nil, err
		}
		r := *before
		invalid := edit(&r)
		misfit, err := bad()
		if err != nil {
			return nil, err
		}
		var refused error
		if p.Upstream.Present || p.Split.Present {
			invalid = fault.Join(invalid, checkUpstreamOf(g, r.Upstream, p.Split.Value))
		}
		if p.Handling.isGiven() {
			invalid = fault.Join(invalid, checkHeadersOf(ctx, w, g, r.Handling))
		}
		if len(p.Split.Value) > 0 && inCanary(g.Canary, routeID) {
			refused = refuseSplit(g.Canary)
		}
		invalid = fault.Join(misfit, invalid)
		if invalid != nil {
			return nil, invalid
		}
		if err := cmp.Or(require(m, before.Version), refused); err != nil {
			return nil, err
		}
		if err := w.mayGrow(ctx); err != nil {
			return nil, err
		}
		if err := w.storeRoute(ctx, before, &r); err != nil {
			return nil, err
		}
		return inForce(g, &r), nil
	})
}

// storeRoute stores r in place of before and raises its version, if a user can see a difference.
func (w *work) storeRoute(ctx context.Context, before, r *gateway.Route) error {
	diff := routeDiff(before, r)
	if len(diff) == 0 {
		if r.LimitByAPI == before.LimitByAPI && r.CostByAPI == before.CostByAPI && r.ConcurrencyByAPI == before.ConcurrencyByAPI {
			return nil
		}
		return w.UpdateRoutes(ctx, []gateway.Route{*r})
	}
	r.Version++
	return w.besideCanary(ctx, before, "changed", func() error {
		if err := w.UpdateRoutes(ctx, []gateway.Route{*r}); err != nil {
			return err
		}
		if err := w.audit(ctx, audit.RouteUpdate, r.ID, r.GatewayID, diff); err != nil {
			return err
		}
		return w.routeChanged(ctx, r)
	})
}

// read validates each field and returns a function that applies p to a route.
func (p *RoutePatch) read() (func(*gateway.Route) error, error) {
	var badPath, badMethods, badConcurrency error
	// Absent fields stay as they are, so they are valid here.
	given := gateway.RouteSpec{Path: "/", Methods: []string{"GET"}}
	switch {
	case p.Path.Null:
		badPath = fault.Invalid("path", "cannot be removed")
	case p.Path.Present:
		given.Path = p.Path.Value
	}
	switch {
	case p.Methods.Null:
		badMethods = fault.Invalid("methods", "cannot be removed")
	case p.Methods.Present:
		given.Methods = p.Methods.Value
	}
	given.Auth, given.Cost, given.Concurrency = gateway.Auth(p.Auth.Value), p.Cost.Value, p.Concurrency.Value
	if p.Concurrency.Present && !p.Concurrency.Null && given.Concurrency.IsZero() {
		badConcurrency = fault.Prefixed("concurrency", given.Concurrency.Validate())
	}
	limit, badLimit := readLimit(&p.RateLimit)
	given.Upstream, given.Split = p.Upstream.Value, p.Split.Value
	if err := fault.Join(badPath, badMethods, checkRoute(&given), badConcurrency, badLimit); err != nil {
		return nil, err
	}
	return func(r *gateway.Route) error {
		set(&r.Path, p.Path.Present, given.Path)
		set(&r.Methods, p.Methods.Present, given.Methods)
		set(&r.Auth, p.Auth.Present, given.Auth)
		set(&r.Upstream, p.Upstream.Present, given.Upstream)
		set(&r.Split, p.Split.Present, given.Split)
		r.Handling = p.Handling.apply(r.Handling)
		before := r.RateLimit
		var err error
		if r.RateLimit, err = limit(before); err != nil {
			return err
		}
		// A limit from a document that is set here to the same values counts as set through the API from now
		// on, so that a later document without it does not remove it.
		claimed := !before.IsZero() && p.RateLimit.Value != (RateLimitPatch{})
		if p.RateLimit.Present && (r.RateLimit != before || claimed) {
			r.LimitByAPI = true
		}
		if p.Concurrency.Present {
			r.Concurrency, r.ConcurrencyByAPI = given.Concurrency, !given.Concurrency.IsZero()
		}
		if p.Cost.Present {
			if !r.Cost.Equal(given.Cost) {
				r.Cost = given.Cost
			}
			r.CostByAPI = len(r.Cost) > 0
		}
		return nil
	}, nil
}

// readLimit validates each field of p and returns a function that applies p to a limit.
func readLimit(p *Optional[RateLimitPatch]) (func(ratelimit.Config) (ratelimit.Config, error), error) {
	switch {
	case !p.Present:
		return func(c ratelimit.Config) (ratelimit.Config, error) { return c, nil }, nil
	case p.Null:
		return func(ratelimit.Config) (ratelimit.Config, error) { return ratelimit.Config{}, nil }, nil
	}
	var edit ratelimit.Config
	members := p.Value
	var problems []error
	for _, m := range []struct {
		name   string
		member *Optional[string]
		to     *ratelimit.Rate
	}{
		{"sustained", &members.Sustained, &edit.Sustained},
		{"burst", &members.Burst, &edit.Burst},
		{"daily", &members.Daily, &edit.Daily},
	} {
		if !m.member.Present || m.member.Null {
			continue
		}
		rate, err := ratelimit.ParseRate(m.member.Value)
		problems = append(problems, fault.Prefixed(m.name, err))
		*m.to = rate
	}
	if members.Per.Present && !members.Per.Null {
		if edit.Per = members.Per.Value; edit.Per == "" || ratelimit.CheckPer(edit.Per) != nil {
			problems = append(problems, fault.Invalid("per", `must be "key" or "address", or null for one limit that all callers share`))
		}
	}
	if !edit.Daily.IsZero() {
		problems = append(problems, ratelimit.Config{Daily: edit.Daily}.Validate())
	}
	if err := fault.Join(problems...); err != nil {
		return nil, fault.Prefixed("rate_limit", err)
	}
	return func(c ratelimit.Config) (ratelimit.Config, error) {
		set(&c.Sustained, members.Sustained.Present, edit.Sustained)
		set(&c.Burst, members.Burst.Present, edit.Burst)
		set(&c.Daily, members.Daily.Present, edit.Daily)
		set(&c.Per, members.Per.Present, edit.Per)
		if !c.HasBucket() && c.Daily.IsZero() && edit.Per == "" {
			c.Per = "" // there is nothing left to count per key
		}
		if c.IsZero() {
			return c, nil
		}
		return c, fault.Prefixed("rate_limit", c.Validate())
	}, nil
}

func set[T any](to *T, present bool, value T) {
	if present {
		*to = value
	}
}
