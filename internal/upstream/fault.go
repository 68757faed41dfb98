package upstream

import "github.com/keygate/keygate/internal/fault"

// Unreachable returns the error for an upstream that cannot be connected to, or closes
// the connection before it responds. cause is for the log.
func Unreachable(cause error) *fault.Error {
	return &fault.Error{Code: fault.UpstreamUnreachable, Message: "the upstream could not be reached, or closed the connection before it responded", Err: cause}
}

// TimedOut returns the error for an upstream that does not respond in time. cause is for
// the log.
func TimedOut(cause error) *fault.Error {
	return &fault.Error{Code: fault.UpstreamTimeout, Message: "the upstream did not respond in time", Err: cause}
}
