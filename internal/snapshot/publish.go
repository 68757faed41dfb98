package snapshot

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// largeTable is the number of routes from which on a table is compiled alone, which takes about 10 ms.
const largeTable = 2000

// advance puts in force the parts of a gateway that todo names, as the source has them now. The
// caller holds its turn. unusable says why the gateway cannot be compiled. If err is not nil, the
// source could not be read.
func (f *Follower) advance(ctx context.Context, gatewayID string, todo gatewayTodo) (unusable, err error) {
	old := f.Current().gateways[gatewayID]
	t, err := f.readDelta(ctx, old, todo)
	if err == nil && t == nil {
		t, unusable, err = f.readWhole(ctx, gatewayID, old)
	}
	if fault.CodeOf(err) == fault.NotFound {
		t, err = f.transition(old, nil), nil
	}
	if err != nil {
		err = fmt.Errorf("read gateway %s: %w", gatewayID, err)
		if !f.isUnreadable(err) {
			return nil, err
		}
		if !f.isUnusable(gatewayID) {
			f.cfg.Log.Error("a gateway cannot be read and is out of service", "gateway_id", gatewayID, "error", err)
		}
		t, unusable = unreadableGateway(old, f.nextRead()), err
	}
	f.setUnusable(gatewayID, unusable != nil)
	if unusable == nil || f.cfg.Shared != nil {
		f.publish(nil, map[string]*transition{gatewayID: t})
	}
	return unusable, nil
}

