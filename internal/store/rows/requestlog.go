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
		numbers [11][]int64
	)
	for i := range records {
		r := &records[i]
		limit := r.Limit
		if r.Decision != accesslog.Limited {
			limit = attemptCount(r)
		}
		for n, v := range [...]string{r.AccountID, r.ID, r.GatewayID, r.RouteID, r.KeyID, r.ClientIP} {
			texts[n] = append(texts[n], v)
		}
		for n, v := range [...]string{r.KeyPrefix, r.Method, r.Path, packToken(r.Token, packDetail(r.Detail, r.Cost, r.Side, r.SideReason, r.AttemptList)), r.Host} {
			sent[n] = append(sent[n], v)
		}
		for n, v := range [...]int64{Micros(r.Time), int64(r.Status), int64(r.Duration), int64(r.Decision), int64(r.LimitScope), limit, r.Remaining, r.PassesAt,
			int64(r.UpstreamStatus), int64(r.Reason), r.Size()} {
			numbers[n] = append(numbers[n], v)
		}
	}
	err := t.QueueEach(ctx, "insert requests", `INSERT INTO requests (account_id, id, time, gateway_id, route_id, key_id, key_prefix, method, path, client_ip,
			status, duration, decision, limit_scope, limit_count, remaining, passes_at, upstream_status, reason, detail, host, size)
		SELECT account_id, id, time, gateway_id, route_id, key_id, key_prefix, method, path, client_ip,
			status, duration, decision, limit_scope, limit_count, remaining, passes_at, upstream_status, reason, detail, host, size
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::bytea[], $9::bytea[], $10::text[],
			$11::bigint[], $12::bigint[], $13::integer[], $14::integer[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::integer[], $20::bytea[], $21::bytea[], $22::bigint[])
			AS r (account_id, id, time, gateway_id, route_id, key_id, key_prefix, method, path, client_ip,
			status, duration, decision, limit_scope, limit_count, remaining, passes_at, upstream_status, reason, detail, host, size) WHERE true
		ON CONFLICT DO NOTHING`, texts[0], texts[1], numbers[0], texts[2], texts[3], texts[4], sent[0], sent[1], sent[2], texts[5],
		numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7], numbers[8], numbers[9], sent[3], sent[4], numbers[10])
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

// attemptCount returns the column limit_count of a request that no limit has refused: the number of its attempts, negative if it
// has no costs. 0 is none.
func attemptCount(r *requestlog.Record) int64 {
	n := int64(accesslog.CountAttempts(r.AttemptList))
	if r.Cost == "" {
		return -n
	}
	return n
}

// The forms of the column detail. The detail alone has none of them, and does not begin with a zero byte. All numbers are varints.
const (
	formOfCost     = "\x00"             // the length of the detail, the detail and the costs
	formOfAttempts = "\x00\x80\x00"     // the detail, the costs, the side and its reason, each after its length, and the attempts
	formOfToken    = "\x00\x80\x80\x00" // the issuer and the subject, each after its length, and the detail in another form
)

// packDetail returns the text of the column detail: the detail with the costs, the side and the attempts. The form of attempts
// is a length of 0 in two bytes to a version that does not know it, whose lengths have as few bytes as they need.
func packDetail(detail, cost, side, why, attempts string) string {
	switch {
	case attempts != "", side != "", why != "":
		return formOfAttempts + lengthy(detail) + lengthy(cost) + lengthy(side) + lengthy(why) + attempts
	case cost != "", strings.HasPrefix(detail, "\x00"):
		return formOfCost + lengthy(detail) + cost
	default:
		return detail
	}
}

// packToken returns packed, a result of packDetail, with the token t, which may be nil.
func packToken(t *accesslog.Token, packed string) string {
	if t == nil {
		return packed
	}
	return formOfToken + lengthy(t.IssuerID) + lengthy(t.Subject) + packed
}

// unpackToken is the inverse of packToken.
func unpackToken(column string) (t *accesslog.Token, packed string) {
	if rest, is := strings.CutPrefix(column, formOfToken); is {
		issuerID, rest, isIssuer := cutLengthy(rest)
		subject, rest, isSubject := cutLengthy(rest)
		if isIssuer && isSubject {
			return &accesslog.Token{IssuerID: issuerID, Subject: subject}, rest
		}
	}
	return nil, column
}

// lengthy returns a text after its length.
func lengthy(text string) string {
	return string(append(binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen64+len(text)), uint64(len(text))), text...))
}

// unpackDetail is the inverse of packDetail.
func unpackDetail(column string) (detail, cost, side, why, attempts string) {
	if rest, is := strings.CutPrefix(column, formOfAttempts); is {
		detail, rest, isDetail := cutLengthy(rest)
		cost, rest, isCost := cutLengthy(rest)
		side, rest, isSide := cutLengthy(rest)
		why, attempts, isWhy := cutLengthy(rest)
		if isDetail && isCost && isSide && isWhy {
			return detail, cost, side, why, attempts
		}
	}
	if rest, is := strings.CutPrefix(column, formOfCost); is {
		if detail, cost, is = cutLengthy(rest); is {
			return detail, cost, "", "", ""
		}
	}
	return column, "", "", "", ""
}

// cutLengthy returns the text after its length with which column begins, and what follows it.
func cutLengthy(column string) (text, rest string, ok bool) {
	length, n := binary.Uvarint([]byte(column[:min(len(column), binary.MaxVarintLen64)]))
	if rest = column[max(n, 0):]; n <= 0 || length > uint64(len(rest)) {
		return "", "", false
	}
	return rest[:length], rest[length:], true
}

