package admit

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/token"
	"github.com/keygate/keygate/internal/validation"
)

// Action is what an engine must do with the request.
type Action uint8

// The actions.
const (
	Refuse    Action = iota // respond with Verdict.Fault
	Forward                 // forward to Verdict.Upstream: every limit is charged
	Preflight               // respond with 204 and no body
	Wait                    // call Admitter.Wait, then decide again
	Respond                 // respond with Verdict.Response: every limit is charged
	Serve                   // let the service Verdict.Service respond to the holder of the key; nothing is charged
)

// Verdict is the result of a decision. It belongs to the caller, who may reuse it for the
// next request. Its strings are parts of the request's.
type Verdict struct {
	Action Action

	// Service is what the holder of a key asks for, if the action is Serve.
	Service Service

	// Now is when the decision began.
	Now ratelimit.Instant

	// Code is the reason of a refusal, and Auth the code that the response has beside it.
	Code fault.Code
	Auth fault.AuthCode
	// Close is set if the connection must be closed after the response, because the request
	// was malformed.
	Close bool

	Gateway *snapshot.Settings // nil if no gateway was found
	// Upstream is where the request goes, if the action is Forward. If it is Wait, it is the route's.
	Upstream *snapshot.Upstream
	// SideReason says why the request goes to Upstream, if a split has decided that; otherwise it is "".
	SideReason string
	// Canary is the canary that has decided that, or nil. CanaryNext is set if the request goes to its upstream, and
	// CanaryCaller is the hash of the caller, which has decided.
	Canary       *snapshot.Canary
	CanaryNext   bool
	CanaryCaller uint64

	Route  [16]byte         // UUID of the route; zeros if none matched, or the key was not accepted
	Caller *snapshot.Caller // nobody without a key of the gateway's account, and on public routes
	// Cost is what the request costs beside itself, if it was admitted; nil for nothing.
	Cost *cost.Program

	// Principal is whom the token identifies with which the request is made, or nil. Issuer is that token's issuer.
	Principal *token.Principal
	Issuer    *token.Issuer
	// Refusal is why a token was refused, or nil. Only records may show it, never the response.
	Refusal *token.Refusal

	// RevokedKey is the identifier of a key of the gateway's account that was revoked within
	// the last 24 hours, or zero. Only records may show it, never the response.
	RevokedKey [16]byte

	// Authenticated is set if checks 3 and 4 of contract 4.2 were made, whether or not they
	// passed.
	Authenticated bool

	// KeyPrefix is the prefix of the key string in the request, known or not, if it has the
	// format and checksum of a key. It is "" on public routes.
	KeyPrefix string

	// KeyReason is what is wrong with a key that is missing or not valid, or whose lists of addresses do not allow the
	// client's. Only records may show it, never the response.
	KeyReason accesslog.Reason

	// Charge is what the request is charged: the limits that are known to apply. If the action is Forward, it
	// has been taken. The end of the exchange settles it, unless Admitter.GiveBack has released it before.
	Charge ratelimit.Charge

	// Path is the path of the request, byte for byte.
	Path string
	// Response is the response of the route, if the action is Respond.
	Response *snapshot.Response
	// Host is the host by which no gateway, no route or no method was found, in lower case and without a port.
	Host string
	// Allow is the value of the Allow header of a 405.
	Allow string
	// AllowOrigin is the value of Access-Control-Allow-Origin, or "". VaryOrigin is set if
	// the response depends on Origin.
	AllowOrigin string
	VaryOrigin  bool

	preflight            *snapshot.CORS   // what a response to a preflight says
	refusal              accesslog.Result // of a refusal
	reason               string           // message of a refusal, if it does not follow from the code
	queryHead, queryTail string           // together, the query to forward
	hasQuery             bool
	stripped             string // the path to forward, if the route cuts a prefix off; otherwise ""

	// Checks is what the request is held against before it is forwarded, or responded to by its route.
	Checks validation.Target

	requestEdits, responseEdits snapshot.Edits // if the action is Forward

	unverified unverified // the token that Wait is to verify
	verified   verified   // what Wait has found
	failing    time.Time  // until when tokens of the address are not checked; zero if they are

	holder      *snapshot.Caller // the caller that was authenticated, even if the request was withdrawn since
	plan        string           // name of the first plan that there is of the key, its owner and the gateway
	version     uint64           // of the configuration that was in force, or of an earlier one
	unconfirmed bool             // the lease is not held
	private     bool             // nobody may store the response: the path is reserved for self-service
	denied      *fault.Error     // the error of Deny
	client      netip.Addr       // the client's address
}

