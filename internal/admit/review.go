package admit

import (
	"net/netip"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/token"
)

// Lease says whether this node may decide by the configuration that it has.
type Lease interface {
	// Held reports whether every change that was answered before the call is in force on this
	// node, or the operator has chosen to go on without this while the database is lost. It does
	// not block.
	Held() bool
}

// unconfirmed is the public message of a 503 on a node that does not hold its lease.
const unconfirmed = "this node cannot reach its database, and so cannot confirm its configuration: try again"

// Review compares admitted requests with the configuration in force at one moment: once more before
// a request goes upstream, and in each pass over long exchanges. It is for one goroutine. The zero
// value finds that everything may go on.
type Review struct {
	snapshot *snapshot.Snapshot
	limiter  *ratelimit.Limiter
	version  uint64 // of snapshot
	lost     bool   // the lease is not held
	ending   bool   // there may be a target at which nothing may go on
	now      func() ratelimit.Instant
	read     bool // at is set
	at       ratelimit.Instant
}

// Unchanged reports whether nothing but the time has changed since v admitted a request, so that no
// review is needed. It takes a few nanoseconds beside the check of the lease.
func (a *Admitter) Unchanged(v *Verdict) bool {
	return a.held() && a.cfg.Follower.Version() == v.version
}

// Review begins a review by the configuration that is now in force.
func (a *Admitter) Review() Review {
	// The order matters: what is loaded last is at least as new as the lease and the version say.
	r := Review{lost: !a.held(), limiter: a.limiter, version: a.cfg.Follower.Version(), now: a.cfg.Now}
	r.snapshot = a.cfg.Follower.Current()
	r.ending = a.cfg.Follower.Fleet().Ending()
	return r
}

// held reports whether the lease is held. Without one, it always is.
func (a *Admitter) held() bool { return a.cfg.Lease == nil || a.cfg.Lease.Held() }

// Now returns the time of the review: the time of the first call.
func (r *Review) Now() ratelimit.Instant {
	if !r.read && r.now != nil {
		r.read, r.at = true, r.now()
	}
	return r.at
}

// Admission is what an admitted request depends on for as long as its exchange lasts. It keeps no
// gateway alive.
type Admission struct {
	gatewayID, accountID string
	principal            *token.Principal // of a token; else nil
	caller               *snapshot.Caller
	client               netip.Addr
	method, path         string // path is not normalized
	seen                 uint64 // the version of the configuration by which it was last found to hold
	expires              int64  // when the caller's credential expires, in microseconds since 1970; 0 means never
	ending               *balance.Ending
}

// SetEnding sets when the request must end because of its target; nil for never.
func (a *Admission) SetEnding(e *balance.Ending) { a.ending = e }

// Ending reports whether there may be a target at which requests must end, so that Admission.SetEnding is to be called before
// the next call of Cut.
func (r *Review) Ending() bool { return r.ending }

// ends reports whether the target was taken away for so long that requests there must end.
func (r *Review) ends(a *Admission) bool {
	return r.ending && a.ending != nil && a.ending.Ends(time.Duration(r.Now().Mono))
}

// Admission returns what v, which admits a request with the method, depends on. It shares the
// strings of v and method.
func (v *Verdict) Admission(method string) Admission {
	a := Admission{method: method, path: v.Path, caller: v.Caller, client: v.client, seen: v.version, expires: v.Caller.Expires(), principal: v.Principal}
	if p := v.Principal; p != nil {
		a.expires = p.ExpiresAt.UnixMicro() // without the leeway, which counts for new requests alone
	}
	if g := v.Gateway; g != nil {
		a.gatewayID, a.accountID = g.ID, g.AccountID
	}
	return a
}

// Clone returns a copy that shares no memory with the request.
func (a *Admission) Clone() *Admission {
	other := *a
	other.method, other.path = strings.Clone(a.method), strings.Clone(a.path)
	return &other
}

