package sqlite

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// EndLeases implements sender.FinishTx.
func (t *tx) EndLeases(ctx context.Context, results []sender.Result) (endpoints []string, err error) {
	endpoints = make([]string, len(results))
	for i := range results {
		if endpoints[i], err = t.endLease(ctx, &results[i]); err != nil {
			return nil, err
		}
	}
	return endpoints, nil
}

// endLease records one result. It returns the endpoint, or "" if the lease has ended.
func (t *tx) endLease(ctx context.Context, r *sender.Result) (endpoint string, err error) {
	next, finished := rows.MaybeMicros(r.NextAttemptAt), any(nil)
	if r.State == webhook.Delivered || r.State == webhook.Failed {
		next, finished = nil, rows.Micros(r.Attempt.Ended())
	}
	var n int64
	err = t.Query(ctx, "finish delivery", `UPDATE deliveries SET state = ?, attempts = ?, next_at = ?, due_at = ?, token = NULL, finished_at = ?
		WHERE id = ? AND token = ? RETURNING n, webhook_id`,
		[]any{rows.DeliveryState(r.State), r.Attempt.Number, next, next, finished, r.DeliveryID, r.Token}, func(row *rows.Row) error {
			return row.Scan(&n, &endpoint)
		})
	if err != nil || endpoint == "" {
		return "", err
	}
	return endpoint, t.insertAttempt(ctx, n, &r.Attempt)
}

// Strand implements control.DeliveryStore.
func (t *tx) Strand(ctx context.Context, webhookID string, w *webhook.Webhook, now time.Time, limit int) error {
	_, err := t.FailWaiting(ctx, webhookID, w.NotSent(), now, limit)
	return err
}

// FailWaiting implements sender.FinishTx.
func (t *tx) FailWaiting(ctx context.Context, endpoint, reason string, now time.Time, limit int) (int, error) {
	type stranded struct{ n, made int64 }
	var all []stranded
	err := t.Query(ctx, "find stranded deliveries", `SELECT n, attempts FROM deliveries INDEXED BY deliveries_due
		WHERE webhook_id = ? AND due_at IS NOT NULL AND (token IS NULL OR due_at <= ?) LIMIT ?+0`,
		[]any{endpoint, rows.Micros(now), rows.Limit(limit)}, func(r *rows.Row) error {
			var s stranded
			err := r.Scan(&s.n, &s.made)
			all = append(all, s)
			return err
		})
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		_, err := t.Exec(ctx, "fail delivery", `UPDATE deliveries SET state = 3, next_at = NULL, due_at = NULL, token = NULL, finished_at = ? WHERE n = ?`,
			rows.Micros(now), s.n)
		if err != nil {
			return 0, err
		}
		if err := t.insertAttempt(ctx, s.n, &webhook.Attempt{Number: int(s.made) + 1, StartedAt: now, Error: reason}); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}
