package admit

import (
	"errors"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Record sets r to what the verdict says about the request: its time, account, gateway,
// route, key, and the result. If the request is to be forwarded, the engine must set the
// final result. The status, bytes, times and client remain zero.
func (v *Verdict) Record(r *accesslog.Record) {
	*r = accesslog.Record{Start: v.Now.Wall / 1000, Upstream: -1, Result: v.result(), Authenticated: v.Authenticated}
	if g := v.Gateway; g != nil {
		r.Account, r.Gateway = g.AccountUUID, g.UUID
	}
	r.Route = v.Route
	if r.Key = v.RevokedKey; v.Caller.Kind() == snapshot.KeyCaller {
		r.Key = v.Caller.UUID()
	}
	r.OwnerID = v.holder.OwnerUUID()
	if from, until, kept := v.Charge.Kept(); kept {
		r.SetPeriod(from, until)
	}
	copy(r.Prefix[:], v.KeyPrefix)
	if r.Result == accesslog.Limited {
		s := v.Charge.Worst()
		r.Limit, r.Remaining, r.ResetAt, r.LimitScope = s.Limit, s.Remaining, s.ResetAt, uint8(s.Scope)
		if s.Label.Meter() != "" {
			r.Remaining = s.Left
		}
		if s.Default {
			r.LimitScope = uint8(ratelimit.DefaultGlobalScope)
		}
	}
}

// Owner returns the external ID of the owner of the key that was authenticated, even if the request was withdrawn since;
// otherwise "".
func (v *Verdict) Owner() string { return v.holder.Owner() }

// Token says with whose token the request was made, or was said to be if the token was refused; nil without a token.
func (v *Verdict) Token() *accesslog.Token {
	switch {
	case v.Principal != nil:
		return v.Principal.Recorded
	case v.Refusal != nil && v.Refusal.IssuerID != "":
		return &accesslog.Token{IssuerID: v.Refusal.IssuerID}
	case v.Refusal != nil:
		return &accesslog.Token{}
	}
	return nil
}

// Plan returns the name of the first plan that there is of the caller's key, its owner and the gateway; "" without one.
func (v *Verdict) Plan() string { return v.plan }

// result returns the result of the checks.
func (v *Verdict) result() accesslog.Result {
	switch v.Action {
	case Forward:
		return accesslog.Forwarded
	case Preflight:
		return accesslog.Preflight
	case Respond:
		if v.Response.Redirect != nil {
			return accesslog.Redirected
		}
		return accesslog.Responded
	case Serve:
		return accesslog.SelfServed
	case Wait:
		return accesslog.Failed
	}
	if v.Code == "" { // nothing was decided
		return accesslog.Malformed
	}
	return v.refusal
}

// ResultOf returns the result of a request to which the gateway responds with err, which comes from
// the verdict or from what followed it.
func (v *Verdict) ResultOf(err error) accesslog.Result {
	if v.Action == Refuse && v.Code != "" {
		return v.result()
	}
	var e *fault.Error
	if !errors.As(err, &e) {
		return accesslog.Failed
	}
	switch e.Code {
	case fault.InvalidRequest, fault.BodyTooLarge, fault.UnsupportedMediaType, fault.TargetTooLong, fault.HeaderTooLarge, fault.VersionNotSupported, fault.ProtocolNotSupported, fault.MethodNotAllowed:
		return accesslog.Malformed
	case fault.UpstreamUnreachable:
		return accesslog.Unreachable
	case fault.UpstreamTimeout:
		return accesslog.TimedOut
	default:
		return accesslog.Failed
	}
}
