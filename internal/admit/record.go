package admit

import (
	"errors"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/outcome"
)

// Record makes r say what the verdict knows of the request: what it was about,
// whose it was, and what was decided. For a request that is to be forwarded the
// decision is what becomes of it, which is the driver's to tell. Start is when
// the decision was made; the status, the bytes, the times and the client are left
// as zeros.
func (v *Verdict) Record(r *outcome.Record) {
	*r = outcome.Record{Start: v.Now.Wall / 1000, Upstream: -1, Decision: v.decision(), Authenticated: v.Authenticated}
	if g := v.Gateway; g != nil {
		r.Account, r.Gateway = g.AccountUUID, g.UUID
	}
	if v.Route != nil {
		r.Route = v.Route.UUID
	}
	if v.Key != nil {
		r.Key = v.Key.UUID()
	}
	copy(r.Prefix[:], v.KeyPrefix)
	if r.Decision == outcome.Limited {
		s := &v.standings[v.worst]
		r.Limit, r.Remaining, r.ResetAt, r.LimitScope = s.Limit, s.Remaining, s.ResetAt, uint8(s.Scope)
	}
}

// decision returns how the checks ended.
func (v *Verdict) decision() outcome.Decision {
	switch v.Outcome {
	case Forward:
		return outcome.Forwarded
	case Preflight:
		return outcome.Preflight
	case Wait:
		return outcome.Failed
	}
	switch v.Code {
	case fault.Unauthorized:
		if v.Auth == fault.KeyExpired {
			return outcome.KeyExpired
		}
		return outcome.KeyInvalid
	case fault.RateLimitExceeded:
		return outcome.Limited
	case fault.Forbidden:
		if v.Route == nil { // check 4 comes before the route is told
			return outcome.WrongGateway
		}
		return outcome.WrongScope
	case fault.GatewayNotFound:
		return outcome.NoGateway
	case fault.RouteNotFound:
		return outcome.NoRoute
	case fault.MethodNotAllowed:
		if v.Gateway != nil {
			return outcome.NoMethod
		}
	}
	return outcome.Malformed
}

// Ended returns what ended a request that the gateway answers with err: the
// verdict, or what came after it.
func (v *Verdict) Ended(err error) outcome.Decision {
	if v.Outcome == Refuse && v.Code != "" {
		return v.decision()
	}
	var e *fault.Error
	if !errors.As(err, &e) {
		return outcome.Failed
	}
	switch e.Code {
	case fault.InvalidRequest, fault.BodyTooLarge, fault.TargetTooLong, fault.HeaderTooLarge, fault.VersionNotSupported, fault.MethodNotAllowed:
		return outcome.Malformed
	case fault.UpstreamUnreachable:
		return outcome.Unreachable
	case fault.UpstreamTimeout:
		return outcome.TimedOut
	default:
		return outcome.Failed
	}
}

// MethodOf returns the method of a request as records tell it.
func MethodOf(method string) outcome.Method {
	switch method {
	case "GET":
		return outcome.GET
	case "HEAD":
		return outcome.HEAD
	case "POST":
		return outcome.POST
	case "PUT":
		return outcome.PUT
	case "PATCH":
		return outcome.PATCH
	case "DELETE":
		return outcome.DELETE
	case "OPTIONS":
		return outcome.OPTIONS
	case "CONNECT":
		return outcome.CONNECT
	case "TRACE":
		return outcome.TRACE
	default:
		return outcome.OtherMethod
	}
}
