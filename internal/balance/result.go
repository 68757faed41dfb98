package balance

// Result is how an attempt ended, or what its response's head said.
type Result uint8

const (
	// OK is a response that no other result names, and the end of a whole one.
	OK Result = iota
	// Canceled is an end that says nothing about the target: the client has left, or Keygate ended the exchange.
	Canceled
	// NotAllowed is an address to which Keygate may not connect.
	NotAllowed
	// Unusable is a request that the target has declined in order, as when it closes a connection over HTTP/2, or a response
	// that cannot be used. No `on` names it.
	Unusable
	// Connect is a connection that could not be made, also because that took too long.
	Connect
	// Reset is a connection that ended before the response was whole.
	Reset
	// Timeout is a response that did not come in time.
	Timeout
	// Status502 is a response with this status, as the following are.
	Status502
	// Status503 is one.
	Status503
	// Status504 is one.
	Status504
	// GRPCUnavailable is a response with grpc-status 14.
	GRPCUnavailable

	results
)

var resultNames = [results]string{"ok", "canceled", "address_not_allowed", "unusable", "connect", "reset", "timeout", "502", "503", "504", "grpc_unavailable"} //nolint:gochecknoglobals // constant

// String returns the name of the result, as in `on` of a configuration.
func (r Result) String() string {
	if r < results {
		return resultNames[r]
	}
	return "unknown"
}

// Failed reports whether the attempt failed. Such an attempt counts as in flight for a second more (section 2), whether or
// not it counts towards an ejection: a target that fails fast must not look idle.
func (r Result) Failed() bool { return r > Canceled }

// soft reports whether the result is a timeout or a status. It counts towards an ejection only if several callers have met
// it, and max_percent bounds its ejections (section 3).
func (r Result) soft() bool { return r >= Timeout }

// Results is a set of results: the values of `on`.
type Results uint16

// On returns the set of the given results.
func On(rs ...Result) (s Results) {
	for _, r := range rs {
		s |= 1 << r
	}
	return s
}

// Has reports whether r is in the set.
func (s Results) Has(r Result) bool { return s&(1<<r) != 0 }
