package upstream

import (
	"errors"
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
)

// Causes that no error of another package stands for.
var (
	// errHeadTimeout is the cancellation cause of an exchange whose response head did not
	// arrive in time.
	errHeadTimeout      = errors.New("upstream: timeout before the head of the response")
	errConnectTimeout   = errors.New("upstream: timeout while connecting")
	errNoFreeConnection = errors.New("upstream: timeout while waiting for a connection")
)

// Unreachable returns the error for an upstream that gave no response that can be
// forwarded. cause is for the log. If this process is the cause, because it has no file
// descriptor left, the error is a 503.
func Unreachable(cause error) *fault.Error {
	e := &fault.Error{Code: fault.UpstreamUnreachable, Err: cause}
	if errors.Is(cause, errNoRoom) {
		e.Code, e.Message = fault.Unavailable, "requests under way use too many former settings of connections to upstreams: try again later"
		return e
	}
	switch ReasonOf(cause) {
	case accesslog.NoDescriptors:
		e.Code, e.Message = fault.Unavailable, "the gateway has no free file descriptor for a connection to the upstream: try again later"
	case accesslog.MalformedResponse, accesslog.ResponseTooLarge:
		e.Message = "the upstream sent a response that is malformed or too large"
	default:
		e.Message = "the upstream could not be reached, or closed the connection before it responded"
	}
	return e
}

// At adds the address of the upstream to a cause that does not name it.
func At(address string, cause error) error {
	if strings.Contains(cause.Error(), address) {
		return cause
	}
	return fmt.Errorf("%s: %w", address, cause)
}

// TimedOut returns the error for an upstream that does not respond in time. cause is for
// the log.
func TimedOut(cause error) *fault.Error {
	return &fault.Error{Code: fault.UpstreamTimeout, Message: "the upstream did not respond in time", Err: cause}
}

// noFreeConnection returns the error for a request that has waited for a connection until
// its timeout.
func noFreeConnection() *fault.Error {
	return &fault.Error{
		Code:    fault.UpstreamTimeout,
		Message: "all connections that this gateway may open to its upstream were in use until the timeout",
		Err:     errNoFreeConnection,
	}
}
