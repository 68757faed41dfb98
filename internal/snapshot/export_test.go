package snapshot

import (
	"context"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// KeyClasses returns the number of key classes.
func (f *Follower) KeyClasses() int { return len(f.classes) }

// Lock locks the Follower, as CatchUp and Load do.
func (f *Follower) Lock(ctx context.Context) error { return f.lock(ctx) }

// Unlock releases the lock.
func (f *Follower) Unlock() { f.unlock() }

// PutKey compiles and publishes k.
func (f *Follower) PutKey(k *apikey.Key) error { return f.putKey(f.Current().keys, k) }

// RemoveKey removes the key with the digest d, which is in force.
func (f *Follower) RemoveKey(d apikey.Digest) {
	table := f.Current().keys
	f.removeKey(table, table.find(&d))
}

// HasDigest reports whether the key's secret has the digest d.
func (k *Key) HasDigest(d apikey.Digest) bool { return k.digest == shortened(&d) }

// BoundRevoked sets the bounds of the revoked keys that are held.
func (f *Follower) BoundRevoked(ofAccount, inAll int) { f.revoked = newRevokedKeys(ofAccount, inAll) }

// RevokedKeys returns the number of revoked keys that are held.
func (f *Follower) RevokedKeys() int { return len(f.revoked.keys) }

// SweepBuckets does what the service does every minute.
func (f *Follower) SweepBuckets() { f.sweep(f.ended.turn()) }

// PlanLimits returns the limits of plans that apply to the key with the secret on the gateway: what is left of each, by
// its label.
func (f *Follower) PlanLimits(now ratelimit.Instant, gatewayID, secret string) (left map[string]int64, problem string) {
	var c ratelimit.Charge
	_, problem = f.Current().GatewayByID(gatewayID).AddPlanLimits(&c, &f.Current().FindKey(secret).Caller, nil, &ratelimit.Used{1})
	new(ratelimit.Limiter).Decide(now, &c)
	left = map[string]int64{}
	for i := range c.Shown() {
		left[c.Status(i).Label.String()] = c.Status(i).Remaining
	}
	return left, problem
}

// BoundBuckets sets the bound of BucketBytes for limits that come into force from now on.
func (f *Follower) BoundBuckets(limit int64) { f.buckets = ratelimit.NewBudget(limit) }

// SweepRevoked does what the service does every minute.
func (f *Follower) SweepRevoked() { f.revoked.sweep(f.cfg.Now().Wall / 1000) }

// Config returns the rate limit that the route was compiled from.
func (r *Route) Config() ratelimit.Config {
	if r.limits == nil {
		return ratelimit.Config{}
	}
	return r.limits.config.Value().rate
}

// Routes returns the number of routes.
func (g *Gateway) Routes() int { return g.routes.size }

// FindNode is Find for tables without bad cases.
func (g *Gateway) FindNode(path string) *Node {
	n, _ := g.Find(path)
	return n
}

// CompileRoutes returns a gateway that has only routes.
func CompileRoutes(routes []gateway.Route) (*Gateway, error) {
	g := &Gateway{Settings: &Settings{}}
	return g, g.compileRoutes(routes, &sharedParts{})
}
