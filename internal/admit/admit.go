package admit

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/token"
)

// Config configures an Admitter. Every field but Mono, Lease and Renewer is required.
type Config struct {
	Follower *snapshot.Follower
	// Now reads the monotonic and the wall clock. It must be the same function as
	// snapshot.Config.Now.
	Now func() ratelimit.Instant
	// Mono reads the monotonic clock of Now alone. Nil means that Now is read.
	Mono func() int64
	// Lease says whether this node may decide at all. Nil means that it always may.
	Lease Lease
	// Renewer fetches newer keys for tokens that need them. Nil means that there are none.
	Renewer issuer.Renewer
}

// Admitter decides requests. It is safe for concurrent use.
type Admitter struct {
	cfg      Config
	limiter  *ratelimit.Limiter
	failures *failures
	tokens   *token.Verifier
	trimmed  atomic.Int64 // when the memory of tokens was trimmed last, by the monotonic clock
}

// New returns an Admitter. The only error is a missing field of cfg.
func New(cfg Config) (*Admitter, error) {
	switch {
	case cfg.Follower == nil:
		return nil, errors.New("admit: Config.Follower is required")
	case cfg.Now == nil:
		return nil, errors.New("admit: Config.Now is required")
	}
	if cfg.Mono == nil {
		cfg.Mono = func() int64 { return cfg.Now().Mono }
	}
	now := func() time.Time { return wallOf(cfg.Now()) }
	return &Admitter{cfg: cfg, limiter: ratelimit.NewLimiter(cfg.Mono), failures: newFailures(), tokens: token.New(token.Config{Now: now, Renew: cfg.renew()})}, nil
}

// renew returns what waits for newer keys of an issuer, or nil.
func (cfg *Config) renew() func(ctx context.Context, i *token.Issuer) bool {
	if cfg.Renewer == nil {
		return nil
	}
	follower, renewer := cfg.Follower, cfg.Renewer
	return func(ctx context.Context, i *token.Issuer) bool {
		renewer.Renew(ctx, i.AccountID(), i.ID())
		return follower.IssuerByID(i.ID()) != i
	}
}

