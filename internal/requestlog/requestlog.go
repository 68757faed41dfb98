// Package requestlog keeps the requests that were refused or failed, each with
// the decision that ended it (contract, section 7).
package requestlog

import "time"

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
	Path       string // without the query
	ClientIP   string
	Status     int
	DurationMS float64
	Decision   Decision
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
