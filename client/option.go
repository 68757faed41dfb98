package client

import "net/http"

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

// with applies options to the request.
func (r *Request) with(options []Option) *Request {
	for _, apply := range options {
		apply(r)
	}
	return r
}
