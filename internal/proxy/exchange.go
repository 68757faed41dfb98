package proxy

import (
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/validation"
)

// requestIDLen is the length of a request's identifier as text.
const requestIDLen = len(id.Request) + 1 + id.TextLen

// Exchange is the part of a request with its response that does not depend on the engine:
// the verdict, the identifier and the access record. An engine sets the exported fields,
// calls Begin once the request was decided, and at the end calls Emit, EmitNoResponse or
// Detach. The zero value is ready to use. An Exchange is not safe for concurrent use: an engine
// that calls EmitStarted from another goroutine must keep this call from overlapping with the call
// at the end.
type Exchange struct {
	// Verdict is the decision about the request.
	Verdict admit.Verdict
	// Method is the request's method, as received.
	Method string
	// Client describes the client's connection.
	Client Client
	// ForwardedFor holds the values of X-Forwarded-For, and Traceparent the value of
	// that field, if there is exactly one.
	ForwardedFor []string
	Traceparent  []byte
	// Major and Minor are the client's version of HTTP.
	Major, Minor uint8
	// Result is the result to record if the gateway itself responds.
	Result accesslog.Result

	cfg            *Config    // nil before Begin
	addr           netip.Addr // the client's; not valid before ReadHead
	start          ratelimit.Instant
	id             [16]byte
	idText         [requestIDLen]byte
	sent           int64 // when the request went to the upstream
	head           int64 // when the head of its response arrived; 0 before
	arrived        int64 // what Arrived has returned last, or 0
	upstreamStatus int
	attempts       uint8                          // how often the request was sent
	target         string                         // host and port of the target to which it was sent last
	sending        bool                           // the attempt there has not ended
	ending         atomic.Pointer[balance.Ending] // when the attempt that runs must end, for sweepers
	answer         balance.Result                 // what the head of its response says about the target
	tried          *attempts                      // those that have ended, from the first that was not OK
	reason         accesslog.Reason               // why there is no response of the upstream
	detail         string                         // the text of that error
	started        bool                           // the record of the start was emitted
	limited        bool                           // the client has set a limit for the duration of the call
	limit          time.Duration                  // that limit
	ended          bool                           // the record of the end was emitted, or the exchange was handed over
	logged         bool                           // why the exchange failed was logged
	responds       bool                           // the response is the route's (admit.Respond)
	served         bool                           // the response is a service's (admit.Serve)
	record         accesslog.Record               // room for the record
	metered        bool                           // limits or costs depend on the bytes of the bodies
	meter          meter
	costs          *costs            // nil if the route has no cost
	check          *validation.Check // nil if the request is not held against a document
	hash           uint64            // by which a target is chosen, if hashed is set
	hashed         bool
	length         int64 // of the request's body; 0 without one, and negative if it is not known
}

// Client describes the connection over which a request arrived.
type Client struct {
	// Peer is the address of the peer, or the source address in the PROXY header of a
	// trusted proxy.
	Peer netip.Addr
	// Trusted is set if the peer is a trusted proxy, whose X-Forwarded-* fields are
	// accepted.
	Trusted bool
	// Shard receives the access records. Nil discards them.
	Shard *accesslog.Shard
}

// Begin starts the exchange at the time of the decision and gives the request its
// identifier.
func (x *Exchange) Begin(cfg *Config, now ratelimit.Instant) {
	x.cfg, x.start = cfg, now
	// With an idle connection to the upstream, the request is sent at once. Otherwise
	// MarkSent corrects this time.
	x.sent = now.Mono
	x.id = cfg.NewRequestID(now.Wall / int64(time.Millisecond))
	id.Append(x.idText[:0], id.Request, x.id)
}

// BeginUndecided starts the exchange of a request without a verdict: it is malformed, or
// the decision panicked.
func (x *Exchange) BeginUndecided(cfg *Config) {
	x.Begin(cfg, ratelimit.Instant{Wall: time.Now().UnixNano(), Mono: cfg.Mono()})
}

// Begun reports whether Begin was called.
func (x *Exchange) Begun() bool { return x.cfg != nil }

// RequestID returns the request's identifier as text. It shares the memory of x.
func (x *Exchange) RequestID() string { return Text(x.idText[:]) }

// MarkSent records that the request is being sent to the upstream now.
func (x *Exchange) MarkSent() { x.sent = x.cfg.Mono() }

// Arrived returns the time by Mono: the head of a response has just arrived. A call of MarkResponse for this head takes that time,
// so that the clock is read once.
func (x *Exchange) Arrived() time.Duration {
	x.arrived = x.cfg.Mono()
	return time.Duration(x.arrived)
}

// MarkResponse records that the head of the upstream's final response has arrived. Only the
// first call has an effect.
func (x *Exchange) MarkResponse(head []byte, r *http1.Response) {
	if x.head == 0 {
		if x.arrived == 0 {
			x.arrived = x.cfg.Mono()
		}
		x.head, x.upstreamStatus = x.arrived, r.Status
		x.costs.readHead(head, r)
	}
}

// ResponseAt returns the time of MarkResponse, or 0 before it.
func (x *Exchange) ResponseAt() int64 { return x.head }

