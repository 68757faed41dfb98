package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

// strandedAtOnce is how many waiting deliveries fail in the transaction that disables their
// endpoint. FailStranded fails the others.
const strandedAtOnce = 100

// FinishDeliveries implements sender.Queue.
func (db *DB) FinishDeliveries(ctx context.Context, results []sender.Result) (late int, err error) {
	err = db.write(ctx, func(t *tx) error {
		late = 0
		f := finish{tx: t, endpoints: map[string]*webhook.Webhook{}, before: map[string]webhook.Webhook{}}
		for i := range results {
			found, err := f.take(ctx, &results[i])
			if err != nil {
				return err
			}
			if !found {
				late++
			}
		}
		return f.storeEndpoints(ctx)
	})
	return late, err
}

// finish is one batch of results.
type finish struct {
	*tx
	endpoints map[string]*webhook.Webhook // after the results; nil if deleted
	before    map[string]webhook.Webhook  // the changed ones, before the results
	last      time.Time                   // the end of the latest attempt
}

// take records one result. found is false if its lease has ended.
func (f *finish) take(ctx context.Context, r *sender.Result) (found bool, err error) {
	ended := r.Attempt.StartedAt.Add(r.Attempt.Duration)
	next, finished := maybeMicros(r.NextAttemptAt), any(nil)
	if r.State == webhook.Delivered || r.State == webhook.Failed {
		next, finished = nil, micros(ended)
	}
	var (
		n        int64
		endpoint string
	)
	err = f.rows(ctx, "finish delivery", `UPDATE deliveries SET state = ?, attempts = ?, next_at = ?, due_at = ?, token = NULL, finished_at = ?
		WHERE id = ? AND token = ? RETURNING n, webhook_id`,
		[]any{stateNumber(r.State), r.Attempt.Number, next, next, finished, r.DeliveryID, r.Token}, func(rows *sql.Rows) error {
			found = true
			return rows.Scan(&n, &endpoint)
		})
	if err != nil || !found {
		return false, err
	}
	if err := f.insertAttempt(ctx, n, &r.Attempt); err != nil {
		return true, err
	}
	if ended.After(f.last) {
		f.last = ended
	}
	w, err := f.endpoint(ctx, f.endpoints, endpoint)
	if err != nil || w == nil {
		return true, err
	}
	before := *w
	if w.Observe(&r.Attempt) {
		if _, changed := f.before[w.ID]; !changed {
			f.before[w.ID] = before
		}
	}
	return true, nil
}

// storeEndpoints writes the health of the endpoints. If an endpoint was disabled, it writes
// an audit record and fails the endpoint's waiting deliveries.
func (f *finish) storeEndpoints(ctx context.Context) error {
	for id, before := range f.before {
		w := f.endpoints[id]
		w.FailingSince = w.FailingSince.Truncate(time.Microsecond)
		disabled := before.State == webhook.Active && w.State == webhook.Disabled
		if disabled {
			w.Version++
		}
		if err := f.UpdateWebhook(ctx, w); err != nil {
			return err
		}
		if !disabled {
			continue
		}
		err := f.AppendAudit(ctx, &audit.Record{
			AccountID: w.AccountID, Time: f.last, Kind: audit.Management, Outcome: audit.Success, Action: audit.WebhookDisable, Target: w.ID,
			Diff: audit.Diff{"state": {string(before.State), string(w.State)}, "disabled_reason": {nil, w.DisabledReason}},
		})
		if err != nil {
			return err
		}
		if _, err := f.failStranded(ctx, w.ID, notSent(w), f.last, strandedAtOnce); err != nil {
			return err
		}
	}
	return nil
}

// notSent returns the error of a delivery that failed without an attempt. w is nil if the
// endpoint was deleted.
func notSent(w *webhook.Webhook) string {
	switch {
	case w == nil:
		return "not sent: the endpoint was deleted"
	case w.DisabledReason == "":
		return "not sent: the endpoint is disabled"
	default:
		return "not sent: the endpoint is disabled: " + w.DisabledReason
	}
}

// StrandingWebhooks implements control.DeliveryReader.
func (t *readTx) StrandingWebhooks(ctx context.Context) ([]string, error) {
	return t.texts(ctx, "find stranded deliveries", waiting+`SELECT waiting.id FROM waiting LEFT JOIN webhooks w ON w.id = waiting.id
		WHERE waiting.id IS NOT NULL AND (w.id IS NULL OR w.active = 0)`)
}

// FailStranded implements control.DeliveryStore.
func (t *tx) FailStranded(ctx context.Context, webhookID string, now time.Time, limit int) (more bool, err error) {
	w, err := t.endpoint(ctx, map[string]*webhook.Webhook{}, webhookID)
	if err != nil || w != nil && w.State == webhook.Active {
		return false, err
	}
	n, err := t.failStranded(ctx, webhookID, notSent(w), now, limit)
	return limit > 0 && n == limit, err
}

// failStranded fails up to limit waiting deliveries of an endpoint that are not leased, and
// returns how many.
func (t *tx) failStranded(ctx context.Context, endpoint, reason string, now time.Time, limit int) (int, error) {
	type stranded struct{ n, made int64 }
	var all []stranded
	err := t.rows(ctx, "find stranded deliveries", `SELECT n, attempts FROM deliveries INDEXED BY deliveries_due
		WHERE webhook_id = ? AND due_at IS NOT NULL AND (token IS NULL OR due_at <= ?) LIMIT ?+0`,
		[]any{endpoint, micros(now), rowLimit(limit)}, func(r *sql.Rows) error {
			var s stranded
			err := r.Scan(&s.n, &s.made)
			all = append(all, s)
			return err
		})
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		_, err := t.exec(ctx, "fail delivery", `UPDATE deliveries SET state = 3, next_at = NULL, due_at = NULL, token = NULL, finished_at = ? WHERE n = ?`,
			micros(now), s.n)
		if err != nil {
			return 0, err
		}
		if err := t.insertAttempt(ctx, s.n, &webhook.Attempt{Number: int(s.made) + 1, StartedAt: now, Error: reason}); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}
