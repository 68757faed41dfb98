package rows

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store/stored"
)

const requestColumns = `SELECT r.account_id, r.id, r.time, r.gateway_id, r.route_id, r.key_id, r.key_prefix, r.method, r.path, r.client_ip,
	r.status, r.duration, r.decision, r.limit_scope, r.limit_count, r.remaining, r.passes_at, r.upstream_status, r.reason, r.detail, coalesce(l.count, 0)
	FROM requests r LEFT JOIN requests_left_out l ON l.account_id = r.account_id AND l.second = r.time / 1000000 `

func scanRequest(r *Row) (requestlog.Record, error) {
	var q requestlog.Record
	var at, duration int64
	err := r.Scan(&q.AccountID, &q.ID, &at, &q.GatewayID, &q.RouteID, &q.KeyID, (*text)(&q.KeyPrefix), (*text)(&q.Method), (*text)(&q.Path), &q.ClientIP,
		&q.Status, &duration, &q.Decision, &q.LimitScope, &q.Limit, &q.Remaining, &q.PassesAt, &q.UpstreamStatus, &q.Reason, (*text)(&q.Detail), &q.LeftOut)
	q.Time, q.Duration = Instant(at), time.Duration(duration)
	return q, err
}

// RequestRecords returns up to limit records of an account that the filter selects, newest first, behind the record after.
func (t *Reader) RequestRecords(ctx context.Context, accountID string, f requestlog.Filter, limit int, after string) ([]requestlog.Record, error) {
	s := stored.RequestSpan(f.Since, f.Until, Below(after))
	where, args := `WHERE r.account_id = $1 AND r.id >= $2 AND r.id < $3`, []any{accountID, s.From, s.Below, Limit(limit)}
	and := func(condition string, value any) {
		args = append(args, value)
		where += fmt.Sprintf(` AND %s $%d`, condition, len(args))
	}
	if f.KeyID != "" {
		where += ` AND r.key_id <> ''`
		and(`r.key_id =`, f.KeyID)
	}
	if f.RouteID != "" {
		where += ` AND r.route_id <> ''`
		and(`r.route_id =`, f.RouteID)
	}
	if f.GatewayID != "" {
		and(`r.gateway_id =`, f.GatewayID)
	}
	if f.Status != 0 {
		and(`r.status =`, f.Status)
	}
	if !f.Since.IsZero() {
		and(`r.time >=`, Micros(f.Since))
	}
	if !f.Until.IsZero() {
		and(`r.time <`, Micros(f.Until))
	}
	return readAll(ctx, t, "list requests", requestColumns+where+` ORDER BY r.id DESC LIMIT $4`, args, scanRequest)
}

// RequestRecord returns the record of a request of an account. If there is none, the error is fault.NotFound.
func (t *Reader) RequestRecord(ctx context.Context, accountID, requestID string) (*requestlog.Record, error) {
	list, err := readAll(ctx, t, "read request", requestColumns+`WHERE r.account_id = $1 AND r.id = $2`, []any{accountID, requestID}, scanRequest)
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, fault.New(fault.NotFound, "no such request was refused or failed within the last 24 hours")
	}
	return &list[0], nil
}
