package rows

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/requestlog"
)

// AppendRequests implements requestlog.Store.
func (s *Store) AppendRequests(ctx context.Context, batch accesslog.BatchID, records []requestlog.Record, left []requestlog.LeftOut) error {
	return s.writeBatch(ctx, OfTraffic, batch, func(t *Writer) error { return t.InsertRequests(ctx, records, left) })
}

// InsertRequests adds records, and counts those that were left out.
func (t *Writer) InsertRequests(ctx context.Context, records []requestlog.Record, left []requestlog.LeftOut) error {
	var (
		texts   [6][]string // accounts, identifiers, gateways, routes, keys, addresses
		sent    [5]RawTexts // prefixes, methods, paths, details, hosts
		numbers [10][]int64
	)
	for i := range records {
		r := &records[i]
		for n, v := range [...]string{r.AccountID, r.ID, r.GatewayID, r.RouteID, r.KeyID, r.ClientIP} {
			texts[n] = append(texts[n], v)
		}
		for n, v := range [...]string{r.KeyPrefix, r.Method, r.Path, withCost(r.Detail, r.Cost), r.Host} {
			sent[n] = append(sent[n], v)
		}
		for n, v := range [...]int64{Micros(r.Time), int64(r.Status), int64(r.Duration), int64(r.Decision), int64(r.LimitScope), r.Limit, r.Remaining, r.PassesAt,
			int64(r.UpstreamStatus), int64(r.Reason)} {
			numbers[n] = append(numbers[n], v)
		}
	}
	err := t.QueueEach(ctx, "insert requests", `INSERT INTO requests (account_id, id, time, gateway_id, route_id, key_id, key_prefix, method, path, client_ip,
			status, duration, decision, limit_scope, limit_count, remaining, passes_at, upstream_status, reason, detail, host)
		SELECT account_id, id, time, gateway_id, route_id, key_id, key_prefix, method, path, client_ip,
			status, duration, decision, limit_scope, limit_count, remaining, passes_at, upstream_status, reason, detail, host
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::bytea[], $9::bytea[], $10::text[],
			$11::bigint[], $12::bigint[], $13::integer[], $14::integer[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::integer[], $20::bytea[], $21::bytea[])
			AS r (account_id, id, time, gateway_id, route_id, key_id, key_prefix, method, path, client_ip,
			status, duration, decision, limit_scope, limit_count, remaining, passes_at, upstream_status, reason, detail, host) WHERE true
		ON CONFLICT DO NOTHING`, texts[0], texts[1], numbers[0], texts[2], texts[3], texts[4], sent[0], sent[1], sent[2], texts[5],
		numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7], numbers[8], numbers[9], sent[3], sent[4])
	if err != nil {
		return err
	}
	accounts, seconds, counts := make([]string, len(left)), make([]int64, len(left)), make([]int64, len(left))
	for i, l := range left {
		accounts[i], seconds[i], counts[i] = l.AccountID, l.Second, l.Count
	}
	// The counts are added in the order of their rows, so that no two nodes wait for each other.
	return t.QueueEach(ctx, "count omitted requests", `INSERT INTO requests_left_out AS l (account_id, second, count)
		SELECT account_id, second, sum(count)::bigint FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS g (account_id, second, count)
		GROUP BY account_id, second ORDER BY account_id, second
		ON CONFLICT (account_id, second) DO UPDATE SET count = l.count + excluded.count`, accounts, seconds, counts)
}

// withCost returns the text of the column detail: the detail, or for a request with costs a zero byte, the length of the
// detail, the detail and the costs.
func withCost(detail, cost string) string {
	if cost == "" && !strings.HasPrefix(detail, "\x00") {
		return detail
	}
	b := binary.AppendUvarint(make([]byte, 1, 1+binary.MaxVarintLen64+len(detail)+len(cost)), uint64(len(detail)))
	return string(append(append(b, detail...), cost...))
}

