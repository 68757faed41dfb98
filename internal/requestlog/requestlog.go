// Package requestlog defines the log of refused and failed requests, each with the
// decision that ended it (contract, section 7), of requests with a cost (plans, section 5), and of those with several attempts
// (targets, section 9).
// Its package writer writes it.
package requestlog

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/gateway"
)

// Keep is the retention of a request.
const Keep = 24 * time.Hour

// Request is a request that was refused (429, 401, 403, or a 404 or 405 of the gateway), failed (5xx), was charged by
// the rules of its route, or had several attempts.
type Request struct {
	ID         string
	AccountID  string
	Time       time.Time
	GatewayID  string
	RouteID    string // "" if none was found, or if it must not be shown
	KeyID      string
	KeyPrefix  string
	Method     string
	Path       string // without the query; cut after 2 KiB, and then ends with …
	ClientIP   string
	Status     int
	Host       string // that the client addressed, for a 404 or 405; otherwise ""
	DurationMS float64
	Decision   Decision
	Credential string              // key or token; "" without one
	IssuerID   string              // of the token; "" if it was refused before its issuer was known
	Subject    string              // of the token, in the form of issuer.Recorded; "" if it was refused
	Costs      []accesslog.Cost    // nil if the request has none
	Attempts   []accesslog.Attempt // at targets of its upstream: nil unless there were several, or the only one failed
	Untried    accesslog.Untried   // targets that it could not be sent to because of their state; none unless there are Attempts or there was no target
	Side       string              // the upstream that a split decided for; "" without a split
	SideReason string              // why, in words
	// LeftOut is the number of refused or failed requests of the account that began
	// in the same second and were left out, because there were more than 1,000.
	LeftOut int64
}

// EndedKey returns the identifier of the revoked or expired key for which the request was refused,
// or "" if it was not refused for that.
func (r *Request) EndedKey() string {
	if r.Decision.Check != "key" {
		return ""
	}
	return r.KeyID
}

// Decision is the check or limit that ended a request.
type Decision struct {
	Check      string // host, key, token, gateway, owner, route, scope, limit, upstream, timeout, internal, client
	Code       string // the error of the response or, for a 401 or 403, its code
	Message    string // an explanation in words
	LimitScope string // key, route, daily, plan or global; set only for a limit, like the next three
	Limit      int64
	Remaining  int64
	PassesAt   time.Time // when the request would have passed
	LimitName  string    // <plan>.<limit>, for limits of plans; route or key for others of the scope concurrency
	// UpstreamStatus is the status of the upstream's response, or 0.
	UpstreamStatus int
	Reason         string // why the upstream could not be reached or did not respond, or what is wrong with the key, or ""
	// Detail is the text of the error behind Reason. It may contain addresses and names of
	// the operator's network, so it is for the operator only.
	Detail string
	// ByDefault is set for a 404 or 405 of the default gateway, which the host chose because no gateway has it.
	ByDefault bool
	// Nearest are the routes that come nearest to the request, for a 404 or 405, the nearest first.
	Nearest []gateway.NearRoute
}

// Filter selects requests. Zero fields do not filter, except that without a Result only requests are selected that were
// refused, that failed or could not go on. Since is inclusive, Until exclusive.
type Filter struct {
	GatewayID, RouteID, KeyID string
	Status                    int
	Result                    string // of Results; also ResultCharged and ResultRetried
	Since, Until              time.Time
}

const (
	// ResultCharged selects requests that have a cost, were not refused and did not fail.
	ResultCharged = "charged"
	// ResultRetried selects requests that had several attempts, whatever their end.
	ResultRetried = "retried"
)

// Results returns the values of Filter.Result: what ended a request, ResultCharged and ResultRetried.
func Results() []string {
	names := slices.AppendSeq([]string{ResultCharged, ResultRetried}, maps.Keys(results))
	slices.Sort(names)
	return names
}

