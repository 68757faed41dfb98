package sqlite

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/requestlog"
	"github.com/keygate/keygate/internal/store/rows"
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

// RequestRecords implements requestlog.Store.
func (db *DB) RequestRecords(ctx context.Context, accountID string, f requestlog.Filter, limit int, after string) (list []requestlog.Record, err error) {
	err = db.search(ctx, func(t *readTx) error {
		list, err = t.RequestRecords(ctx, accountID, f, limit, after)
		return err
	})
	return list, err
}

// RequestRecord implements requestlog.Store.
func (db *DB) RequestRecord(ctx context.Context, accountID, requestID string) (found *requestlog.Record, err error) {
	err = view(ctx, db.readers, func(t *readTx) error {
		found, err = t.RequestRecord(ctx, accountID, requestID)
		return err
	})
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
