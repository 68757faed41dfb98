package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/fanout"
)

var _ fanout.Store = (*DB)(nil)

// A former subscription is kept for subscriptionKept at least: a transaction that has taken the number of a fan-out may
// not be committed yet, and none takes as long (writeTime).
const subscriptionKept = `interval '1 minute'`

// nextFanOut finds the first account behind another one that has events to fan out, or former subscriptions that may
// not be needed any more.
const nextFanOut = `SELECT least(
		(SELECT account_id FROM fan_outs WHERE account_id > $1 ORDER BY account_id LIMIT 1),
		(SELECT account_id FROM former_subscriptions WHERE account_id > $1 AND (ended IS NULL OR ended < clock_timestamp() - ` + subscriptionKept + `)
			ORDER BY account_id LIMIT 1))`

// FanOut implements fanout.Store. It reads before it begins a transaction, because usually there is nothing to do.
// COMMIT does not wait for replicas: that of the claim of a delivery waits for both.
func (db *DB) FanOut(ctx context.Context, after string, now time.Time, limit int) (accountID string, written int, err error) {
	var found *string
	err = db.statement(ctx, db.readers, readTime, func(t *readTx) error {
		return t.Query(ctx, "find events to fan out", nextFanOut, []any{after}, func(r rows.Row) error { return r.Scan(&found) })
	})
	if err != nil || found == nil {
		return "", 0, err
	}
	err = db.record(ctx, func(t *tx) (err error) {
		written, err = t.fanOut(ctx, *found, now, rows.Limit(limit))
		return err
	})
	return *found, written, err
}

// FanOutBacklog implements fanout.Counter.
func (db *DB) FanOutBacklog(ctx context.Context) (map[string]int, error) {
	of := map[string]int{}
	err := db.statement(ctx, db.readers, readTime, func(t *readTx) error {
		clear(of)
		return t.Query(ctx, "count events to fan out", `SELECT account_id, count(*) FROM fan_outs GROUP BY account_id`, nil, func(r rows.Row) error {
			var accountID string
			var n int
			err := r.Scan(&accountID, &n)
			of[accountID] = n
			return err
		})
	})
	return of, err
}

// fanOut writes up to limit rows for events of an account, the oldest event first.
func (t *tx) fanOut(ctx context.Context, accountID string, now time.Time, limit int) (written int, err error) {
	for written < limit {
		f, created, err := t.oldestFanOut(ctx, accountID)
		if err != nil {
			return 0, err
		}
		if f == nil {
			break
		}
		n, err := t.fanOutEvent(ctx, f, created, now, limit-written)
		if err != nil {
			return 0, err
		}
		written += n
	}
	if written >= limit {
		return written, nil
	}
	n, err := t.Exec(ctx, "forget former subscriptions", `DELETE FROM former_subscriptions WHERE n IN (
			SELECT n FROM former_subscriptions WHERE account_id = $1 AND (ended IS NULL OR ended < clock_timestamp() - `+subscriptionKept+`)
			AND NOT EXISTS (SELECT 1 FROM fan_outs f WHERE f.account_id = $1 AND f.n <= former_subscriptions.until) LIMIT $2 FOR UPDATE SKIP LOCKED)`,
		accountID, limit-written)
	return written + int(n), err
}

// oldestFanOut returns the account's oldest event that is not fanned out and that no other transaction fans out, and
// when it was created. The time is not valid if the event was removed since.
func (t *tx) oldestFanOut(ctx context.Context, accountID string) (f *stored.FanOut, created sql.NullInt64, err error) {
	err = t.Query(ctx, "read an event to fan out", `SELECT f.n, f.event_id, f.account_id, f.type, f.after, (SELECT created_at FROM events WHERE id = f.event_id)
		FROM fan_outs f WHERE f.account_id = $1 ORDER BY f.n LIMIT 1 FOR UPDATE SKIP LOCKED`, []any{accountID}, func(r rows.Row) error {
		f = &stored.FanOut{}
		return r.Scan(&f.N, &f.EventID, &f.Account, &f.Type, &f.After, &created)
	})
	return f, created, err
}

// fanOutEvent writes up to limit rows, of which the last one may be the end of f.
func (t *tx) fanOutEvent(ctx context.Context, f *stored.FanOut, created sql.NullInt64, now time.Time, limit int) (written int, err error) {
	var endpoints []string
	if created.Valid {
		if endpoints, err = t.Texts(ctx, "read subscribed webhooks", subscribed, f.Account, f.After, f.N, f.Type, limit); err != nil {
			return 0, err
		}
	}
	at := now.UTC()
	if raised := rows.Instant(created.Int64); at.Before(raised) {
		at = raised
	}
	deliveries := make([]webhook.Delivery, len(endpoints))
	for i, endpoint := range endpoints {
		deliveries[i] = webhook.Delivery{
			ID: id.NewAt(id.Delivery, at), AccountID: f.Account, WebhookID: endpoint, EventID: f.EventID, EventType: event.Type(f.Type),
			State: webhook.Pending, Trigger: webhook.ByEvent, NextAttemptAt: at, CreatedAt: at,
		}
	}
	if err := t.insertDeliveries(ctx, deliveries); err != nil {
		return 0, err
	}
	if len(endpoints) < limit {
		return len(endpoints) + 1, t.Queue(ctx, "end a fan-out", `DELETE FROM fan_outs WHERE n = $1`, f.N)
	}
	return len(endpoints), t.Queue(ctx, "continue a fan-out", `UPDATE fan_outs SET after = $1 WHERE n = $2`, endpoints[len(endpoints)-1], f.N)
}

// subscribed finds the endpoints behind another one that were subscribed to a type when a fan-out began, in the
// order of their identifiers.
const subscribed = `(SELECT id FROM webhooks WHERE account_id = $1 AND id > $2 AND active AND since < $3
			AND strpos(' ' || events || ' ', ' ' || $4 || ' ') > 0 ORDER BY id LIMIT $5)
		UNION (SELECT webhook_id FROM former_subscriptions WHERE account_id = $1 AND webhook_id > $2 AND since < $3 AND until >= $3
			AND strpos(' ' || events || ' ', ' ' || $4 || ' ') > 0 ORDER BY webhook_id LIMIT $5)
		ORDER BY id LIMIT $5`