// Unchanged reports whether nothing has changed since a was last found to hold: the lease is held,
// the configuration is the same, and the caller's credential has not expired. It is cheap.
func (r *Review) Unchanged(a *Admission) bool {
	return !r.lost && !r.ends(a) && (r.version == a.seen || r.snapshot == nil) && (a.expires == 0 || r.Now().Wall/1000 < a.expires)
}

// Result returns accesslog.Forwarded if the request would still be admitted, apart from limits;
// otherwise it returns the result that the request would have now. Routes do not count: a change of
// routes says nothing about an exchange that has begun.
func (r *Review) Result(a *Admission) accesslog.Result { return r.resultOf(a, false) }

// resultOf is Result. Maintenance does not count for an exchange that has begun.
func (r *Review) resultOf(a *Admission, begun bool) accesslog.Result {
	switch {
	case r.lost:
		return accesslog.Failed
	case r.Unchanged(a):
		return accesslog.Forwarded
	}
	g := r.snapshot.Serving(a.gatewayID, a.accountID)
	switch {
	case g == nil:
		return accesslog.NoGateway
	case !g.Addresses.Allows(a.client):
		return accesslog.AddressDenied
	case !begun && g.Maintenance != nil && !g.Maintenance.Exempts(a.client):
		return accesslog.Maintenance
	}
	result := r.resultOfCaller(a)
	if result == accesslog.Forwarded {
		a.seen = r.version
	}
	return result
}

// resultOfCaller is the part of Result that depends on the caller.
func (r *Review) resultOfCaller(a *Admission) accesslog.Result {
	if a.caller.Kind() == snapshot.Nobody { // the route is public
		return accesslog.Forwarded
	}
	if a.principal != nil {
		return r.resultOfPrincipal(a)
	}
	c := r.snapshot.Renewed(a.caller)
	if c == nil || c.AccountID() != a.accountID {
		return accesslog.KeyInvalid
	}
	a.expires = c.Expires()
	if c.ExpiredAt(r.Now().Wall / 1000) {
		return accesslog.KeyExpired
	}
	if only := c.GatewayID(); only != "" && only != a.gatewayID {
		return accesslog.WrongGateway
	}
	if c.OwnerSuspended() {
		return accesslog.OwnerSuspended
	}
	if !c.AllowsAddress(a.client) {
		return accesslog.AddressDenied
	}
	var room [512]byte
	if c != a.caller && !c.Allows(a.method, gateway.NormalizePath(room[:0], a.path)) {
		return accesslog.WrongScope
	}
	return accesslog.Forwarded
}

// resultOfPrincipal is resultOfCaller for a token. A token that was verified stays verified when its issuer is changed: the
// gateway must take tokens of the issuer still, and no denial may refuse it.
func (r *Review) resultOfPrincipal(a *Admission) accesslog.Result {
	i := r.snapshot.GatewayByID(a.gatewayID).IssuerByID(a.principal.IssuerID)
	now := r.Now()
	switch {
	case i == nil || i.AccountID() != a.accountID || i.Denies(a.principal, wallOf(now)):
		return accesslog.KeyInvalid
	case a.caller.ExpiredAt(now.Wall / 1000):
		return accesslog.KeyExpired
	case a.caller.OwnerSuspended():
		return accesslog.OwnerSuspended
	default:
		return accesslog.Forwarded
	}
}

// Cut is Result for a long exchange. A change that concerns its caller ends it only if the gateway's
// setting cut_streams says so. Whatever the setting, it ends with its gateway and with the lease, and with
// accesslog.Unreachable at a target that was taken away for longer than the gateway's drain_timeout (targets.md, section 6).
func (r *Review) Cut(a *Admission) accesslog.Result {
	if r.ends(a) {
		return accesslog.Unreachable
	}
	result := r.resultOf(a, true)
	if p := a.principal; p != nil && result == accesslog.Forwarded && r.Now().Wall/1000 >= p.ExpiresAt.UnixMicro() {
		result = accesslog.KeyExpired
	}
	switch result {
	case accesslog.Forwarded, accesslog.Failed, accesslog.NoGateway:
		return result
	}
	if g := r.snapshot.Serving(a.gatewayID, a.accountID); g != nil && !g.CutStreams {
		return accesslog.Forwarded
	}
	return result
}

