package sqlite

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
)

var _ requestlog.Store = (*DB)(nil)

// AppendRequests implements requestlog.Store.
func (db *DB) AppendRequests(ctx context.Context, batch accesslog.BatchID, records []requestlog.Record, left []requestlog.LeftOut) error {
	return db.record(ctx, func(t *tx) error {
		if isNew, err := t.takeBatch(ctx, batch); err != nil || !isNew {
			return err
		}
		for i := range records {
			r := &records[i]
			_, err := t.Exec(ctx, "insert request", `INSERT INTO requests (account_id, id, time, gateway_id, route_id, key_id, key_prefix, method, path, client_ip,
				status, duration, decision, limit_scope, limit_count, remaining, passes_at, upstream_status, reason, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
				ON CONFLICT DO NOTHING`,
				r.AccountID, r.ID, rows.Micros(r.Time), r.GatewayID, r.RouteID, r.KeyID, r.KeyPrefix, r.Method, r.Path, r.ClientIP,
				r.Status, int64(r.Duration), int64(r.Decision), int64(r.LimitScope), r.Limit, r.Remaining, r.PassesAt, r.UpstreamStatus, int64(r.Reason), r.Detail)
			if err != nil {
				return err
			}
		}
		for _, l := range left {
			_, err := t.Exec(ctx, "count omitted requests", `INSERT INTO requests_left_out (account_id, second, count) VALUES (?, ?, ?)
				ON CONFLICT (account_id, second) DO UPDATE SET count = count + excluded.count`, l.AccountID, l.Second, l.Count)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

const requestColumns = `SELECT r.account_id, r.id, r.time, r.gateway_id, r.route_id, r.key_id, r.key_prefix, r.method, r.path, r.client_ip,
	r.status, r.duration, r.decision, r.limit_scope, r.limit_count, r.remaining, r.passes_at, r.upstream_status, r.reason, r.detail, coalesce(l.count, 0)
	FROM requests r LEFT JOIN requests_left_out l ON l.account_id = r.account_id AND l.second = r.time / 1000000 `

func scanRequest(r rows.Row) (requestlog.Record, error) {
	var q requestlog.Record
	var at int64
	err := r.Scan(&q.AccountID, &q.ID, &at, &q.GatewayID, &q.RouteID, &q.KeyID, &q.KeyPrefix, &q.Method, &q.Path, &q.ClientIP,
		&q.Status, &q.Duration, &q.Decision, &q.LimitScope, &q.Limit, &q.Remaining, &q.PassesAt, &q.UpstreamStatus, &q.Reason, &q.Detail, &q.LeftOut)
	q.Time = time.UnixMicro(at).UTC()
	return q, err
}

// RequestRecords implements requestlog.Store.
func (db *DB) RequestRecords(ctx context.Context, accountID string, f requestlog.Filter, limit int, after string) (list []requestlog.Record, err error) {
	s := stored.RequestSpan(f.Since, f.Until, rows.Below(after))
	where, args := `WHERE r.account_id = ? AND r.id >= ? AND r.id < ?`, []any{accountID, s.From, s.Below}
	and := func(condition string, value any) {
		where += ` AND ` + condition
		args = append(args, value)
	}
	if f.KeyID != "" {
		where += ` AND r.key_id <> ''`
		and(`r.key_id = ?`, f.KeyID)
	}
	if f.RouteID != "" {
		where += ` AND r.route_id <> ''`
		and(`r.route_id = ?`, f.RouteID)
	}
	if f.GatewayID != "" {
		and(`r.gateway_id = ?`, f.GatewayID)
	}
	if f.Status != 0 {
		and(`r.status = ?`, f.Status)
	}
	if !f.Since.IsZero() {
		and(`r.time >= ?`, rows.Micros(f.Since))
	}
	if !f.Until.IsZero() {
		and(`r.time < ?`, rows.Micros(f.Until))
	}
	args = append(args, rows.Limit(limit))
	err = db.search(ctx, func(t *readTx) error {
		return t.Query(ctx, "list requests", requestColumns+where+` ORDER BY r.id DESC LIMIT ?+0`, args, func(r rows.Row) error {
			q, err := scanRequest(r)
			list = append(list, q)
			return err
		})
	})
	return list, err
}

// RequestRecord implements requestlog.Store.
func (db *DB) RequestRecord(ctx context.Context, accountID, requestID string) (*requestlog.Record, error) {
	var found *requestlog.Record
	err := view(ctx, db.readers, func(t *readTx) error {
		return t.Query(ctx, "read request", requestColumns+`WHERE r.account_id = ? AND r.id = ?`, []any{accountID, requestID}, func(r rows.Row) error {
			q, err := scanRequest(r)
			found = &q
			return err
		})
	})
	if err == nil && found == nil {
		return nil, fault.New(fault.NotFound, "no such request was refused or failed within the last 24 hours")
	}
	return found, err
}

// TrimRequests implements requestlog.Store.
func (db *DB) TrimRequests(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	limit = rows.Limit(limit)
	err = db.record(ctx, func(t *tx) error {
		n, err := t.Exec(ctx, "trim requests", `DELETE FROM requests WHERE (account_id, id) IN (SELECT account_id, id FROM requests WHERE time < ? ORDER BY time LIMIT ?+0)`, rows.Micros(before), limit)
		if err != nil {
			return err
		}
		m, err := t.Exec(ctx, "trim counts of omitted requests", `DELETE FROM requests_left_out WHERE (account_id, second) IN
			(SELECT account_id, second FROM requests_left_out WHERE second < ? ORDER BY second LIMIT ?+0)`, before.Unix(), limit)
		if err != nil {
			return err
		}
		w, err := t.trimBatches(ctx, before, limit)
		more = limit > 0 && (n == int64(limit) || m == int64(limit) || w == int64(limit))
		return err
	})
	return more, err
}
