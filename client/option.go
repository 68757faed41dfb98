package client

import (
	"net/http"
	"strings"
	"time"
)

// Option changes one call.
type Option func(*Request)

// IfMatch returns an Option for a call that changes a record: the call changes nothing and
// returns an *Error with status 412 unless etag is the ETag of the record (contract, section 2).
// A push and a rollback take the ETag of their gateway.
func IfMatch(etag string) Option {
	return func(r *Request) {
		if r.Header == nil {
			r.Header = http.Header{}
		}
		r.Header.Set("If-Match", etag)
	}
}

// WithEffect returns an Option for TryPlan and for a dry run of a push or a rollback: its result then has
// an Effect, what the change would have done to the requests of the last 24 hours (contract, section 5).
// The key must be allowed to read the traffic of the gateway. In any other call it is an *Error with status 422.
func WithEffect() Option {
	return func(r *Request) { r.addQuery("effect=true") }
}

// AwaitDrained returns an Option for UpdateTarget and DeleteTarget: the call also waits, for at most the given time of up to 10
// minutes, until no request is in flight at the target any more on any node. If some are, its error is a *NotDrainedError
// (targets.md, section 6). The change is made in any case.
func AwaitDrained(within time.Duration) Option {
	return func(r *Request) {
		r.addQuery("drain=" + within.String())
		r.waits = within
	}
}

// addQuery adds a parameter to the path.
func (r *Request) addQuery(parameter string) {
	separator := "?"
	if strings.Contains(r.Path, "?") {
		separator = "&"
	}
	r.Path += separator + parameter
}

// with applies options to the request.
func (r *Request) with(options []Option) *Request {
	for _, apply := range options {
		apply(r)
	}
	return r
}
