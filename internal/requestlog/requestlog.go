// Package requestlog keeps the requests that were refused or failed, each with
// the decision that ended it (contract, section 7).
package requestlog

import (
	"context"
	"time"
)

// Keep is how long a request is kept.
const Keep = 24 * time.Hour

// Request is a request that was refused (429, 401, 403) or failed (5xx).
type Request struct {
	ID         string
	AccountID  string
	Time       time.Time
	GatewayID  string
	RouteID    string // "" if none was found, or none may be told
	KeyID      string
	KeyPrefix  string
	Method     string
	Path       string // without the query; what is over 2 KiB is cut off and stands as …
	ClientIP   string
	Status     int
	DurationMS float64
	Decision   Decision
	// LeftOut is how many other requests of the account that began in the same
	// second would be in the list, too, but were left out since there were more
	// than 1,000 of them.
	LeftOut int64
}

// Decision is the check or limit that decided.
type Decision struct {
	Check      string // key, gateway, scope, limit, upstream, timeout, internal
	Code       string // the answer's error or, of a 401 or 403, its code
	Message    string // what the check saw, for a person
	LimitScope string // of a limit, with the three below: key, route, daily, global
	Limit      int64
	Remaining  int64
	PassesAt   time.Time // when the request would have passed; zero unless a limit refused
	// UpstreamStatus is the upstream's, or 0.
	UpstreamStatus int
}

// Filter narrows a list. Zero members do not filter. Since is included, Until is
// not.
type Filter struct {
	GatewayID, RouteID, KeyID string
	Status                    int
	Since, Until              time.Time
}

// LeftOut is how many requests of a second were left out.
type LeftOut struct {
	AccountID string
	Second    int64 // Unix
	Count     int64
}

// Store keeps records of requests.
type Store interface {
	// AppendRequests adds records and counts, all or none. A count is added to
	// the one that is there; a record that is there stays as it is.
	AppendRequests(ctx context.Context, records []Record, left []LeftOut) error
	// RequestRecords lists those of an account that pass f, up to limit of them
	// that come after the identifier after, the newest first; "" is before all.
	RequestRecords(ctx context.Context, accountID string, f Filter, limit int, after string) ([]Record, error)
	// RequestRecord returns one, or fault.NotFound.
	RequestRecord(ctx context.Context, accountID, requestID string) (*Record, error)
	// TrimRequests removes up to limit records and counts from before a time.
	// more tells that there may be others.
	TrimRequests(ctx context.Context, before time.Time, limit int) (more bool, err error)
}
