package sqlite

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

// nextFanOut finds the first account behind another one that has events to fan out, or subscriptions that ended
// and are kept for these.
const nextFanOut = `SELECT min(id) FROM (
		SELECT (SELECT account_id FROM fan_outs INDEXED BY fan_outs_account WHERE account_id > ? ORDER BY account_id LIMIT 1) AS id
		UNION ALL SELECT (SELECT account_id FROM former_subscriptions INDEXED BY former_subscriptions_end WHERE account_id > ? ORDER BY account_id LIMIT 1))`

// FanOut implements fanout.Store. It reads before it takes the writer, because usually there is nothing to do. That
// what it writes is on the disk is not waited for: the claim of a delivery waits for both.
func (db *DB) FanOut(ctx context.Context, after string, now time.Time, limit int) (accountID string, written int, err error) {
	err = view(ctx, db.readers, func(t *readTx) error {
		return t.Query(ctx, "find events to fan out", nextFanOut, []any{after, after}, func(r rows.Row) error {
			var found sql.NullString
			err := r.Scan(&found)
			accountID = found.String
			return err
		})
	})
	if err != nil || accountID == "" {
		return "", 0, err
	}
	err = db.record(ctx, func(t *tx) (err error) {
		written, err = t.fanOut(ctx, accountID, now, rows.Limit(limit))
		return err
	})
	return accountID, written, err
}

// FanOutBacklog implements fanout.Counter.
func (db *DB) FanOutBacklog(ctx context.Context) (map[string]int, error) {
	of := map[string]int{}
	err := view(ctx, db.readers, func(t *readTx) error {
		clear(of)
		return t.Query(ctx, "count events to fan out", `SELECT account_id, count(*) FROM fan_outs INDEXED BY fan_outs_account GROUP BY account_id`, nil, func(r rows.Row) error {
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
			SELECT n FROM former_subscriptions INDEXED BY former_subscriptions_end WHERE account_id = ?
			AND until < coalesce((SELECT min(n) FROM fan_outs WHERE account_id = ?), 9223372036854775807) LIMIT ?+0)`, accountID, accountID, limit-written)
	return written + int(n), err
}

// oldestFanOut returns the account's oldest event that is not fanned out, and when it was created. The time is not
// valid if the event was removed since.
func (t *tx) oldestFanOut(ctx context.Context, accountID string) (f *stored.FanOut, created sql.NullInt64, err error) {
	err = t.Query(ctx, "read an event to fan out", `SELECT f.n, f.event_id, f.account_id, f.type, f.after, e.created_at
		FROM fan_outs f INDEXED BY fan_outs_account LEFT JOIN events e ON e.id = f.event_id WHERE f.account_id = ? ORDER BY f.n LIMIT 1`,
		[]any{accountID}, func(r rows.Row) error {
			f = &stored.FanOut{}
			return r.Scan(&f.N, &f.EventID, &f.Account, &f.Type, &f.After, &created)
		})
	return f, created, err
}

// fanOutEvent writes up to limit rows, of which the last one may be the end of f.
func (t *tx) fanOutEvent(ctx context.Context, f *stored.FanOut, created sql.NullInt64, now time.Time, limit int) (written int, err error) {
	var endpoints []string
	if created.Valid {
		if endpoints, err = t.Texts(ctx, "read subscribed webhooks", subscribed,
			f.Account, f.After, f.N, f.Type, limit, f.Account, f.After, f.N, f.N, f.Type, limit, limit); err != nil {
			return 0, err
		}
	}
	at := now.UTC()
	if raised := rows.Instant(created.Int64); at.Before(raised) {
		at = raised
	}
	for _, endpoint := range endpoints {
		d := webhook.Delivery{
			ID: id.NewAt(id.Delivery, at), AccountID: f.Account, WebhookID: endpoint, EventID: f.EventID, EventType: event.Type(f.Type),
			State: webhook.Pending, Trigger: webhook.ByEvent, NextAttemptAt: at, CreatedAt: at,
		}
		if err := t.insertDelivery(ctx, &d); err != nil {
			return 0, err
		}
	}
	if len(endpoints) < limit {
		_, err = t.Exec(ctx, "end a fan-out", `DELETE FROM fan_outs WHERE n = ?`, f.N)
		return len(endpoints) + 1, err
	}
	_, err = t.Exec(ctx, "continue a fan-out", `UPDATE fan_outs SET after = ? WHERE n = ?`, endpoints[len(endpoints)-1], f.N)
	return len(endpoints), err
}

// subscribed finds the endpoints behind another one that were subscribed to a type when a fan-out began, in the
// order of their identifiers.
const subscribed = `SELECT id FROM (SELECT id FROM webhooks INDEXED BY webhooks_list WHERE account_id = ? AND id > ? AND active = 1 AND since < ?
			AND instr(' ' || events || ' ', ' ' || ? || ' ') > 0 ORDER BY id LIMIT ?+0)
		UNION SELECT id FROM (SELECT webhook_id AS id FROM former_subscriptions INDEXED BY former_subscriptions_list WHERE account_id = ? AND webhook_id > ?
			AND since < ? AND until >= ? AND instr(' ' || events || ' ', ' ' || ? || ' ') > 0 ORDER BY webhook_id LIMIT ?+0)
		ORDER BY id LIMIT ?+0`

// insertFanOut notes that an event is to be fanned out.
func (t *tx) insertFanOut(ctx context.Context, e *event.Event) error {
	_, err := t.Exec(ctx, "note an event to fan out", `INSERT INTO fan_outs (event_id, account_id, type, after) VALUES (?, ?, ?, '')`,
		e.ID, e.AccountID, string(e.Type))
	return err
}