// reset clears v, except for the answers that Wait has got for the charge.
func (v *Verdict) reset() {
	v.resetDecision()
	v.Close, v.Path, v.queryHead, v.queryTail, v.hasQuery = false, "", "", "", false
}

// resetDecision clears what an attempt at the decision has set.
func (v *Verdict) resetDecision() {
	v.Action, v.Code, v.Auth, v.reason = Refuse, "", "", ""
	v.Gateway, v.Upstream, v.Route, v.Caller, v.KeyPrefix, v.Authenticated = nil, nil, [16]byte{}, nil, "", false
	v.RevokedKey, v.KeyReason = [16]byte{}, accesslog.NoReason
	v.Host, v.Allow, v.AllowOrigin, v.VaryOrigin, v.preflight = "", "", "", false, nil
	v.version, v.unconfirmed, v.holder, v.plan = 0, false, nil, ""
	v.Service, v.private, v.denied, v.Cost, v.SideReason = NoService, false, nil, nil, ""
	v.Canary, v.CanaryNext, v.CanaryCaller = nil, false, 0
	v.Principal, v.Issuer, v.Refusal, v.failing, v.unverified = nil, nil, nil, time.Time{}, unverified{}
	v.Response, v.stripped = nil, ""
	v.Checks = validation.Target{}
	v.requestEdits, v.responseEdits = snapshot.Edits{}, snapshot.Edits{}
	v.Charge.Clear()
}

// refuse makes v a refusal. result is what the access record says of it, and reason its public message;
// "" stands for the message of the code.
func (v *Verdict) refuse(result accesslog.Result, code fault.Code, reason string) {
	v.Action, v.refusal, v.Code, v.reason = Refuse, result, code, reason
}

func (v *Verdict) unauthorized(result accesslog.Result, code fault.AuthCode) {
	v.refuse(result, fault.Unauthorized, "")
	v.Auth = code
}

// forbid makes v the 403 for a caller whose key is for another gateway (accesslog.WrongGateway), whose owner is
// suspended (accesslog.OwnerSuspended) or whose key has no scope for the request (accesslog.WrongScope).
func (v *Verdict) forbid(result accesslog.Result) {
	v.refuse(result, fault.Forbidden, "the key's scope does not allow this method on this path")
	v.Auth = fault.ScopeInsufficient
	switch result {
	case accesslog.WrongGateway:
		v.reason = "the key is for another gateway"
	case accesslog.OwnerSuspended:
		v.reason, v.Auth = "the owner of the key is suspended", fault.OwnerSuspended
	}
}

// denyAddress makes v the 403 for a client whose address the lists of what reason names do not allow.
func (v *Verdict) denyAddress(reason accesslog.Reason) {
	v.refuse(accesslog.AddressDenied, fault.Forbidden, "requests from this address are not allowed")
	v.Auth, v.KeyReason = fault.AddressNotAllowed, reason
}

// maintain makes v the 503 of a gateway that is under maintenance.
func (v *Verdict) maintain(m *snapshot.Maintenance) {
	v.refuse(accesslog.Maintenance, fault.Unavailable, m.Message)
	v.Auth = fault.UnderMaintenance
}

// Detail returns what the access record of a refusal says beside its code: the host by which nothing was found, the
// name of the plan's limit that is exceeded, or why a token was refused. Otherwise it is "".
func (v *Verdict) Detail() string {
	if v.Refusal != nil {
		return v.Refusal.Error()
	}
	if v.Code == fault.RateLimitExceeded && v.Charge.Shown() > 0 {
		return v.Charge.Worst().LimitName()
	}
	return v.Host
}