// endedRequest is the condition for a request that was refused, that failed or could not go on, as requestlog.Belongs says it.
var endedRequest = fmt.Sprintf(`(r.status >= 500 OR r.status IN (401, 403, 429) OR r.decision IN (%d, %d, %d) OR r.reason BETWEEN %d AND %d OR r.reason IN (%d, %d, %d))`, //nolint:gochecknoglobals // never written
	accesslog.NoGateway, accesslog.NoRoute, accesslog.NoMethod, accesslog.KeyWasRevoked, accesslog.LeaseLost, accesslog.OwnerWasSuspended, accesslog.TargetGone, accesslog.DocumentMismatch)

// retriedRequest is the condition for a request with several attempts, as requestlog.Filter says it.
var retriedRequest = fmt.Sprintf(` AND r.decision <> %d AND NOT r.limit_count BETWEEN -1 AND 1`, accesslog.Limited) //nolint:gochecknoglobals // never written

const requestColumns = `SELECT r.account_id, r.id, r.time, r.gateway_id, r.route_id, r.key_id, r.key_prefix, r.method, r.path, r.client_ip,
	r.status, r.duration, r.decision, r.limit_scope, r.limit_count, r.remaining, r.passes_at, r.upstream_status, r.reason, r.detail, r.host, coalesce(l.count, 0)
	FROM requests r LEFT JOIN requests_left_out l ON l.account_id = r.account_id AND l.second = r.time / 1000000 `

func scanRequest(r *Row) (requestlog.Record, error) {
	var q requestlog.Record
	var at, duration int64
	err := r.Scan(&q.AccountID, &q.ID, &at, &q.GatewayID, &q.RouteID, &q.KeyID, (*text)(&q.KeyPrefix), (*text)(&q.Method), (*text)(&q.Path), &q.ClientIP,
		&q.Status, &duration, &q.Decision, &q.LimitScope, &q.Limit, &q.Remaining, &q.PassesAt, &q.UpstreamStatus, &q.Reason, (*text)(&q.Detail), (*text)(&q.Host), &q.LeftOut)
	q.Time, q.Duration = Instant(at), time.Duration(duration)
	q.Token, q.Detail = unpackToken(q.Detail)
	q.Detail, q.Cost, q.Side, q.SideReason, q.AttemptList = unpackDetail(q.Detail)
	if q.Decision != accesslog.Limited {
		q.Limit = 0 // see attemptCount
	}
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
		where += ` AND r.limit_count >= 0 AND NOT ` + endedRequest
	case requestlog.ResultRetried:
		where += retriedRequest
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
		return nil, fault.New(fault.NotFound, "no such request was refused, failed or kept for its cost or its attempts within the last 24 hours")
	}
	return &list[0], nil
}

// RequestBytes implements requestlog.Store. Triggers keep the counts.
func (s *Store) RequestBytes(ctx context.Context) ([]requestlog.AccountBytes, error) {
	return read(ctx, s, DataPlane, func(t *Reader) ([]requestlog.AccountBytes, error) {
		return readAll(ctx, t, "measure the request log", `SELECT account_id, sum(bytes)::bigint FROM request_bytes GROUP BY account_id`, nil,
			func(r *Row) (a requestlog.AccountBytes, err error) {
				err = r.Scan(&a.AccountID, &a.Bytes)
				return a, err
			})
	})
}

// CutRequests does what requestlog.Store.CutRequests does, in a transaction that no other one of the account runs beside.
func (t *Writer) CutRequests(ctx context.Context, most requestlog.AccountBytes, limit int) (cut requestlog.Cut, err error) {
	var excess int64
	err = t.Query(ctx, "measure the requests of an account", `SELECT coalesce(sum(bytes), 0)::bigint FROM request_bytes WHERE account_id = $1`,
		[]any{most.AccountID}, func(r *Row) error { return r.Scan(&excess) })
	if excess -= most.Bytes; err != nil || excess <= 0 {
		return requestlog.Cut{}, err
	}
	// A record belongs to them if those before it are not enough.
	var newest int64
	err = t.Query(ctx, "remove the oldest requests of an account", `DELETE FROM requests WHERE account_id = $1 AND id <= (
			SELECT max(id) FROM (SELECT id, sum(size) OVER (ORDER BY id) - size AS before
				FROM (SELECT id, size FROM requests WHERE account_id = $1 ORDER BY id LIMIT $3) AS oldest) AS summed WHERE before < $2::bigint)
		RETURNING time, size`, []any{most.AccountID, excess, Limit(limit)}, func(r *Row) error {
		var at, size int64
		err := r.Scan(&at, &size)
		newest = max(newest, at)
		excess -= size
		cut.Records++
		return err
	})
	if err != nil || cut.Records == 0 {
		return requestlog.Cut{}, err
	}
	cut.Newest, cut.More = Instant(newest), excess > 0
	_, err = t.Exec(ctx, "remove the counts of omitted requests of an account", `DELETE FROM requests_left_out WHERE account_id = $1 AND second = ANY (ARRAY(
		SELECT second FROM requests_left_out WHERE account_id = $1 AND second < $2 ORDER BY second LIMIT $3))`, most.AccountID, cut.Newest.Unix(), Limit(limit))
	return cut, err
}
