package client

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// AuditEntry is one record of the audit log (contract, section 7). KeyPrefix is nil
// if no well-formed key was used, KeyID if the account has no such key, and
// GatewayID for a call of the management API.
type AuditEntry struct {
	Time      time.Time `json:"time"`
	Kind      string    `json:"kind"`    // authentication or management
	Outcome   string    `json:"outcome"` // success, key_invalid, key_expired or scope_insufficient
	KeyPrefix *string   `json:"key_prefix"`
	KeyID     *string   `json:"key_id"`
	GatewayID *string   `json:"gateway_id"`
	// Credential is key, token or user; nil for none of them. Subject is the identifier of a user. IssuerID and Subject are those of a token that passed its checks; of a
	// refused one, Subject is nil, and IssuerID too if the issuer was not known.
	Credential *string `json:"credential"`
	IssuerID   *string `json:"issuer_id"`
	Subject    *string `json:"subject"`
	Method     string  `json:"method"`
	Path       string  `json:"path"` // without the query
	ClientIP   string  `json:"client_ip"`
	RequestID  string  `json:"request_id"`
	// Count is how many events the entry stands for: 1, or more for the refused authentications of one address within
	// a minute that are beyond 60. The texts above are then those of the first of them, and the keys, tokens and
	// gateway are nil unless they are the same in all.
	Count int64 `json:"count"`
	// AuditAction is nil unless Kind is management.
	*AuditAction
}

// AuditActor is who made a change. Kind is key, user, offline, repository, canary or system. ID is that of a key or user, and
// Name that of a user at the time of the change.
type AuditActor struct {
	Kind string  `json:"kind"`
	ID   *string `json:"id"`
	Name *string `json:"name"`
}

// AuditAction holds the fields that only a management record has. ActorKeyID is nil
// for a command run on the server's machine and for a change that the server made
// itself.
type AuditAction struct {
	Action     string            `json:"action"` // as in key.create
	Target     string            `json:"target"` // identifier of the changed record
	ActorKeyID *string           `json:"actor_key_id"`
	Actor      *AuditActor       `json:"actor"` // nil in records of versions that did not store it
	Diff       map[string][2]any `json:"diff"`  // values before and after, by field; a secret is ***
}

// AuditFilter restricts AuditLog to matching records. Zero fields match all
// records.
type AuditFilter struct {
	ListOptions
	Kind, Outcome                           string
	Notable                                 bool // only changes and refusals, without the authentications that succeeded
	KeyPrefix, KeyID, GatewayID, ActorKeyID string
	Since, Until                            time.Time // Since is inclusive, Until exclusive
}

// TrafficQuery selects a traffic report. GatewayID, RouteID, KeyID, Upstream and Target, if set,
// restrict it to matching requests.
type TrafficQuery struct {
	GatewayID, RouteID, KeyID string
	// Upstream is the name of an upstream of the gateway GatewayID, Target the host and port of a target: where requests were
	// sent, the last time. They cannot be combined with RouteID or KeyID, and neither can groups by upstream or target. A report
	// by subject has the requests with a valid token, and none of these four filters.
	Upstream, Target string
	// Since is inclusive, Until exclusive. Until is now by default, and Since 60 intervals of 1m,
	// 24 of 1h or 30 of 1d before Until.
	Since, Until time.Time
	Interval     string // 1m, 1h or 1d; "" means 1h
	GroupBy      string // gateway, route, key, status, upstream, target, side or subject; "" means one row for each interval
}

// RequestFilter restricts Requests to matching requests. Zero fields match all
// requests that were refused or failed.
type RequestFilter struct {
	ListOptions
	GatewayID, RouteID, KeyID string
	Status                    int       // 400 to 599
	Result                    string    // such as limited, no_route or timed_out; charged for other requests with a cost
	Since, Until              time.Time // Since is inclusive, Until exclusive
}

// SimulateRequest is the body of SimulateLimit. It simulates the limit of a route
// or of a key, or with neither RouteID nor KeyID the gateway's global limit, or a Plan.
type SimulateRequest struct {
	RouteID *string `json:"route_id,omitempty"`
	KeyID   *string `json:"key_id,omitempty"`
	// RateLimit is a string for a key, as in "100/min", else a RateLimitInput.
	RateLimit any `json:"rate_limit,omitempty"`
	// Plan is given alone. Its limits are simulated as if every key and owner had it.
	Plan *SimulatedPlanRequest `json:"plan,omitempty"`
}

// recorded is a report.
type recorded[T any] struct {
	Data             []T
	IncompleteReason string `json:"incomplete_reason"`
}

// AuditLog lists the audit log, newest first (contract, section 7). The log is
// complete up to the time of the call.
func (c *Client) AuditLog(ctx context.Context, f AuditFilter) iter.Seq2[AuditEntry, error] {
	return list[AuditEntry](ctx, c, "/v1/audit-log", f.query(), f.PageSize)
}