// CheckForward returns an error for an admitted request that must not be forwarded. It must be
// called before HeadTimeout and CallTimeout.
//
// A request is not forwarded if length, the declared length of its body (0 without one, negative if unknown),
// exceeds the limit, if loops says that it has already passed through this instance, or if it is a
// gRPC call with a timeout of 0. header is the request's.
func (x *Exchange) CheckForward(header admit.Header, length int64, loops bool) error {
	x.limit, x.limited, x.length = 0, false, length
	x.limit, x.limited = callTimeout(header)
	x.readHash(header)
	x.costs = newCosts(x.Verdict.Cost)
	x.metered = x.Verdict.Cost.ReadsResponse() || x.Verdict.Charge.IsMetered()
	if limit := x.Verdict.Gateway.MaxBodyBytes; limit > 0 && length > limit {
		return BodyTooLarge(limit)
	}
	if loops {
		return Loop()
	}
	if x.limited && x.limit == 0 {
		return TimedOut(nil)
	}
	return nil
}

// HeadTimeout returns how long the upstream has for the head of its response: its
// timeout, or the grpc-timeout of a gRPC call if that is less.
func (x *Exchange) HeadTimeout() time.Duration {
	if d := x.Verdict.Upstream.Timeout; !x.limited || d < x.limit {
		return d
	}
	return x.limit
}

// CallTimeout returns how long the whole exchange may take: the grpc-timeout of a gRPC call. ok is
// false if there is no such limit.
func (x *Exchange) CallTimeout() (d time.Duration, ok bool) { return x.limit, x.limited }

// Late reports whether the grpc-timeout of a gRPC call has passed. The service measures it too, and may end the call
// before the engine does. That is then a timeout, not a failure of the service.
func (x *Exchange) Late() bool {
	return x.limited && x.cfg.Mono()-x.start.Mono >= x.limit.Nanoseconds()
}

// Respond returns the status and body of the gateway's own response to a request that is
// refused or has failed with err. It logs failures that the client did not cause. unsent is set if no byte of
// the request has reached an upstream: then the charge is given back, if the response charges nothing
// (contract, 4.3).
func (x *Exchange) Respond(err error, unsent bool) (status int, body []byte) {
	status, body = x.errorFormat().Response(err, x.RequestID())
	if unsent && chargesNothing(status) {
		x.meter.mu.Lock()
		x.cfg.Admit.GiveBack(&x.Verdict)
		x.meter.mu.Unlock()
	}
	switch fault.CodeOf(err) {
	case fault.UpstreamUnreachable, fault.UpstreamTimeout, fault.Unavailable, fault.Internal:
		if x.Verdict.Unconfirmed() { // whose beginning and end the node logs
			x.reason = accesslog.LeaseLost
			break
		}
		if !x.logged {
			x.log("request failed", err)
		}
		x.reason, x.detail = reasonOf(err)
	default:
		if detail, is := validation.DetailOf(err); is {
			x.reason, x.detail = accesslog.DocumentMismatch, detail
		}
	}
	x.Result = x.Verdict.ResultOf(err)
	return status, body
}

// OwnType returns the media type of the bodies of Respond, RespondByRoute and Serve; "" for none.
func (x *Exchange) OwnType() string {
	if x.responds {
		return x.Verdict.Response.ContentType
	}
	if x.served {
		return fault.FormatKeygate.ContentType()
	}
	return x.errorFormat().ContentType()
}

func (x *Exchange) errorFormat() fault.Format {
	if x.Verdict.Gateway == nil {
		return fault.FormatKeygate
	}
	return x.Verdict.Gateway.ErrorFormat
}

// chargesNothing reports whether the gateway's own response with the status charges nothing, for a request that
// was admitted and has not reached an upstream. For such a request, 400 means a malformed body, which is
// charged.
func chargesNothing(status int) bool {
	return status == http1.StatusBadGateway || status == http1.StatusServiceUnavailable
}

// LogBrokenOff logs that the upstream broke off a response that had begun.
func (x *Exchange) LogBrokenOff(err error) { x.log("upstream broke off its response", err) }

// MarkAttempt records that the request is sent to a target with that host and port, a text that must not share the
// memory of a request.
func (x *Exchange) MarkAttempt(target string) {
	x.attempts++
	x.target, x.sending = target, true
}

// Panicked logs a panic and returns the error for the client.
func (x *Exchange) Panicked(p any) error {
	x.logged = true
	x.cfg.Log.Error("request panicked", "request_id", x.RequestID(), "panic", p, "stack", string(debug.Stack()))
	return Panicked()
}

// log writes one line about the exchange. It never logs headers or the query.
func (x *Exchange) log(message string, err error) {
	v := &x.Verdict
	args := []any{"request_id", x.RequestID(), "method", x.Method, "path", v.Path, "error", err}
	if v.Gateway != nil {
		args = append(args, "gateway_id", v.Gateway.ID)
	}
	if v.Route != ([16]byte{}) {
		args = append(args, "route_id", id.Format(id.Route, v.Route))
	}
	if v.Caller.Kind() == snapshot.KeyCaller {
		args = append(args, "key_id", v.Caller.ID())
	}
	x.cfg.Log.Warn(message, args...)
}
