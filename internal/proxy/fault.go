package proxy

import (
	"errors"
	"fmt"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/upstream"
)

// The errors of a request's head and body (contract, 4.5).

// Malformed returns the 400 for a request that breaks a rule of HTTP. rule completes
// the sentence "the request is malformed: ".
func Malformed(rule string) *fault.Error {
	return fault.New(fault.InvalidRequest, "the request is malformed: %s", rule)
}

// MalformedBody returns the 400 for a body that cannot be read. cause is for the log.
func MalformedBody(cause error) *fault.Error {
	return &fault.Error{Code: fault.InvalidRequest, Message: "the request body is malformed", Err: cause}
}

// TargetTooLong returns the 414.
func TargetTooLong() *fault.Error {
	return fault.New(fault.TargetTooLong, "the request target is longer than 16 KiB")
}

// HeadTooLarge returns the 431.
func HeadTooLarge() *fault.Error {
	return fault.New(fault.HeaderTooLarge, "the request has more than 100 headers, or more than 64 KiB of them")
}

// VersionNotSupported returns the 505.
func VersionNotSupported() *fault.Error {
	return fault.New(fault.VersionNotSupported, "this version of HTTP is not supported; use HTTP/1.1 or HTTP/2")
}

// ProtocolNotSupported returns the 501.
func ProtocolNotSupported() *fault.Error {
	return fault.New(fault.ProtocolNotSupported, "extended CONNECT is supported for the protocol websocket only")
}

// BodyTooLarge returns the 413 for a body of more than max_body_bytes.
func BodyTooLarge(limit int64) *fault.Error {
	return fault.New(fault.BodyTooLarge, "the request body is larger than the limit of %d bytes", limit)
}

// The errors of forwarding (contract, 4.2, 8).

var (
	errLoop    = errors.New("loop")
	errUpgrade = errors.New("unexpected 101")
	// errNoTarget is the cause of NoTarget.
	errNoTarget = errors.New("no target")
)

// ErrStatus is the cause of the 502 for a response whose status is not a ValidStatus.
var ErrStatus = fmt.Errorf("the status is not between 200 and 599: %w", http1.ErrSyntax)

// Loop returns the 502 for a request that has already passed through this instance.
func Loop() *fault.Error {
	return &fault.Error{
		Code: fault.UpstreamUnreachable, Message: "the request has already passed through this gateway: upstream_url leads back to it", Err: errLoop,
	}
}

// BadUpgrade returns the 502 for an upstream that changed to a protocol that the
// client did not ask for.
func BadUpgrade() *fault.Error {
	return &fault.Error{
		Code: fault.UpstreamUnreachable, Message: "the upstream changed to a protocol that was not asked for", Err: errUpgrade,
	}
}

// NoWebSocket returns the 502 for an upstream that neither opened the WebSocket nor responded with
// an error status.
func NoWebSocket() *fault.Error {
	return &fault.Error{
		Code: fault.UpstreamUnreachable, Message: "the upstream did not accept the WebSocket", Err: errUpgrade,
	}
}

// Unreachable returns the error for an upstream that gave no response, or a response that cannot be
// forwarded. cause is for the log.
func Unreachable(cause error) *fault.Error { return upstream.Unreachable(cause) }

// TimedOut returns the 504 for an upstream that was too slow. cause is for the log.
func TimedOut(cause error) *fault.Error { return upstream.TimedOut(cause) }

// reasonOf returns why the gateway responds with err, for the access record, and the text of
// its cause. There is no reason if neither the upstream nor the connection to it is the cause.
func reasonOf(err error) (r accesslog.Reason, detail string) {
	switch {
	case errors.Is(err, errLoop):
		return accesslog.ForwardingLoop, ""
	case errors.Is(err, errUpgrade):
		return accesslog.UnexpectedUpgrade, ""
	case errors.Is(err, errNoTarget):
		return accesslog.AllDrained, ""
	case errors.Is(err, errTargetGone):
		return accesslog.TargetGone, ""
	}
	r = upstream.ReasonOf(err)
	switch code := fault.CodeOf(err); {
	case r != accesslog.NoReason, code == fault.UpstreamUnreachable, code == fault.UpstreamTimeout:
		return r, upstream.DetailOf(err)
	}
	return r, ""
}

// Panicked returns the 500 for a request that made an engine panic.
func Panicked() *fault.Error {
	return fault.New(fault.Internal, "an internal error occurred; look for this request_id in the server's log")
}