func (f *AuditFilter) query() url.Values {
	notable := ""
	if f.Notable {
		notable = "true"
	}
	return filter("kind", f.Kind, "outcome", f.Outcome, "notable", notable, "key_prefix", f.KeyPrefix, "key_id", f.KeyID, "gateway_id", f.GatewayID,
		"actor", f.ActorKeyID, "since", instant(f.Since), "until", instant(f.Until))
}

// AuditHead returns the end of the hash chain over the sealed blocks of the
// account's audit log (contract, section 7).
func (c *Client) AuditHead(ctx context.Context) (*AuditHead, error) {
	return call[AuditHead](ctx, c, http.MethodGet, "/v1/audit-log/head", nil)
}

// Traffic returns the traffic report, oldest interval first (contract, section 7).
// It is complete to the last second. A report of more than 10,000 intervals is an
// *Error with status 422.
func (c *Client) Traffic(ctx context.Context, q TrafficQuery) ([]TrafficRow, error) {
	query := filter("gateway_id", q.GatewayID, "route_id", q.RouteID, "key_id", q.KeyID, "upstream", q.Upstream, "target", q.Target,
		"since", instant(q.Since), "until", instant(q.Until), "interval", q.Interval, "group_by", q.GroupBy)
	r, err := call[recorded[TrafficRow]](ctx, c, http.MethodGet, "/v1/reports/traffic?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	c.incomplete(r.IncompleteReason)
	return r.Data, nil
}

// Top returns the routes, keys, gateways, upstreams, targets or subjects with the greatest numbers in the whole time of a query, the
// greatest first. GroupBy is route (the default), key, gateway, upstream, target, side or subject. order is requests (the default), errors,
// refused or bytes_out. limit is from 1 to 100; 0 means 10.
func (c *Client) Top(ctx context.Context, q TrafficQuery, order string, limit int) ([]TopRow, error) {
	rows := ""
	if limit != 0 {
		rows = strconv.Itoa(limit)
	}
	query := filter("gateway_id", q.GatewayID, "route_id", q.RouteID, "key_id", q.KeyID, "upstream", q.Upstream, "target", q.Target,
		"since", instant(q.Since), "until", instant(q.Until), "interval", q.Interval, "group_by", q.GroupBy, "order", order, "limit", rows)
	r, err := call[recorded[TopRow]](ctx, c, http.MethodGet, "/v1/reports/top?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	c.incomplete(r.IncompleteReason)
	return r.Data, nil
}

// Requests lists the requests of the last 24 hours that were refused (401, 403,
// 429) or failed (5xx), newest first (contract, section 7). Of more than 1,000 such
// requests in one second it has a sample. With the result charged, it lists other requests
// that have a cost instead, at most 100 of a second.
func (c *Client) Requests(ctx context.Context, f RequestFilter) iter.Seq2[LoggedRequest, error] {
	query := f.of()
	maps.Copy(query, filter("since", instant(f.Since), "until", instant(f.Until)))
	return list[LoggedRequest](ctx, c, "/v1/requests", query, f.PageSize)
}

// of returns the parameters for all but the time.
func (f *RequestFilter) of() url.Values {
	status := ""
	if f.Status != 0 {
		status = strconv.Itoa(f.Status)
	}
	return filter("gateway_id", f.GatewayID, "route_id", f.RouteID, "key_id", f.KeyID, "status", status, "result", f.Result)
}

// RequestByID returns one request that was refused or failed, or was kept for its cost. For any
// other request it returns an *Error with status 404; see IsNotFound.
func (c *Client) RequestByID(ctx context.Context, requestID string) (*LoggedRequest, error) {
	return call[LoggedRequest](ctx, c, http.MethodGet, "/v1/requests/"+url.PathEscape(requestID), nil)
}

// Limits lists the current levels of all limits of a gateway that are in use
// (contract, section 7).
func (c *Client) Limits(ctx context.Context, gatewayID string, o ListOptions) iter.Seq2[LimitLevel, error] {
	return list[LimitLevel](ctx, c, gatewayPath(gatewayID)+"/limits", nil, o.PageSize)
}

// SimulateLimit returns what a limit would have refused of the requests of the last
// 24 hours (contract, section 7). It changes nothing, and needs the scope write.
func (c *Client) SimulateLimit(ctx context.Context, gatewayID string, in SimulateRequest) (*Simulation, error) {
	s, err := call[Simulation](ctx, c, http.MethodPost, gatewayPath(gatewayID)+"/limits/simulate", in)
	if err == nil && s.IncompleteReason != nil {
		c.incomplete(*s.IncompleteReason)
	}
	return s, err
}

// instant formats a time for a query. It returns "" for the zero time.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
