package snapshot

import (
	"context"

	"github.com/keygate/keygate/internal/ratelimit"
)

// Levels calls yield with the present level of each limit of a gateway, in no particular
// order: the global limit, the limits of routes, the limits of single keys (their own or on a
// route) and addresses that are in use, and the limits of plans that cover the gateway, of each key or owner that uses them. It does not call yield if the gateway is not in force. If nodes share
// limits, it asks the limit store first. It does not block decisions.
func (f *Follower) Levels(ctx context.Context, gatewayID string, yield func(ratelimit.Level)) {
	s := f.Current()
	g := s.GatewayByID(gatewayID)
	if g == nil {
		return
	}
	if f.cfg.Sharing != nil {
		f.cfg.Sharing.Refresh(ctx, f.bucketsOf(s, g))
	}
	now := f.cfg.Now()
	yield(ratelimit.Level{Status: ratelimit.StatusOf(now, g.global)})
	g.anonymousLevels(now, yield)
	for r := range g.routes.all() {
		r.levels(now, yield)
	}
	f.planLevels(g, now, yield)
	s.keys.each(func(k *Key) {
		if k.limit == nil || k.AccountID() != g.AccountID || k.GatewayID() != "" && k.GatewayID() != g.ID {
			return
		}
		if l := k.limit; l.bucket != nil {
			status := ratelimit.StatusOf(now, ratelimit.Limit{Scope: ratelimit.KeyScope, Params: l.params, Bucket: l.bucket})
			if status.ResetIn > 0 {
				yield(ratelimit.Level{Status: status, Key: k.id})
			}
		}
		if l := k.limit; l.daily > 0 {
			if status := l.dailies.StatusOf(now, k.BucketID(), l.daily); status.Remaining < status.Limit {
				yield(ratelimit.Level{Status: status, Key: k.id})
			}
		}
		if l := k.limit; l.slots != nil {
			if s := l.slots.Find(k.BucketID()); s != nil {
				if status := s.Status(ratelimit.KeyConcurrencyScope, l.most); status.Remaining < status.Limit {
					yield(ratelimit.Level{Status: status, Key: k.id})
				}
			}
		}
	})
}

// planLimitsOf calls yield for each limit of a plan that covers any route of the gateway.
func (f *Follower) planLimitsOf(g *Gateway, yield func(*planLimit)) {
	for _, p := range f.plans.of(g.AccountID) {
		for l := range p.limits {
			if l.gateway == [16]byte{} || l.gateway == g.UUID {
				yield(l)
			}
		}
	}
}

// planLevels calls yield with the level of each limit of a plan that covers the gateway, of each subject that uses it.
func (f *Follower) planLevels(g *Gateway, now ratelimit.Instant, yield func(ratelimit.Level)) {
	f.planLimitsOf(g, func(l *planLimit) {
		scope := ratelimit.PlanScope
		if l.most > 0 {
			scope = ratelimit.ConcurrencyScope
		}
		ofKey := func(key [16]byte, s ratelimit.Status) {
			s.Scope, s.Label = scope, l.label
			yield(ratelimit.Level{Status: s, Key: key})
		}
		ofOwner := func(owner [16]byte, s ratelimit.Status) {
			s.Scope, s.Label = scope, l.label
			yield(ratelimit.Level{Status: s, Owner: owner})
		}
		if l.keys != nil {
			l.keys.EachLevel(now, ofKey)
		}
		if l.owners != nil {
			l.owners.EachLevel(now, ofOwner)
		}
		if l.keySlots != nil {
			l.keySlots.EachLevel(scope, l.most, ofKey)
		}
		if l.ownerSlots != nil {
			l.ownerSlots.EachLevel(scope, l.most, ofOwner)
		}
	})
}

// bucketsOf returns the buckets of the limits that apply to a gateway, as far as this node knows them.
func (f *Follower) bucketsOf(s *Snapshot, g *Gateway) []*ratelimit.Bucket {
	all := []*ratelimit.Bucket{g.global.Bucket}
	if g.anonymous != nil {
		g.anonymous.Buckets(func(b *ratelimit.Bucket) { all = append(all, b) })
	}
	f.planLimitsOf(g, func(l *planLimit) {
		for set := range l.sets {
			set.Buckets(func(b *ratelimit.Bucket) { all = append(all, b) })
		}
	})
	for r := range g.routes.all() {
		switch l := r.limits; {
		case l == nil:
		case l.bucket != nil:
			all = append(all, l.bucket)
		case l.buckets != nil:
			l.buckets.Buckets(func(b *ratelimit.Bucket) { all = append(all, b) })
		}
	}
	s.keys.each(func(k *Key) {
		if k.limit != nil && k.limit.bucket != nil && k.AccountID() == g.AccountID && (k.GatewayID() == "" || k.GatewayID() == g.ID) {
			all = append(all, k.limit.bucket)
		}
	})
	return all
}

// levels calls f with the level of each limit of the route.
func (r *Route) levels(now ratelimit.Instant, f func(ratelimit.Level)) {
	l := r.limits
	if l == nil {
		return
	}
	one := func(l ratelimit.Limit) {
		f(ratelimit.Level{Status: ratelimit.StatusOf(now, l), Route: r.UUID})
	}
	each := func(key [16]byte, s ratelimit.Status) {
		level := ratelimit.Level{Status: s, Route: r.UUID, Key: key}
		if l.byAddress {
			level.Key, level.Address = [16]byte{}, key
		}
		f(level)
	}
	if l.bucket != nil {
		one(ratelimit.Limit{Scope: ratelimit.RouteScope, Params: l.params, Bucket: l.bucket})
	}
	if l.buckets != nil {
		l.buckets.EachLevel(now, each)
	}
	if l.daily != nil {
		one(ratelimit.Limit{Scope: ratelimit.DailyScope, Daily: l.daily})
	}
	if l.dailies != nil {
		l.dailies.EachLevel(now, each)
	}
	if l.slots != nil {
		slots := l.slots.Find(r.UUID)
		if slots == nil {
			slots = new(ratelimit.Slots)
		}
		f(ratelimit.Level{Status: slots.Status(ratelimit.RouteConcurrencyScope, l.most), Route: r.UUID})
	}
	if l.slotSet != nil {
		l.slotSet.EachLevel(ratelimit.RouteConcurrencyScope, l.most, func(key [16]byte, s ratelimit.Status) {
			f(ratelimit.Level{Status: s, Route: r.UUID, Key: key})
		})
	}
}
