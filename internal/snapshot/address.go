package snapshot

import (
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// compileAnonymous sets the limit for each address on public routes, without its buckets: see adoptAnonymous.
func (g *Gateway) compileAnonymous(l gateway.AnonymousLimit) {
	if !l.IsZero() {
		p := ratelimit.Compile(l.Config())
		g.anonymousParams = &p
	}
}

// adoptAnonymous gives g the buckets of the anonymous limit of old, the gateway in force, which may be nil.
func (f *Follower) adoptAnonymous(g, old *Gateway, now ratelimit.Instant) {
	g.anonymous = nil
	switch {
	case g.anonymousParams == nil:
	case old != nil && old.anonymous != nil:
		g.anonymous = old.anonymous
		g.anonymous.Configure(g.anonymousParams, now)
	default:
		name := ratelimit.Name{Account: g.AccountID, Kind: id.Gateway, Owner: g.UUID}
		g.anonymous = f.cfg.Sharing.NewAddressBuckets(name, g.anonymousParams, f.buckets.Of(g.AccountID))
	}
}

// dropAnonymous drops the buckets of the anonymous limit of was, the form that next replaces, if it is not in force
// any more. Either may be nil. The configuration without the limit must be published.
func dropAnonymous(was, next *Gateway) {
	if was != nil && was.anonymous != nil && (next == nil || next.anonymous != was.anonymous) {
		was.anonymous.Drop()
	}
}

// AddAnonymousLimit adds the gateway's limit for each address on public routes, if it has one. It reports false
// if the account's memory has no room to count the address: then the limit is left out.
func (g *Gateway) AddAnonymousLimit(c *ratelimit.Charge, client clientip.Group) bool {
	if g.anonymous == nil {
		return true
	}
	p, b := g.anonymous.Address(client)
	if b == nil {
		return false
	}
	c.Add(ratelimit.Limit{Scope: ratelimit.AnonymousScope, Params: p, Bucket: b}, 1)
	return true
}

// CountsAddress reports whether a limit of the route or, if it is public, of the gateway depends on the client's
// address.
func (g *Gateway) CountsAddress(r *Route) bool {
	return g.Public(r) && g.anonymous != nil || r.limits != nil && r.limits.byAddress
}

// anonymousLevels calls yield with the level of each address that has used some of the gateway's anonymous limit.
func (g *Gateway) anonymousLevels(now ratelimit.Instant, yield func(ratelimit.Level)) {
	if g.anonymous == nil {
		return
	}
	g.anonymous.EachLevel(now, func(address [16]byte, s ratelimit.Status) {
		s.Scope = ratelimit.AnonymousScope
		yield(ratelimit.Level{Status: s, Address: address})
	})
}
