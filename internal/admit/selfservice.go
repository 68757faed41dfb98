package admit

import (
	"errors"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Service is something that a gateway does for the holders of keys itself (plans.md, section 9).
type Service uint8

// The services.
const (
	NoService Service = iota
	Usage             // says what was used of the key's quotas
	Rotate            // rotates the key
)

// serviceOf returns the service at a path below gateway.SelfServicePath, and the methods that it has; NoService if there
// is none, or it is off.
func serviceOf(on gateway.SelfService, path string) (s Service, allow string) {
	switch {
	case on.Usage && path == gateway.SelfServicePath+"usage":
		return Usage, "GET, HEAD"
	case on.Rotate && path == gateway.SelfServicePath+"rotate":
		return Rotate, "POST"
	default:
		return NoService, ""
	}
}

// allows reports whether the service has the method.
func (s Service) allows(method string) bool {
	if s == Rotate {
		return method == "POST"
	}
	return method == "GET" || method == "HEAD"
}

// serve makes the checks of a request to a path that is reserved for self-service: the key, then the path, then the
// method, as for routes, and the limit of self-service. Every key may do this, whatever its scope. It reports false if the
// limit was closed meanwhile.
func (d *decision) serve(s *snapshot.Snapshot, g *snapshot.Gateway, secret, path string) bool {
	v := d.verdict
	v.private = true
	if !d.authenticate(s, g, secret) {
		d.peek(g)
		return true
	}
	service, allow := serviceOf(g.SelfService, path)
	switch {
	case service == NoService:
		v.refuse(accesslog.NoRoute, fault.RouteNotFound, "")
		v.Host = d.target.host
		d.peek(g)
		return true
	case !service.allows(d.req.Method):
		v.refuse(accesslog.NoMethod, fault.MethodNotAllowed, "")
		v.Host = d.target.host
		v.Allow = allow
		d.peek(g)
		return true
	}
	v.Charge.Clear()
	if !g.AddHolderLimit(&v.Charge, v.Caller) {
		v.refuse(accesslog.Failed, fault.Unavailable, noRoom)
		d.peek(g)
		return true
	}
	admitted, decided := d.take()
	if admitted {
		v.Action, v.Service = Serve, service
		// The request counts in no usage record, and its response shows the limits of the key.
		d.limiter.Settle(&v.Charge, &ratelimit.Used{})
		v.Charge.Clear()
		v.Caller.AddLimits(&v.Charge)
		d.peek(g)
	}
	return decided
}

// Deny turns v, which has the action Serve, into the refusal err, a *fault.Error that the service has returned.
func (v *Verdict) Deny(err error) {
	var e *fault.Error
	if !errors.As(err, &e) || v.Action != Serve {
		return
	}
	v.denied = e
	v.refuse(resultOf(e), e.Code, e.Message)
	v.Auth = e.Auth
	if l := e.Limit; l != nil {
		wait := max(1, l.ResetAt-v.Now.Wall/1e9)
		v.Charge.Refuse(ratelimit.Status{
			Scope: ratelimit.SelfServiceScope, Limit: l.Limit, Window: l.Window, ResetAt: l.ResetAt, ResetIn: wait, RetryAfter: wait,
		})
	}
}

// resultOf returns what the access record says of an error of a service.
func resultOf(e *fault.Error) accesslog.Result {
	switch e.Code {
	case fault.Unauthorized:
		if e.Auth == fault.KeyExpired {
			return accesslog.KeyExpired
		}
		return accesslog.KeyInvalid
	case fault.Forbidden:
		if e.Auth == fault.OwnerSuspended {
			return accesslog.OwnerSuspended
		}
		return accesslog.WrongScope
	case fault.RouteNotFound:
		return accesslog.NoRoute
	case fault.RateLimitExceeded:
		return accesslog.Limited
	case fault.Internal, fault.Unavailable:
		return accesslog.Failed
	case fault.InvalidRequest, fault.InvalidJSON, fault.BodyTooLarge:
		return accesslog.Malformed
	default:
		return accesslog.SelfServed
	}
}