// readWhole reads a gateway with all its routes and compiles it. Large tables wait for each other, so that
// they leave processors to other work.
func (f *Follower) readWhole(ctx context.Context, gatewayID string, old *Gateway) (t *transition, unusable, err error) {
	n, err := f.cfg.Source.RouteCount(ctx, gatewayID)
	if err != nil {
		return nil, nil, err
	}
	if n >= largeTable || old != nil && old.routes.size >= largeTable {
		select {
		case f.cfg.Heavy <- struct{}{}:
			defer func() { <-f.cfg.Heavy }()
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	read := f.nextRead()
	g, routes, err := f.cfg.Source.GatewayByID(ctx, gatewayID)
	if err != nil {
		return nil, nil, err
	}
	c, err := f.compile(g, routes, read)
	if err != nil {
		return f.transition(old, f.outOfService(g, old, read)), err, nil
	}
	return f.transition(old, c), nil, nil
}

// readDelta reads the parts of a gateway that todo names and applies them to old, the gateway in
// force, whose route tree it keeps. It returns nil if the whole gateway must be read.
func (f *Follower) readDelta(ctx context.Context, old *Gateway, todo gatewayTodo) (*transition, error) {
	if old == nil || todo.whole || f.isUnusable(old.ID) {
		return nil, nil
	}
	read := f.nextRead()
	d, err := f.cfg.Source.GatewayDelta(ctx, old.ID, todo.routeIDs(), todo.after)
	if err != nil || d.Whole {
		return nil, err
	}
	next, err := f.compileSettings(d.Gateway, read)
	if err != nil {
		return nil, nil // readWhole says why
	}
	changes, ok := next.changeRoutes(old, d, &f.shared)
	if !ok {
		return nil, nil
	}
	return &transition{next: next, changes: changes}, nil
}

// changeRoutes gives g the routes of old with the changes in d. Both share all but the changed
// parts of the route tree. It returns false if the routes do not fit together, so that the whole
// table must be read.
func (g *Gateway) changeRoutes(old *Gateway, d *GatewayDelta, shared *sharedParts) (changes []routeChange, ok bool) {
	defer shared.forget()
	g.tree, g.routes, g.authCounts, g.fallbacks = old.tree, old.routes, old.authCounts, old.fallbacks
	if len(d.RouteIDs) == 0 {
		return nil, true
	}
	changed := make(map[string]*Route, len(d.RouteIDs)) // nil: deleted
	for _, routeID := range d.RouteIDs {
		changed[routeID] = nil
	}
	for i := range d.Routes {
		changed[d.Routes[i].ID] = compileRoute(&d.Routes[i], shared)
	}
	patternChanges := map[string]*patternChange{} // by pattern
	for routeID, now := range changed {
		was := old.routes.find(routeID)
		if was == nil && now == nil {
			continue
		}
		changes = append(changes, routeChange{was, now})
		g.count(was, now)
		if was != nil && !addPatternChange(patternChanges, was.Path, nil) || now != nil && !addPatternChange(patternChanges, now.Path, now) {
			return nil, false
		}
	}
	for _, p := range patternChanges {
		n, ok := old.tree.Get(p.template).with(changed, p.routes)
		switch {
		case !ok:
			return nil, false
		case n == nil:
			g.tree = g.tree.Without(p.template)
		default:
			g.tree = g.tree.With(p.template, n)
		}
	}
	g.routes = old.routes.with(changed)
	return changes, true
}

// patternChange is a pattern at which routes change, with the changed and new routes that it has afterwards.
type patternChange struct {
	template gateway.Template
	routes   []*Route
}

// addPatternChange adds the pattern of path, and r unless it is nil. It returns false if the path is not
// valid.
func addPatternChange(patternChanges map[string]*patternChange, path string, r *Route) bool {
	t, err := gateway.ParseTemplate(path)
	if err != nil {
		return false
	}
	p := patternChanges[t.Pattern()]
	if p == nil {
		p = &patternChange{template: t}
		patternChanges[t.Pattern()] = p
	}
	if r != nil {
		p.routes = append(p.routes, r)
	}
	return true
}

// with returns n, which may be nil, without the routes in changed and with the routes in added; nil
// if no route is left. It returns false if two routes then had a method in common.
func (n *Node) with(changed map[string]*Route, added []*Route) (_ *Node, ok bool) {
	var all []*Route
	for _, r := range n.all() {
		if _, gone := changed[r.ID()]; !gone {
			all = append(all, r)
		}
	}
	if all = append(all, added...); len(all) == 0 {
		return nil, true
	}
	methods := map[string]bool{}
	for _, r := range all {
		for _, m := range r.Methods() {
			if methods[m] {
				return nil, false
			}
			methods[m] = true
		}
	}
	return newNode(all), true
}

// transition is the step from one form of a gateway to the next.
type transition struct {
	next    *Gateway // nil for a gateway that was deleted
	changes []routeChange
}

// routeChange is a route that differs: as it is in force, and as it is afterwards. Either is nil if the route
// does not exist then.
type routeChange struct{ was, now *Route }

// transition compares the gateway in force, or nil, with the next one, or nil. It gives new routes
// their limits, and unchanged routes the limits of their predecessors.
func (f *Follower) transition(old, next *Gateway) *transition {
	t := &transition{next: next}
	if next != nil {
		now := f.cfg.Now()
		for r := range next.routes.all() {
			var was *Route
			if old != nil {
				was = old.routes.byUUID(r.UUID)
			}
			if was != nil {
				r.split.adopt(was.split)
			}
			switch {
			case was == nil:
				f.adoptRoute(next.AccountID, r, nil, now)
			case !was.limits.equal(r.limits) || was.Path != r.Path:
				t.changes = append(t.changes, routeChange{was, r})
			default:
				r.limits = was.limits
			}
		}
	}
	if old != nil {
		for was := range old.routes.all() {
			if next == nil || next.routes.byUUID(was.UUID) == nil {
				t.changes = append(t.changes, routeChange{was, nil})
			}
		}
	}
	return t
}

// publish puts the changed gateways in force and, unless it is nil, the accounts. Gateways take over
// the limits of their predecessors. publish cannot fail, and is the only place where a bucket of a
// gateway or route is closed.
func (f *Follower) publish(accounts map[string]*account.Account, changed map[string]*transition) {
	f.publishing.Lock()
	defer f.publishing.Unlock()
	old := f.Current()
	if accounts == nil {
		accounts = old.accounts
	}
	gateways := maps.Clone(old.gateways)
	for id, t := range changed {
		if t.next == nil {
			delete(gateways, id)
		} else {
			gateways[id] = t.next
		}
	}
	issuers := f.issuers.Load()
	for id, g := range gateways {
		if g.Upstream != nil {
			gateways[id] = g.withIssuers(issuers)
			g = gateways[id]
		}
		if only := publicOnly(accounts, g.AccountID); g.Upstream != nil && only != g.isPublicOnly() {
			other := *g
			other.Settings = g.withPublicOnly(only)
			gateways[id] = &other
		}
	}
	var gone []balance.Name
	for id, g := range gateways {
		if g != old.gateways[id] {
			gone = append(gone, f.putUpstreams(old.gateways[id], g)...)
		}
	}
	for id, t := range changed {
		if t.next == nil && old.gateways[id] != nil {
			gone = append(gone, f.putUpstreams(old.gateways[id], nil)...)
		}
		if t.next != nil {
			f.adoptLimits(gateways[id], old.gateways[id], t.changes)
		}
	}
	next := old.publishable(accounts, gateways)
	now := f.cfg.Now()
	for _, t := range changed {
		f.former.add(t.changes, now)
	}
	f.put(next)
	for _, name := range gone {
		f.cfg.Fleet.Drop(time.Duration(now.Mono), name)
		f.want(name, nil)
	}
	for id, t := range changed {
		dropAnonymous(old.gateways[id], gateways[id])
		for _, c := range t.changes {
			c.dropBuckets()
			if c.was != nil && c.was.limits.hasDaily() && (c.now == nil || !c.now.limits.hasDaily()) {
				f.cfg.Reserver.Drop(c.was.ID())
			}
		}
	}
	f.dropHolders(accounts)
}

// adoptLimits gives g the limits of old, and the changed routes the limits of their
// predecessors.
func (f *Follower) adoptLimits(g, old *Gateway, changes []routeChange) {
	now := f.cfg.Now()
	if old != nil {
		g.split.adopt(old.split)
	}
	f.adoptGlobal(g, old, now)
	f.adoptAnonymous(g, old, now)
	f.adoptHolders(g)
	for _, c := range changes {
		if c.now != nil {
			f.adoptRoute(g.AccountID, c.now, c.was, now)
		}
	}
}
