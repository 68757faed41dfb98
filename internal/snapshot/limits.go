package snapshot

import (
	"maps"
	"slices"
	"sync"
	"unique"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// routeLimits are the limits of a route in force: one bucket or a bucket for each key or address, one
// daily count or a count for each key, or none; and one count of requests in flight or one for each key, or none.
type routeLimits struct {
	config    unique.Handle[limitConfig] // many routes have the same
	params    *ratelimit.Params
	bucket    *ratelimit.Bucket
	buckets   *ratelimit.Buckets
	daily     *ratelimit.Daily
	dailies   *ratelimit.Dailies
	slots     *ratelimit.SlotSet // of the routes of the account
	slotSet   *ratelimit.SlotSet // of the route, one for each key
	most      int64              // requests in flight
	byAddress bool               // buckets has one for each address
}

// limitConfig is what is configured of the limits of a route.
type limitConfig struct {
	rate        ratelimit.Config
	concurrency ratelimit.Concurrency
}

func (l *routeLimits) hasDaily() bool { return l != nil && (l.daily != nil || l.dailies != nil) }

// equal reports whether the configurations of l and o, each of which may be nil, are equal.
func (l *routeLimits) equal(o *routeLimits) bool {
	if l == nil || o == nil {
		return l == o
	}
	return l.config == o.config
}

// adoptGlobal gives g the global limit of old, the gateway in force, which may be nil. An
// unchanged limit is shared and a changed one converted, so that no publication refills a bucket. A
// converted bucket is closed at once, so g must be published right after.
func (f *Follower) adoptGlobal(g, old *Gateway, now ratelimit.Instant) {
	name := ratelimit.Name{Account: g.AccountID, Kind: id.Gateway, Owner: g.UUID}
	g.global.Params, g.global.Bucket = f.carryBucket(name, g.global.Params, old.globalLimit(), now)
	g.global.Bucket.Divide(g.global.Default)
}

// sharedRates holds one copy of the parameters of each rate. It is safe for concurrent use.
type sharedRates struct {
	mu    sync.Mutex
	rates map[ratelimit.Params]*ratelimit.Params
}

// of returns the copy of p that all limits of the same rate use, so that it is more likely to be in
// the processor's cache.
func (s *sharedRates) of(p ratelimit.Params) *ratelimit.Params {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shared := s.rates[p]; shared != nil {
		return shared
	}
	if len(s.rates) >= maxShared || s.rates == nil {
		s.rates = map[ratelimit.Params]*ratelimit.Params{}
	}
	s.rates[p] = &p
	return &p
}

func (g *Gateway) globalLimit() ratelimit.Limit {
	if g == nil {
		return ratelimit.Limit{}
	}
	return g.global
}

// carryBucket returns the bucket with the parameters p that succeeds was, which may be the
// zero Limit. A bucket without a predecessor has the given name.
func (f *Follower) carryBucket(name ratelimit.Name, p *ratelimit.Params, was ratelimit.Limit, now ratelimit.Instant) (*ratelimit.Params, *ratelimit.Bucket) {
	switch {
	case was.Bucket == nil:
		return p, f.cfg.Sharing.NewBucket(name, p)
	case *was.Params == *p:
		return was.Params, was.Bucket
	default:
		return p, was.Bucket.Convert(was.Params, p, now)
	}
}

// adoptRoute gives r, a route of the account, the limits of was, the route in force or nil, as adoptGlobal does.
func (f *Follower) adoptRoute(accountID string, r, was *Route, now ratelimit.Instant) {
	old := &routeLimits{}
	if was != nil {
		r.split.adopt(was.split)
		if was.limits.equal(r.limits) {
			r.limits = was.limits
			return
		}
		if was.limits != nil {
			old = was.limits
		}
	}
	l := r.limits
	if l == nil {
		return
	}
	f.adoptSlots(ratelimit.Name{Account: accountID, Kind: id.Route, Owner: r.UUID}, l, old)
	config := l.config.Value().rate
	perKey := config.Per == ratelimit.PerKey
	l.byAddress = config.Per == ratelimit.PerAddress
	if config.HasBucket() {
		p := f.rates.of(ratelimit.Compile(config))
		name := ratelimit.Name{Account: accountID, Kind: id.Route, Owner: r.UUID}
		switch {
		case !perKey && !l.byAddress:
			l.params, l.bucket = f.carryBucket(name, p, ratelimit.Limit{Params: old.params, Bucket: old.bucket}, now)
		case old.buckets != nil && old.byAddress == l.byAddress:
			l.buckets = old.buckets
			l.buckets.Configure(p, now)
		case l.byAddress:
			l.buckets = f.cfg.Sharing.NewAddressBuckets(name, p, f.buckets.Of(accountID))
		default:
			l.buckets = f.cfg.Sharing.NewBuckets(name, p, f.buckets.Of(accountID))
		}
	}
	if config.Daily.IsZero() {
		return
	}
	if old.hasDaily() && perKey != (old.dailies != nil) {
		f.cfg.Reserver.Drop(r.ID()) // from one count for all callers to one count for each key, or back
	}
	if perKey {
		l.dailies = f.cfg.Reserver.Dailies(r.ID(), config.Daily)
		l.dailies.CountTowards(f.buckets.Of(accountID))
	} else {
		l.daily = f.cfg.Reserver.Daily(r.ID(), config.Daily)
		l.daily.CountTowards(f.buckets.Of(accountID))
	}
}

// ownSlots identifies the slots of the keys, or of the routes, of an account.
type ownSlots struct {
	accountID string
	kind      id.Kind
}

// slotsOf returns the slots of the keys, or of the routes, of an account that have limits of their own. They are never
// forgotten, as budgets are not.
func (f *Follower) slotsOf(accountID string, kind id.Kind) *ratelimit.SlotSet {
	f.ownMu.Lock()
	defer f.ownMu.Unlock()
	of := ownSlots{accountID, kind}
	s := f.own[of]
	if s == nil {
		s = ratelimit.NewSlotSet(f.buckets.Of(accountID), f.cfg.Slots, ratelimit.Name{Account: accountID, Kind: kind})
		f.own[of] = s
	}
	return s
}

// sweepSlots drops unused slots of keys and routes that have limits of their own.
func (f *Follower) sweepSlots() {
	f.ownMu.Lock()
	all := slices.Collect(maps.Values(f.own))
	f.ownMu.Unlock()
	for _, s := range all {
		s.Sweep()
	}
}

// adoptSlots gives l, the limits of the route with the name, the slots of old.
func (f *Follower) adoptSlots(name ratelimit.Name, l, old *routeLimits) {
	c := l.config.Value().concurrency
	if l.most = c.Max; c.IsZero() {
		return
	}
	if c.Per != ratelimit.PerKey {
		l.slots = f.slotsOf(name.Account, id.Route)
		return
	}
	if l.slotSet = old.slotSet; l.slotSet == nil {
		l.slotSet = ratelimit.NewSlotSet(f.buckets.Of(name.Account), f.cfg.Slots, name)
	}
}

// dropBuckets drops the buckets and slots of limits with per: key or per: address that are not in force any more. The configuration
// without them must be published.
func (c *routeChange) dropBuckets() {
	if c.was == nil || c.was.limits == nil {
		return
	}
	was, now := c.was.limits, &routeLimits{}
	if c.now != nil && c.now.limits != nil {
		now = c.now.limits
	}
	if was.buckets != nil && now.buckets != was.buckets {
		was.buckets.Drop()
	}
	if was.slotSet != nil && now.slotSet != was.slotSet {
		was.slotSet.Drop()
	}
}

// sweep drops unused slots, and the buckets of keys and addresses that are full again or belong to a key that has ended.
func (s *Snapshot) sweep(now ratelimit.Instant, ended map[[16]byte]bool) {
	for _, g := range s.gateways {
		if g.anonymous != nil {
			g.anonymous.Sweep(now, nil)
		}
		for r := range g.routes.all() {
			if r.limits != nil {
				r.limits.sweep(now, ended)
			}
		}
	}
}

func (l *routeLimits) sweep(now ratelimit.Instant, ended map[[16]byte]bool) {
	if l.buckets != nil {
		l.buckets.Sweep(now, ended)
	}
	if l.slotSet != nil {
		l.slotSet.Sweep()
	}
}

// endedKeys collects the keys whose buckets nobody can use any more. It is safe for concurrent use.
type endedKeys struct {
	mu          sync.Mutex
	now, before map[[16]byte]bool // since the last sweep of the minute, and in the minute before it
}

// maxEnded bounds the keys of a minute. The buckets of further keys stay until they are full.
const maxEnded = 100_000

// add notes that a key was revoked. A key of a rotation shares its bucket, so it is left out.
func (e *endedKeys) add(k *apikey.Key) {
	if k.RotatedTo != "" || k.BucketID != "" && k.BucketID != k.ID {
		return
	}
	u, ok := id.Parse(id.Key, k.ID)
	e.mu.Lock()
	defer e.mu.Unlock()
	if ok && len(e.now) < maxEnded {
		if e.now == nil {
			e.now = map[[16]byte]bool{}
		}
		e.now[u] = true
	}
}

// turn returns the keys that were revoked a minute ago or more. Call it once a minute: by then every
// decision that began before has ended.
func (e *endedKeys) turn() map[[16]byte]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	ended := e.before
	e.now, e.before = nil, e.now
	return ended
}