// Unconfirmed reports whether the request was refused because the lease is not held.
func (v *Verdict) Unconfirmed() bool { return v.unconfirmed }

// HasQuery reports whether the target to forward has a "?".
func (v *Verdict) HasQuery() bool { return v.hasQuery }

// AppendTarget appends the path and query to forward, which are the request's without the prefix that the route
// cuts off and without api_key parameters.
func (v *Verdict) AppendTarget(dst []byte) []byte {
	dst = append(dst, cmp.Or(v.stripped, v.Path)...)
	if v.hasQuery {
		dst = append(dst, '?')
		dst = v.AppendQuery(dst)
	}
	return dst
}

// AppendQuery appends the query to forward, without "?".
func (v *Verdict) AppendQuery(dst []byte) []byte {
	return append(append(dst, v.queryHead...), v.queryTail...)
}

// Fault returns the error of a refusal, for fault.Response. It is nil for any other action.
func (v *Verdict) Fault() *fault.Error {
	if v.Action != Refuse || v.Code == "" {
		return nil
	}
	if v.denied != nil {
		return v.denied
	}
	e := &fault.Error{Code: v.Code, Auth: v.Auth, Message: v.message()}
	if v.Code == fault.RateLimitExceeded {
		s := v.Charge.Worst()
		e.Limit = &fault.Limit{Limit: s.Limit, Remaining: 0, ResetAt: s.ResetAt, Scope: s.Scope.String(), Name: s.LimitName()}
		if s.Label.Meter() != "" {
			e.Limit.Units = &fault.Units{Left: s.Left, Needed: s.Needed}
		}
	}
	return e
}

// withdrawn is the message for the host of a gateway whose account is suspended. Another host, or a default
// gateway, would not help the caller.
const withdrawn = "no gateway answers at this host: it was taken out of service"

// message returns the public message of a refusal.
func (v *Verdict) message() string {
	if v.reason != "" {
		return v.reason
	}
	switch v.Code {
	case fault.MethodNotAllowed:
		return "the method is not allowed here; the Allow header lists those that are"
	case fault.TargetTooLong:
		return "the request target is longer than 16 KiB"
	case fault.GatewayNotFound:
		return "no gateway answers at this host: send the hostname of a gateway as Host " +
			"(see keygate gateways list), or set a default gateway with keygate gateways update GATEWAY_ID --default"
	case fault.RouteNotFound:
		return "the gateway has no route for this path"
	case fault.Unauthorized:
		switch v.Auth {
		case fault.TokenInvalid:
			return token.Message
		case fault.TokenExpired:
			return "the token has expired: get a new one from its issuer"
		}
		if v.Auth == fault.KeyExpired {
			return "the key has expired"
		}
		return v.Gateway.KeyMessage
	case fault.RateLimitExceeded:
		s := v.Charge.Worst()
		if s.Needed > s.Limit {
			remedy := "send less in one request"
			meter := cmp.Or(s.Label.Meter(), ratelimit.Requests)
			if use := ratelimit.UseOf(meter); use == ratelimit.UseCost || use == ratelimit.UseRequest {
				remedy = "the plan must allow at least what the route reserves"
			}
			return fmt.Sprintf("%s lets %d %s pass at once, and the request needs %d: %s", s.Exceeded(), s.Limit, meter, s.Needed, remedy)
		}
		why := " is exceeded"
		if meter := s.Label.Meter(); meter != "" {
			why = fmt.Sprintf(" is exceeded, since the request needs %d %s and %d are left", s.Needed, meter, s.Left)
		}
		if s.Scope.Reported() == ratelimit.ConcurrencyScope {
			return fmt.Sprintf("%s allows %d, and so many are under way: try again when one of them has ended", s.Exceeded(), s.Limit)
		}
		return s.Exceeded() + why + ": wait for the number of seconds in the Retry-After header, then try again"
	default:
		return "the request is not valid"
	}
}
