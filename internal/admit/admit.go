package admit

import (
	"context"
	"errors"
	"runtime"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Config configures an Admitter. Every field is required.
type Config struct {
	Follower *snapshot.Follower
	Reserver *ratelimit.Reserver
	// Now reads the monotonic and the wall clock. It must be the same function as
	// snapshot.Config.Now.
	Now func() ratelimit.Instant
}

// Admitter decides requests. It is safe for concurrent use.
type Admitter struct {
	cfg Config
}

// New returns an Admitter. The only error is a missing field of cfg.
func New(cfg Config) (*Admitter, error) {
	switch {
	case cfg.Follower == nil:
		return nil, errors.New("admit: Config.Follower is required")
	case cfg.Reserver == nil:
		return nil, errors.New("admit: Config.Reserver is required")
	case cfg.Now == nil:
		return nil, errors.New("admit: Config.Now is required")
	}
	return &Admitter{cfg: cfg}, nil
}

// Decide makes the checks of contract 4.2, in their order, and fills v with the verdict on
// req. It overwrites the previous contents of v.
func (a *Admitter) Decide(req *Request, v *Verdict) {
	v.reset()
	v.Now = a.cfg.Now()
	d := decision{req: req, verdict: v, now: v.Now}
	if code, reason := d.target.read(req); code != "" {
		v.refuse(code, reason)
		v.Close = true
		if code == fault.MethodNotAllowed {
			v.Allow = allowedMethods
		}
		return
	}
	t := &d.target
	v.Path, v.queryHead, v.queryTail, v.hasQuery = t.path, t.head, t.tail, t.hasQuery && !t.emptied
	path := t.path
	if !t.normal {
		var room [512]byte
		path = gateway.NormalizePath(room[:0], path)
	}
	for {
		if d.decide(a.cfg.Follower.Current(), path) {
			return
		}
		// A limit was changed during this decision. The snapshot with the new limit is
		// published at once.
		runtime.Gosched()
		d.now = a.cfg.Now()
		v.resetDecision()
	}
}

// allowedMethods is the Allow header for a method that is refused on every path.
const allowedMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// Wait waits until the daily cap for which v has the action Wait can decide. The caller must
// then call Decide again. The error is that of ctx, or has the code fault.Unavailable if the
// store cannot be reached.
func (a *Admitter) Wait(ctx context.Context, v *Verdict) error {
	return a.cfg.Reserver.Wait(ctx, v.daily)
}

// decision is the state of one call of Decide.
type decision struct {
	req     *Request
	verdict *Verdict
	target  target
	now     ratelimit.Instant

	room  [4]ratelimit.Limit
	limit int // number of limits in room that are known to apply
}

// decide makes the checks from the gateway on. It reports false if a limit was closed
// meanwhile: the decision must then be made again. path must be normalized by
// gateway.NormalizePath.
func (d *decision) decide(s *snapshot.Snapshot, path string) bool {
	v := d.verdict
	g := s.GatewayByHost(d.target.host)
	if g == nil {
		v.refuse(fault.GatewayNotFound, "")
		return true
	}
	v.Gateway = g
	if d.preflight(g) {
		v.Action = Preflight
		d.peek(g)
		return true
	}
	// The route determines whether a key is required. Whether there is a route is revealed
	// only after the key was accepted.
	var route *snapshot.Route
	public := false
	node := g.Find(path)
	if node != nil {
		if route = node.Route(d.req.Method); route != nil {
			public = route.Public
		} else {
			public = node.Public
		}
	}
	if d.req.Authorizations > 1 || d.target.apiKeys > 1 {
		v.refuse(fault.InvalidRequest, "the request has more than one key: send one Authorization header or one api_key parameter")
		d.peek(g)
		return true
	}
	if !public && !d.authenticate(s, g) {
		d.peek(g)
		return true
	}
	switch {
	case node == nil:
		v.refuse(fault.RouteNotFound, "")
		d.peek(g)
		return true
	case route == nil:
		v.refuse(fault.MethodNotAllowed, "")
		v.Allow = node.Allow
		d.peek(g)
		return true
	}
	v.Route = route
	return d.charge(g, route, path)
}

// preflight reports whether the request is a CORS preflight, and sets the verdict's CORS
// fields.
func (d *decision) preflight(g *snapshot.Gateway) bool {
	v := d.verdict
	if g.CORS == nil {
		return false
	}
	v.AllowOrigin, v.VaryOrigin = g.CORS.AllowOrigin(d.req.Origin), !g.CORS.Any
	return d.req.Method == "OPTIONS" && d.req.Origin != "" && d.req.PreflightMethod != ""
}

// authenticate makes checks 3 and 4. If the key passes them, its limit applies.
func (d *decision) authenticate(s *snapshot.Snapshot, g *snapshot.Gateway) bool {
	v := d.verdict
	v.Authenticated = true
	secret, ok := bearer(d.req.Authorization)
	if !ok && d.target.apiKeys > 0 {
		secret = decode(d.target.apiKey)
	}
	k := d.find(s, secret)
	if k == nil || k.AccountID() != g.AccountID {
		return v.unauthorized(fault.KeyInvalid)
	}
	v.Key = k
	now := d.now.Wall / 1000
	if k.ExpiredAt(now) {
		return v.unauthorized(fault.KeyExpired)
	}
	k.MarkUsedAt(now)
	if l, ok := k.Limit(); ok {
		d.room[0], d.limit = l, 1
	}
	if only := k.GatewayID(); only != "" && only != g.ID {
		v.forbid("the key is for another gateway")
		return false
	}
	return true
}

// find returns the gateway-level key whose string is secret, or nil. A string with a known
// digest needs no further check. The checksum only serves to tell a key that is unknown
// from a string that is not a key, for KeyPrefix.
func (d *decision) find(s *snapshot.Snapshot, secret string) *snapshot.Key {
	if level, prefix, ok := apikey.Peek(secret); ok && level == apikey.GatewayLevel {
		if k := s.KeyByDigest(apikey.DigestOf(secret)); k != nil && k.Level() == apikey.GatewayLevel {
			d.verdict.KeyPrefix = prefix
			return k
		}
	}
	d.verdict.KeyPrefix = apikey.PrefixOf(secret)
	return nil
}

// charge makes checks 6 and 7.
func (d *decision) charge(g *snapshot.Gateway, r *snapshot.Route, path string) bool {
	v := d.verdict
	var bucket [16]byte
	if v.Key != nil {
		bucket = v.Key.BucketID()
	}
	limits := r.AppendLimits(d.room[:d.limit], bucket)
	d.limit = len(limits)
	if v.Key != nil && !v.Key.Scope().Allows(d.req.Method, path) {
		v.forbid("the key's scope does not allow this method on this path")
		d.peek(g)
		return true
	}
	limits = append(limits, g.Global())
	result, worst := ratelimit.Decide(d.now, limits, v.statuses[:])
	switch result {
	case ratelimit.Stale:
		return false
	case ratelimit.NeedsReservation:
		d.peek(g)
		v.Action, v.daily = Wait, limits[worst].Daily
	case ratelimit.Refused:
		v.refuse(fault.RateLimitExceeded, "")
		v.statusCount, v.worst = len(limits), worst
	case ratelimit.Admitted:
		v.Action = Forward
		v.statusCount, v.worst = len(limits), worst
	}
	return true
}

// peek fills the statuses of a response that charges nothing: of the limits that are known
// to apply so far, and of the gateway's global limit.
func (d *decision) peek(g *snapshot.Gateway) {
	v := d.verdict
	limits := append(d.room[:d.limit], g.Global())
	v.worst = ratelimit.Peek(d.now, limits, v.statuses[:])
	v.statusCount = len(limits)
}
