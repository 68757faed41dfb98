package admit

import (
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Action tells a driver what to do with the request.
type Action uint8

// The outcomes.
const (
	Refuse    Action = iota // answer with Verdict.Fault
	Forward                 // every limit is charged: forward to Gateway.Upstream
	Preflight               // answer 204 without a body
	Wait                    // call Admitter.Wait, then decide again
)

// Verdict is the end of a decision. It belongs to the caller, who may use it
// resetDecision for the next request; its strings are parts of the request's.
type Verdict struct {
	Action Action

	// Now is when the decision began.
	Now ratelimit.Instant

	// Code is why the request is refused, and Auth the authentication code of
	// a 401 or 403.
	Code fault.Code
	Auth fault.AuthCode
	// Close tells that the connection must end after the answer: the request
	// was not well formed.
	Close bool

	Gateway *snapshot.Gateway // nil before the gateway is found
	Route   *snapshot.Route   // nil if none matched, and before the key was accepted
	Key     *snapshot.Key     // nil if no key of the gateway's account was given, and on public routes

	// Authenticated tells that checks 3 and 4 of contract 4.2 were made, however
	// they ended.
	Authenticated bool

	// KeyPrefix is the prefix of a key string that was given and has a key's
	// form and checksum, known or not. "" on public routes.
	KeyPrefix string

	// Path is the path to forward, byte for byte.
	Path string
	// Allow is the value of the field Allow of a 405.
	Allow string
	// AllowOrigin is the value of Access-Control-Allow-Origin, or "". VaryOrigin
	// tells that the answer depends on Origin.
	AllowOrigin string
	VaryOrigin  bool

	reason               string // of a refusal, where the code does not say enough
	queryHead, queryTail string // the query to forward is their concatenation
	hasQuery             bool

	daily       *ratelimit.Daily // what Wait waits for
	statusCount int              // how many standings there are
	worst       int              // the one that the headers tell
	statuses    [4]ratelimit.Status
}

// reset makes v a verdict that says nothing. Standings beyond applied are never
// read.
func (v *Verdict) reset() {
	v.resetDecision()
	v.Close, v.Path, v.queryHead, v.queryTail, v.hasQuery = false, "", "", "", false
}

// resetDecision forgets what a decision that must be made again has said.
func (v *Verdict) resetDecision() {
	v.Action, v.Code, v.Auth, v.reason = Refuse, "", "", ""
	v.Gateway, v.Route, v.Key, v.KeyPrefix, v.Authenticated = nil, nil, nil, "", false
	v.Allow, v.AllowOrigin, v.VaryOrigin = "", "", false
	v.daily, v.statusCount, v.worst = nil, 0, -1
}

func (v *Verdict) refuse(code fault.Code, reason string) {
	v.Action, v.Code, v.reason = Refuse, code, reason
}

func (v *Verdict) unauthorized(code fault.AuthCode) bool {
	v.refuse(fault.Unauthorized, "")
	v.Auth = code
	return false
}

func (v *Verdict) forbid(reason string) {
	v.refuse(fault.Forbidden, reason)
	v.Auth = fault.ScopeInsufficient
}

// HasQuery reports whether the forwarded target has a "?".
func (v *Verdict) HasQuery() bool { return v.hasQuery }

// AppendTarget appends the path and query to forward: what the client sent less
// any api_key parameter.
func (v *Verdict) AppendTarget(dst []byte) []byte {
	dst = append(dst, v.Path...)
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

// Statuses returns where the limits stand after the decision; worst is the
// index of the one that X-RateLimit-* tell, or -1 if there are none.
func (v *Verdict) Statuses() (all []ratelimit.Status, worst int) {
	return v.statuses[:v.statusCount], v.worst
}

// Fault returns the error of a refusal, for fault.Response; nil for any other
// outcome.
func (v *Verdict) Fault() *fault.Error {
	if v.Action != Refuse || v.Code == "" {
		return nil
	}
	e := &fault.Error{Code: v.Code, Auth: v.Auth, Message: v.message()}
	if v.Code == fault.RateLimitExceeded {
		s := &v.statuses[v.worst]
		e.Limit = &fault.Limit{Limit: s.Limit, Remaining: 0, ResetAt: s.ResetAt, Scope: s.Scope.String()}
	}
	return e
}

// message returns the public message of a refusal.
func (v *Verdict) message() string {
	if v.reason != "" {
		return v.reason
	}
	switch v.Code {
	case fault.MethodNotAllowed:
		return "the method is not allowed here; the field Allow lists those that are"
	case fault.TargetTooLong:
		return "the request target is longer than 16 KiB"
	case fault.GatewayNotFound:
		return "no gateway has this host"
	case fault.RouteNotFound:
		return "the gateway has no route for this path"
	case fault.Unauthorized:
		if v.Auth == fault.KeyExpired {
			return "the key has expired"
		}
		return "the key is missing or not valid: send it as Authorization: Bearer <key>"
	case fault.RateLimitExceeded:
		switch v.statuses[v.worst].Scope {
		case ratelimit.KeyScope:
			return "the key's rate limit is used up; try again after Retry-After seconds"
		case ratelimit.DailyScope:
			return "the route's daily limit is used up; try again after Retry-After seconds"
		case ratelimit.GlobalScope:
			return "the gateway's rate limit is used up; try again after Retry-After seconds"
		default:
			return "the route's rate limit is used up; try again after Retry-After seconds"
		}
	default:
		return "the request is not valid"
	}
}