// Decide makes the checks of contract 4.2, in their order, and fills v with the verdict on
// req. It overwrites the previous contents of v.
func (a *Admitter) Decide(req *Request, v *Verdict) {
	v.reset()
	v.Now, v.client = a.cfg.Now(), req.Client
	d := decision{req: req, verdict: v, follower: a.cfg.Follower, limiter: a.limiter, failures: a.failures, tokens: a.tokens, now: v.Now, fits: true}
	if code, reason := d.target.read(req); code != "" {
		v.refuse(accesslog.Malformed, code, reason)
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
	d.lost = !a.held()
	for {
		// In this order: the snapshot is at least as new as the lease and the version say.
		v.version = a.cfg.Follower.Version()
		if d.decide(a.cfg.Follower.Current(), path) {
			if v.Action == Refuse {
				a.limiter.Release(&v.Charge)
				v.refuseFailing()
			}
			return
		}
		// A limit was changed during this decision. The snapshot with the new limit is
		// published at once.
		runtime.Gosched()
		d.now, d.known, d.fits = a.cfg.Now(), false, true
		v.resetDecision()
	}
}

// allowedMethods is the Allow header for a method that is refused on every path.
const allowedMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// Wait waits until what v has the action Wait for can be decided: until a token was verified, a daily cap has
// something reserved, or the limit store has answered. The caller must then call Decide again with the same request. The
// error is ctx.Err(), or has the code fault.Unavailable if the store cannot be reached.
func (a *Admitter) Wait(ctx context.Context, v *Verdict) error {
	if v.unverified.compact != "" {
		return a.verify(ctx, v)
	}
	err := v.Charge.Wait(ctx)
	if err != nil {
		a.limiter.Release(&v.Charge)
	}
	return err
}

// decision is the state of one call of Decide.
type decision struct {
	req      *Request
	verdict  *Verdict
	follower *snapshot.Follower
	limiter  *ratelimit.Limiter
	failures *failures
	tokens   *token.Verifier
	target   target
	lost     bool // the lease is not held
	known    bool // who calls is known, and the limits of plans are still to be added
	fits     bool // there is room to count the caller's own limits
	now      ratelimit.Instant
}

// decide makes the checks from the gateway on. It reports false if a limit was closed
// meanwhile: the decision must then be made again. path must be normalized by
// gateway.NormalizePath.
func (d *decision) decide(s *snapshot.Snapshot, path string) bool {
	v := d.verdict
	g := s.GatewayByHost(d.target.host)
	if d.lost {
		v.refuse(accesslog.Failed, fault.Unavailable, unconfirmed)
		v.unconfirmed = true
		if g != nil {
			v.Gateway = g.Settings
			d.preflight(g) // so that scripts can read the response
			d.peek(g)
		}
		return true
	}
	if d.target.encoded && (g == nil || !g.EncodedSlashes) {
		v.refuse(accesslog.Malformed, fault.InvalidRequest, gateway.EncodedSlash)
		v.Close = true
		return true
	}
	if g == nil {
		v.refuse(accesslog.NoGateway, fault.GatewayNotFound, "")
		v.Host = d.target.host
		if s.Withdrawn(d.target.host) {
			v.reason = withdrawn
		}
		return true
	}
	v.Gateway = g.Settings
	if g.OutOfService || g.LacksIssuer {
		v.refuse(accesslog.Failed, fault.Unavailable, "this node cannot use the newest configuration of the gateway")
		d.peek(g)
		return true
	}
	preflight := d.preflight(g)
	switch m := g.Maintenance; {
	case !g.Addresses.Allows(d.req.Client):
		v.denyAddress(accesslog.GatewayAddresses)
		d.peek(g)
		return true
	case preflight:
		v.Action = Preflight
		d.peek(g)
		return true
	case m != nil && !m.Exempts(d.req.Client):
		v.maintain(m)
		d.peek(g)
		return true
	}
	own := g.SelfService.Reserves() && strings.HasPrefix(path, gateway.SelfServicePath)
	// The route determines which credential is required. Whether there is a route is revealed only after one was accepted.
	// Until then a search may do little work: if that is not enough to find the route, a key is required.
	var m match
	searched := !own && (g.HasPublic() || g.TakesTokens()) && m.find(g.FindOpen(path))
	takes := m.takes(g, d.req.Method, searched)
	c := d.credentials(g, takes, !own)
	if own && !c.several {
		return d.serve(s, g, c.key, path)
	}
	if !d.identify(s, g, takes, &c) {
		if v.Action != Wait {
			d.peek(g)
		}
		return true
	}
	return d.route(g, m, searched, takes.nothing(), path)
}

// severalKeys is the message of a 400.
const severalKeys = "the request has more than one key: send one, in a header or in the parameter api_key"

// route makes the checks from the route on, for a caller that is authenticated, or with public of a request that needs no
// credential. m is the node that was found, if searched says that the search came to an end.
func (d *decision) route(g *snapshot.Gateway, m match, searched, public bool, path string) bool {
	v := d.verdict
	searched = searched || m.find(g.Find(path))
	var route *snapshot.Route
	if m.node != nil {
		route = m.node.Route(d.req.Method)
	}
	switch {
	case !searched:
		v.refuse(accesslog.Failed, fault.Unavailable, "the gateway's routes have so many alternatives for this path that the search for one was given up")
		d.peek(g)
		return true
	case m.node == nil:
		v.refuse(accesslog.NoRoute, fault.RouteNotFound, "")
		v.Host = d.target.host
		d.peek(g)
		return true
	case route == nil:
		v.refuse(accesslog.NoMethod, fault.MethodNotAllowed, "")
		v.Host = d.target.host
		v.Allow = m.node.Allow()
		d.peek(g)
		return true
	}
	v.Route, v.Upstream = route.UUID, g.UpstreamOf(route)
	if !route.AllowsAddress(d.req.Client) {
		v.denyAddress(accesslog.RouteAddresses)
		d.peek(g)
		return true
	}
	return d.charge(g, route, public, path)
}

// match is the node that a search found; nil if none matches.
type match struct{ node *snapshot.Node }

// find keeps what a search found, and reports whether it came to an end.
func (m *match) find(n *snapshot.Node, ok bool) bool {
	m.node = n
	return ok
}

// accepted says which credentials a request may have; neither for a request that needs none.
type accepted struct{ keys, tokens bool }

// nothing reports whether the request needs no credential.
func (a accepted) nothing() bool { return !a.keys && !a.tokens }

// takes returns what a request to g with the method may have: what its route accepts or, if there is none for the method,
// nothing if all routes of the node are public. Otherwise both, so that a search without a result says nothing about the
// routes; but a key alone if the search did not come to an end.
func (m *match) takes(g *snapshot.Gateway, method string, searched bool) accepted {
	if searched && m.node != nil {
		if route := m.node.Route(method); route != nil {
			keys, tokens := g.Takes(route)
			return accepted{keys: keys, tokens: tokens}
		}
		if g.PublicNode(m.node) {
			return accepted{}
		}
	}
	return accepted{keys: true, tokens: searched && g.TakesTokens()}
}

// preflight reports whether the request is a CORS preflight, and sets the verdict's CORS
// fields.
func (d *decision) preflight(g *snapshot.Gateway) bool {
	v := d.verdict
	if g.CORS == nil {
		return false
	}
	v.AllowOrigin, v.VaryOrigin = g.CORS.AllowOrigin(d.req.Origin), !g.CORS.Any
	if d.req.Method != "OPTIONS" || d.req.Origin == "" || d.req.PreflightMethod == "" {
		return false
	}
	v.preflight = g.CORS
	return true
}

// credential returns the key string of the request, from the key header that is present, else from
// the parameter api_key if inQuery allows it; "" if there is none. single is false if there are two key headers, or two
// of the same name, or two parameters.
func (d *decision) credential(g *snapshot.Gateway, inQuery bool) (secret string, single bool) {
	found := false
	switch {
	case d.target.apiKeys > 1:
		return "", false
	case g.KeyHeaders == nil: // only Authorization
		if d.req.Authorizations > 1 {
			return "", false
		}
		secret, found = bearer(d.req.Authorization)
	default:
		for i := range g.KeyHeaders {
			value, ok, single := d.keyHeader(&g.KeyHeaders[i])
			if !single || ok && found {
				return "", false
			}
			if ok {
				secret, found = value, true
			}
		}
	}
	if !found && inQuery && d.target.apiKeys > 0 {
		secret = decode(d.target.apiKey)
	}
	return secret, true
}

// keyHeader returns the key that a header holds. ok is false if the header is absent, or is
// an Authorization with another scheme than Bearer. single is false if there are two.
func (d *decision) keyHeader(h *snapshot.KeyHeader) (secret string, ok, single bool) {
	if h.Authorization {
		secret, ok = bearer(d.req.Authorization)
		return secret, ok, d.req.Authorizations <= 1
	}
	value, count := d.req.Header.HeaderValue(h.Name)
	return value, count > 0, count <= 1
}

// authenticate makes checks 3 and 4 with the key string secret, and then refuses a suspended owner, and an address that
// the key's lists do not allow. If the key passes them, its limits apply.
func (d *decision) authenticate(s *snapshot.Snapshot, g *snapshot.Gateway, secret string) bool {
	v := d.verdict
	v.Authenticated = true
	k, hidden := d.find(s, secret), false
	if k == nil {
		d.findRevoked(secret, g)
		k, hidden = d.findImported(s, g, secret)
	}
	if k == nil || k.AccountID() != g.AccountID {
		v.unauthorized(accesslog.KeyInvalid, fault.KeyInvalid)
		if v.KeyReason = d.whyInvalid(g, secret); hidden {
			v.KeyReason = accesslog.AddressFailed
			return false
		}
		d.failed(s)
		return false
	}
	v.Caller, v.holder = &k.Caller, &k.Caller
	now := d.now.Wall / 1000
	if k.ExpiredAt(now) {
		v.unauthorized(accesslog.KeyExpired, fault.KeyExpired)
		d.failed(s)
		return false
	}
	k.MarkUsedAt(now)
	d.fits = k.AddLimits(&v.Charge)
	d.known = true
	if only := k.GatewayID(); only != "" && only != g.ID {
		v.forbid(accesslog.WrongGateway)
		return false
	}
	if k.OwnerSuspended() {
		v.forbid(accesslog.OwnerSuspended)
		return false
	}
	if !k.AllowsAddress(d.req.Client) {
		v.denyAddress(accesslog.KeyAddresses)
		return false
	}
	return true
}

// find returns the gateway-level key whose string is secret, or nil. A string with a known
// digest needs no further check. The checksum only serves to distinguish an unknown key from a
// string that is not a key, for KeyPrefix.
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

// findImported returns the imported key of g's account whose string is secret, or nil. Without one, it sets the verdict's
// RevokedKey as findRevoked does. hidden reports that it has not looked because the client's address has failed too
// often. It costs nothing as long as no account has an imported key.
func (d *decision) findImported(s *snapshot.Snapshot, g *snapshot.Gateway, secret string) (k *snapshot.Key, hidden bool) {
	if !s.HasImported() || !apikey.MayBeImported(secret) {
		return nil, false
	}
	if d.failures.tooMany(clientip.GroupOf(d.req.Client), d.now.Mono) {
		return nil, true
	}
	digest := apikey.ImportedDigest(g.AccountUUID, apikey.DigestOf(secret))
	if k = s.KeyByDigest(digest); k != nil && k.Imported() {
		return k, false
	}
	if keyID, accountID, ok := d.follower.RevokedKey(digest); ok && accountID == g.AccountID {
		d.verdict.RevokedKey = keyID
	}
	return nil, false
}

// failed counts a failed authentication of the client's address, as long as any account has an imported key. A request
// whose key was not looked up because of earlier failures is not counted: else a client with a valid key would keep
// itself out.
func (d *decision) failed(s *snapshot.Snapshot) {
	if s.HasImported() {
		d.failures.add(clientip.GroupOf(d.req.Client), d.now.Mono)
	}
}

// findRevoked sets the verdict's RevokedKey if secret, which find did not find, is the
// string of a gateway-level key that g's account revoked a short time ago. It takes the same time
// for other strings with the form of a key, so that the time of the response reveals nothing.
func (d *decision) findRevoked(secret string, g *snapshot.Gateway) {
	if level, _, ok := apikey.Peek(secret); !ok || level != apikey.GatewayLevel || d.verdict.KeyPrefix == "" {
		return
	}
	if keyID, accountID, ok := d.follower.RevokedKey(apikey.DigestOf(secret)); ok && accountID == g.AccountID {
		d.verdict.RevokedKey = keyID
	}
}

// noRoom is the message of a 503 for a key or address that cannot be counted.
const noRoom = "the limits with per: key or per: address of this account have as many keys and addresses in use as this node can count: try again later, or use fewer keys"

// charge makes checks 6 and 7. The caller of a public route needs no scope. Whether it sends a key does not matter
// there, so that a made-up key is no way around the limit for requests without one.
func (d *decision) charge(g *snapshot.Gateway, r *snapshot.Route, public bool, path string) bool {
	v := d.verdict
	var client clientip.Group
	if g.CountsAddress(r) {
		client = clientip.GroupOf(d.req.Client)
	}
	problem := d.addPlanLimits(g, r)
	if !r.AddLimits(&v.Charge, v.Caller.BucketID(), client) || !d.fits {
		problem = noRoom
	}
	if !public && !v.Caller.Allows(d.req.Method, path) {
		v.forbid(accesslog.WrongScope)
		d.peek(g)
		return true
	}
	if public && !g.AddAnonymousLimit(&v.Charge, client) {
		problem = noRoom
	}
	if problem != "" {
		v.refuse(accesslog.Failed, fault.Unavailable, problem)
		d.peek(g)
		return true
	}
	if !d.handle(g, r) {
		d.peek(g)
		return true
	}
	g.AddLimit(&v.Charge)
	admitted, decided := d.take()
	switch {
	case !admitted:
	case v.Response != nil:
		v.Action, v.Cost = Respond, r.Cost()
	default:
		v.Action, v.Cost = Forward, r.Cost()
		d.split(g, r)
	}
	return decided
}

// take takes what the request is charged. If it cannot, the verdict is a refusal, or that the request must wait. decided is
// false if a limit was closed meanwhile.
func (d *decision) take() (admitted, decided bool) {
	v := d.verdict
	switch d.limiter.Decide(d.now, &v.Charge) {
	case ratelimit.Stale:
		return false, false
	case ratelimit.NeedsReservation, ratelimit.NeedsTicket:
		d.limiter.Peek(d.now, &v.Charge)
		v.Action = Wait
	case ratelimit.Refused:
		v.refuse(accesslog.Limited, fault.RateLimitExceeded, "")
	case ratelimit.Admitted:
		return true, true
	}
	return false, true
}

// addPlanLimits adds the limits of plans, once the caller is known and only once. r is nil if the route is not known. It
// returns "", or why some limit cannot be counted.
func (d *decision) addPlanLimits(g *snapshot.Gateway, r *snapshot.Route) (problem string) {
	if !d.known {
		return ""
	}
	d.known = false
	needs := ratelimit.Used{ratelimit.UseRequest: 1, ratelimit.UseBytesIn: max(0, d.req.Length)}
	d.verdict.plan, problem = g.AddPlanLimits(&d.verdict.Charge, d.verdict.Caller, r, &needs)
	return problem
}

// peek sets the statuses of a response that charges nothing: of the limits that are known
// to apply so far, and of the gateway's global limit.
func (d *decision) peek(g *snapshot.Gateway) {
	d.addPlanLimits(g, nil)
	g.AddLimit(&d.verdict.Charge)
	d.limiter.Peek(d.now, &d.verdict.Charge)
}