// splitCost is the inverse of withCost.
func splitCost(column string) (detail, cost string) {
	if !strings.HasPrefix(column, "\x00") {
		return column, ""
	}
	length, n := binary.Uvarint([]byte(column[1:min(len(column), 1+binary.MaxVarintLen64)]))
	if rest := column[1+max(n, 0):]; n > 0 && length <= uint64(len(rest)) {
		return rest[:length], rest[length:]
	}
	return column, ""
}

// endedRequest is the condition for a request that was refused, that failed or could not go on, as requestlog.Belongs says it.
var endedRequest = fmt.Sprintf(`(r.status >= 500 OR r.status IN (401, 403, 429) OR r.decision IN (%d, %d, %d) OR r.reason BETWEEN %d AND %d OR r.reason = %d)`, //nolint:gochecknoglobals // never written
	accesslog.NoGateway, accesslog.NoRoute, accesslog.NoMethod, accesslog.KeyWasRevoked, accesslog.LeaseLost, accesslog.OwnerWasSuspended)

const requestColumns = `SELECT r.account_id, r.id, r.time, r.gateway_id, r.route_id, r.key_id, r.key_prefix, r.method, r.path, r.client_ip,
	r.status, r.duration, r.decision, r.limit_scope, r.limit_count, r.remaining, r.passes_at, r.upstream_status, r.reason, r.detail, r.host, coalesce(l.count, 0)
	FROM requests r LEFT JOIN requests_left_out l ON l.account_id = r.account_id AND l.second = r.time / 1000000 `

func scanRequest(r *Row) (requestlog.Record, error) {
	var q requestlog.Record
	var at, duration int64
	err := r.Scan(&q.AccountID, &q.ID, &at, &q.GatewayID, &q.RouteID, &q.KeyID, (*text)(&q.KeyPrefix), (*text)(&q.Method), (*text)(&q.Path), &q.ClientIP,
		&q.Status, &duration, &q.Decision, &q.LimitScope, &q.Limit, &q.Remaining, &q.PassesAt, &q.UpstreamStatus, &q.Reason, (*text)(&q.Detail), (*text)(&q.Host), &q.LeftOut)
	q.Time, q.Duration = Instant(at), time.Duration(duration)
	q.Detail, q.Cost = splitCost(q.Detail)
	return q, err
}

// RequestRecords implements requestlog.Store.
func (s *Store) RequestRecords(ctx context.Context, accountID string, f requestlog.Filter, limit int, after string) ([]requestlog.Record, error) {
	return read(ctx, s, Reports, func(t *Reader) ([]requestlog.Record, error) {
		query, args := requestQuery(accountID, f, limit, after)
		return readAll(ctx, t, "list requests", query, args, scanRequest)
	})
}

// requestQuery returns the query for a page of records, newest first.
func requestQuery(accountID string, f requestlog.Filter, limit int, after string) (query string, args []any) {
	s := requestSpan(f.Since, f.Until, Below(after))
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
	switch f.Result {
	case requestlog.ResultCharged:
		where += ` AND NOT ` + endedRequest
	case "":
		where += ` AND ` + endedRequest
	default:
		where += ` AND ` + endedRequest
		and(`r.decision =`, int64(requestlog.ResultOf(f.Result)))
	}
	if !f.Since.IsZero() {
		and(`r.time >=`, Micros(f.Since))
	}
	if !f.Until.IsZero() {
		and(`r.time <`, Micros(f.Until))
	}
	return requestColumns + where + ` ORDER BY r.id DESC LIMIT $4`, args
}

// RequestRecord implements requestlog.Store.
func (s *Store) RequestRecord(ctx context.Context, accountID, requestID string) (*requestlog.Record, error) {
	list, err := read(ctx, s, Calls, func(t *Reader) ([]requestlog.Record, error) {
		return readAll(ctx, t, "read request", requestColumns+`WHERE r.account_id = $1 AND r.id = $2`, []any{accountID, requestID}, scanRequest)
	})
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, fault.New(fault.NotFound, "no such request was refused, failed or kept for its cost within the last 24 hours")
	}
	return &list[0], nil
}