// Withdraw turns v, which admitted a request, into a refusal with the given result of Review.Result, at
// the review r. used is what the request has used, or nil if it has not gone upstream; then what it was charged is
// given back.
func (v *Verdict) Withdraw(result accesslog.Result, r *Review, used *ratelimit.Used) {
	if v.Action != Forward {
		return
	}
	if used == nil {
		r.limiter.Release(&v.Charge)
	} else {
		r.limiter.Settle(&v.Charge, used)
	}
	v.Action = Refuse
	switch result {
	case accesslog.NoGateway:
		v.Charge.Keep()
		v.refuse(result, fault.GatewayNotFound, "")
		if r.snapshot.GatewayByID(v.Gateway.ID) != nil {
			v.reason = withdrawn
		}
		return
	case accesslog.KeyInvalid:
		v.unauthorized(result, fault.KeyInvalid)
		v.Charge.Keep(ratelimit.GlobalScope)
		if v.Principal != nil {
			v.Auth = fault.TokenInvalid
		} else {
			v.RevokedKey = v.Caller.UUID()
		}
		v.Caller = nil
	case accesslog.KeyExpired:
		v.unauthorized(result, fault.KeyExpired)
		if v.Principal != nil {
			v.Auth = fault.TokenExpired
		}
		v.Charge.Keep(ratelimit.GlobalScope)
	case accesslog.WrongGateway, accesslog.OwnerSuspended:
		v.forbid(result)
		v.Route = [16]byte{} // as before check 5
		v.Charge.Keep(ratelimit.KeyScope, ratelimit.KeyDailyScope, ratelimit.KeyConcurrencyScope, ratelimit.PlanScope, ratelimit.ConcurrencyScope, ratelimit.GlobalScope)
	case accesslog.WrongScope:
		v.forbid(result)
	case accesslog.AddressDenied:
		v.denyAddress(accesslog.AddressTaken)
		v.Route = [16]byte{} // as before check 5
		if g := r.snapshot.GatewayByID(v.Gateway.ID); g != nil && !g.Addresses.Allows(v.client) {
			v.Charge.Keep(ratelimit.GlobalScope)
			break
		}
		v.Charge.Keep(ratelimit.KeyScope, ratelimit.KeyDailyScope, ratelimit.KeyConcurrencyScope, ratelimit.PlanScope, ratelimit.ConcurrencyScope, ratelimit.GlobalScope)
	case accesslog.Maintenance:
		v.maintain(r.maintenanceOf(v))
		v.Route = [16]byte{}
		v.Charge.Keep(ratelimit.GlobalScope)
	default:
		v.refuse(result, fault.Unavailable, unconfirmed)
		v.Charge.Keep(ratelimit.GlobalScope)
		v.unconfirmed = true
	}
	r.limiter.Peek(r.Now(), &v.Charge)
}

// maintenanceOf returns the maintenance of the gateway of v at the review, which has found that it is under maintenance.
func (r *Review) maintenanceOf(v *Verdict) *snapshot.Maintenance {
	if g := r.snapshot.GatewayByID(v.Gateway.ID); g != nil && g.Maintenance != nil {
		return g.Maintenance
	}
	return &snapshot.Maintenance{Message: gateway.DefaultMaintenance}
}

// Settle makes what an admitted request was charged what it has used, at its end (Limiter.Settle).
func (a *Admitter) Settle(c *ratelimit.Charge, used *ratelimit.Used) { a.limiter.Settle(c, used) }

// Extend charges an admitted request what it has used beyond what it was charged, while it goes on.
func (a *Admitter) Extend(c *ratelimit.Charge, used *ratelimit.Used) { a.limiter.Extend(c, used) }

// GiveBack takes back what an admitted request was charged, because nothing of it has reached its upstream,
// and sets its statuses as for a response that charges nothing. The response is still the engine's.
func (a *Admitter) GiveBack(v *Verdict) {
	if v.Action != Forward {
		return
	}
	a.limiter.Release(&v.Charge)
	a.limiter.Peek(a.cfg.Now(), &v.Charge)
}
