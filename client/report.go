package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// AuditEntry is one record of the audit log (contract, section 7). KeyPrefix,
// KeyID and GatewayID are nil where there is none.
type AuditEntry struct {
	Time      time.Time `json:"time"`
	Kind      string    `json:"kind"`    // authentication or management
	Outcome   string    `json:"outcome"` // success, key_invalid, key_expired or scope_insufficient
	KeyPrefix *string   `json:"key_prefix"`
	KeyID     *string   `json:"key_id"`
	GatewayID *string   `json:"gateway_id"`
	Method    string    `json:"method"`
	Path      string    `json:"path"` // without the query
	ClientIP  string    `json:"client_ip"`
	RequestID string    `json:"request_id"`
	// AuditAction is nil unless Kind is management.
	*AuditAction
}

// AuditAction is what a management record has beside the others. ActorKeyID is
// nil for a command on the server's own machine.
type AuditAction struct {
	Action     string            `json:"action"`
	Target     string            `json:"target"`
	ActorKeyID *string           `json:"actor_key_id"`
	Diff       map[string][2]any `json:"diff"` // before and after; a secret is ***
}

// AuditFilter narrows the audit log. Zero fields do not filter. Since is
// included, Until is not.
type AuditFilter struct {
	ListOptions
	Kind, Outcome                           string
	KeyPrefix, KeyID, GatewayID, ActorKeyID string
	Since, Until                            time.Time
}

// TrafficQuery asks for a traffic report. Zero fields do not filter.
type TrafficQuery struct {
	GatewayID, RouteID, KeyID string
	// Since is included, Until is not. Zero is 60 intervals of 1m, 24 of 1h or
	// 30 of 1d before Until, and now.
	Since, Until time.Time
	Interval     string // 1m, 1h or 1d; "" is 1h
	GroupBy      string // gateway, route, key or status; "" makes one row for each interval
}

// RequestFilter narrows the list of refused and failed requests. Zero fields do
// not filter. Since is included, Until is not.
type RequestFilter struct {
	ListOptions
	GatewayID, RouteID, KeyID string
	Status                    int
	Since, Until              time.Time
}

// SimulateRequest is the body of SimulateLimit. With neither RouteID nor KeyID
// the limit is the gateway's global one.
type SimulateRequest struct {
	RouteID *string `json:"route_id,omitempty"`
	KeyID   *string `json:"key_id,omitempty"`
	// RateLimit is of a key a string, as in 100/min, else a RateLimitInput.
	RateLimit any `json:"rate_limit"`
}

// AuditLog lists the audit log, newest first (contract, section 7).
func (c *Client) AuditLog(ctx context.Context, f AuditFilter) iter.Seq2[AuditEntry, error] {
	return list[AuditEntry](ctx, c, "/v1/audit-log", filter("kind", f.Kind, "outcome", f.Outcome, "key_prefix", f.KeyPrefix,
		"key_id", f.KeyID, "gateway_id", f.GatewayID, "actor", f.ActorKeyID, "since", instant(f.Since), "until", instant(f.Until)), f.PageSize)
}

// AuditHead returns the end of the hash chain of the audit log's sealed blocks.
func (c *Client) AuditHead(ctx context.Context) (*AuditHead, error) {
	return call[AuditHead](ctx, c, http.MethodGet, "/v1/audit-log/head", nil)
}

// Traffic reports the traffic, complete to the last second, the oldest interval
// first.
func (c *Client) Traffic(ctx context.Context, q TrafficQuery) ([]TrafficRow, error) {
	query := filter("gateway_id", q.GatewayID, "route_id", q.RouteID, "key_id", q.KeyID, "since", instant(q.Since), "until", instant(q.Until),
		"interval", q.Interval, "group_by", q.GroupBy)
	r, err := call[struct{ Data []TrafficRow }](ctx, c, http.MethodGet, "/v1/reports/traffic?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	return r.Data, nil
}

// Requests lists the requests of the last 24 hours that were refused or failed,
// newest first.
func (c *Client) Requests(ctx context.Context, f RequestFilter) iter.Seq2[LoggedRequest, error] {
	status := ""
	if f.Status != 0 {
		status = strconv.Itoa(f.Status)
	}
	return list[LoggedRequest](ctx, c, "/v1/requests", filter("gateway_id", f.GatewayID, "route_id", f.RouteID, "key_id", f.KeyID,
		"status", status, "since", instant(f.Since), "until", instant(f.Until)), f.PageSize)
}

// RequestByID returns one request that was refused or failed. Of one that was
// neither, there is none: see IsNotFound.
func (c *Client) RequestByID(ctx context.Context, requestID string) (*LoggedRequest, error) {
	return call[LoggedRequest](ctx, c, http.MethodGet, "/v1/requests/"+url.PathEscape(requestID), nil)
}

// Limits lists where the limits of a gateway that are in use stand now.
func (c *Client) Limits(ctx context.Context, gatewayID string, o ListOptions) iter.Seq2[LimitLevel, error] {
	return list[LimitLevel](ctx, c, gatewayPath(gatewayID)+"/limits", nil, o.PageSize)
}

// SimulateLimit tells what a limit would have done to the requests of the last
// 24 hours.
func (c *Client) SimulateLimit(ctx context.Context, gatewayID string, in SimulateRequest) (*Simulation, error) {
	return call[Simulation](ctx, c, http.MethodPost, gatewayPath(gatewayID)+"/limits/simulate", in)
}

// instant writes a time for a query; the zero time is "".
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