// results are the results of requests in the log, by the names of the filter.
//
//nolint:gochecknoglobals // a table that is never written
var results = map[string]accesslog.Result{
	"no_gateway": accesslog.NoGateway, "key_invalid": accesslog.KeyInvalid, "key_expired": accesslog.KeyExpired, "wrong_gateway": accesslog.WrongGateway,
	"no_route": accesslog.NoRoute, "no_method": accesslog.NoMethod, "wrong_scope": accesslog.WrongScope, "limited": accesslog.Limited,
	"owner_suspended": accesslog.OwnerSuspended, "address_denied": accesslog.AddressDenied, "maintenance": accesslog.Maintenance, "upstream_status": accesslog.Forwarded, "unreachable": accesslog.Unreachable, "timed_out": accesslog.TimedOut, "failed": accesslog.Failed,
	"responded": accesslog.Responded, "redirected": accesslog.Redirected,
}

// ResultOf returns the result with a name of Results.
func ResultOf(name string) accesslog.Result { return results[name] }

// Matches reports whether f selects a request, whatever its time.
func (f *Filter) Matches(r *Record) bool {
	return f.selects(r) && (f.GatewayID == "" || r.GatewayID == f.GatewayID) && (f.RouteID == "" || r.RouteID == f.RouteID) &&
		(f.KeyID == "" || r.KeyID == f.KeyID) && (f.Status == 0 || r.Status == f.Status)
}

// selects reports whether Result selects a request.
func (f *Filter) selects(r *Record) bool {
	hasEnded := r.Decision == accesslog.NoGateway || ended(r.Decision, r.Status, r.Reason)
	switch f.Result {
	case ResultCharged:
		return !hasEnded && r.Cost != ""
	case ResultRetried:
		return accesslog.CountAttempts(r.AttemptList) > 1
	default:
		return hasEnded && (f.Result == "" || r.Decision == ResultOf(f.Result))
	}
}

// LeftOut is the number of requests of one second that were left out.
type LeftOut struct {
	AccountID string
	Second    int64 // Unix
	Count     int64
}

// Store stores records of requests.
type Store interface {
	// AppendRequests adds the records and counts of a batch, all or none. A count is added to the
	// stored count of its second. A record that is stored already stays unchanged. If the store
	// already has the batch, or a later batch of the same writer, nothing changes.
	AppendRequests(ctx context.Context, batch accesslog.BatchID, records []Record, left []LeftOut) error
	// RequestRecords returns up to limit records of an account that f matches, the
	// newest first, after the record with the identifier after, or from the newest
	// if after is "".
	RequestRecords(ctx context.Context, accountID string, f Filter, limit int, after string) ([]Record, error)
	// RequestRecord returns one record. Its error is fault.NotFound if there is none.
	RequestRecord(ctx context.Context, accountID, requestID string) (*Record, error)
	// TrimRequests removes up to limit records and counts that are older than before, or up to
	// limit days (UTC) that end before it, and forgets up to limit writers, of any kind of access records, whose last
	// batch was stored before it. more says that there may be others.
	TrimRequests(ctx context.Context, before time.Time, limit int) (more bool, err error)
	// RequestBytes returns what the records of each account take, as Record.Size counts it, in no order.
	RequestBytes(ctx context.Context) ([]AccountBytes, error)
	// CutRequests removes up to limit of the oldest records of an account, until the rest takes most.Bytes at most, and up to limit
	// counts of seconds before the newest of them. It removes no record if they take no more than that.
	CutRequests(ctx context.Context, most AccountBytes, limit int) (Cut, error)
}

// AccountBytes is what records of an account take or may take.
type AccountBytes struct {
	AccountID string
	Bytes     int64
}

// Cut is what Store.CutRequests has removed.
type Cut struct {
	Records int
	Newest  time.Time // of the newest of them; zero if there are none
	More    bool      // the records of the account still take more than they may
}

// Excess returns the accounts whose records must be cut, and what the rest of them may take, so that all together take most at
// most. That is max-min fair: accounts with less than others keep everything while the others have more.
func Excess(sizes []AccountBytes, most int64) (cut []AccountBytes) {
	var all int64
	wanted := make([]int, len(sizes))
	for i, s := range sizes {
		all += s.Bytes
		wanted[i] = int(s.Bytes)
	}
	if all <= most {
		return nil
	}
	level := int64(fairslots.Most(int(most), wanted))
	for _, s := range sizes {
		if s.Bytes > level {
			cut = append(cut, AccountBytes{s.AccountID, level})
		}
	}
	return cut
}
