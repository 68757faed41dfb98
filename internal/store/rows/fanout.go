package rows

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/fanout"
)

var _ fanout.Store = (*Store)(nil)

// FanOut implements fanout.Store. It reads before it begins a transaction, because usually there is nothing to do. It
// is not Durable: the transaction that claims a delivery is, and waits for both.
func (s *Store) FanOut(ctx context.Context, after string, now time.Time, limit int) (accountID string, written int, err error) {
	var found sql.NullString
	err = s.engine.Read(ctx, OneOfThem, func(t *Reader) (err error) {
		found, err = t.NextFanOut(ctx, after)
		return err
	})
	if err != nil || !found.Valid {
		return "", 0, err
	}
	err = s.engine.Write(ctx, OfTraffic, func(t *Writer) (err error) {
		written, err = t.fanOut(ctx, found.String, now, Limit(limit))
		return err
	})
	return found.String, written, err
}

// FanOutBacklog implements fanout.Counter.
func (s *Store) FanOutBacklog(ctx context.Context) (of map[string]int, err error) {
	err = s.engine.Read(ctx, OneOfThem, func(t *Reader) error {
		of = map[string]int{}
		return t.Query(ctx, "count events to fan out", `SELECT account_id, count(*) FROM fan_outs INDEXED BY fan_outs_account GROUP BY account_id`, nil, func(r *Row) error {
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
func (t *Writer) fanOut(ctx context.Context, accountID string, now time.Time, limit int) (written int, err error) {
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
	n, err := t.ForgetSubscriptions(ctx, accountID, limit-written)
	return written + int(n), err
}

// oldestFanOut returns the account's oldest event that is not fanned out and that no other transaction fans out, and
// when it was created. The time is not valid if the event has been removed.
func (t *Writer) oldestFanOut(ctx context.Context, accountID string) (f *FanOut, created sql.NullInt64, err error) {
	err = t.Query(ctx, "read an event to fan out", `SELECT f.n, f.event_id, f.account_id, f.type, f.after, (SELECT created_at FROM events WHERE id = f.event_id)
		FROM fan_outs f INDEXED BY fan_outs_account WHERE f.account_id = $1 ORDER BY f.n LIMIT 1 FOR UPDATE SKIP LOCKED`, []any{accountID}, func(r *Row) error {
		f = &FanOut{}
		return r.Scan(&f.N, &f.EventID, &f.Account, &f.Type, &f.After, &created)
	})
	return f, created, err
}

// fanOutEvent writes up to limit rows, of which the last one may be the end of f.
func (t *Writer) fanOutEvent(ctx context.Context, f *FanOut, created sql.NullInt64, now time.Time, limit int) (written int, err error) {
	var endpoints []string
	if created.Valid {
		if endpoints, err = t.read.Texts(ctx, "read subscribed webhooks", SubscribedQuery, f.Account, f.After, f.N, f.Type, limit); err != nil {
			return 0, err
		}
	}
	at := now.UTC()
	if raised := Instant(created.Int64); at.Before(raised) {
		at = raised
	}
	deliveries := make([]webhook.Delivery, len(endpoints))
	for i, endpoint := range endpoints {
		deliveries[i] = webhook.Delivery{
			ID: id.NewAt(id.Delivery, at), AccountID: f.Account, WebhookID: endpoint, EventID: f.EventID, EventType: event.Type(f.Type),
			State: webhook.Pending, Trigger: webhook.ByEvent, NextAttemptAt: at, CreatedAt: at,
		}
	}
	if err := t.InsertDeliveries(ctx, deliveries); err != nil {
		return 0, err
	}
	if len(endpoints) < limit {
		return len(endpoints) + 1, t.Queue(ctx, "end a fan-out", `DELETE FROM fan_outs WHERE n = $1`, f.N)
	}
	return len(endpoints), t.Queue(ctx, "continue a fan-out", `UPDATE fan_outs SET after = $1 WHERE n = $2`, endpoints[len(endpoints)-1], f.N)
}

// SubscribedQuery finds the endpoints behind another one that were subscribed to a type when a fan-out began, in the
// order of their identifiers.
const SubscribedQuery = `SELECT id FROM (SELECT id FROM webhooks INDEXED BY webhooks_list WHERE account_id = $1 AND id > $2 AND active = true AND since < $3
			AND strpos(' ' || events || ' ', ' ' || $4 || ' ') > 0 ORDER BY id LIMIT $5) AS present
		UNION SELECT id FROM (SELECT webhook_id AS id FROM former_subscriptions INDEXED BY former_subscriptions_list WHERE account_id = $1 AND webhook_id > $2
			AND since < $3 AND until >= $3 AND strpos(' ' || events || ' ', ' ' || $4 || ' ') > 0 ORDER BY webhook_id LIMIT $5) AS former
		ORDER BY id LIMIT $5`

// DirectDeliveries is how many deliveries a transaction writes itself for all the events that it raises. An event
// with more of them is fanned out later (webhook/fanout), so that the size of a transaction does not depend on the
// number of endpoints.
const DirectDeliveries = 16

// FanOut is an event whose deliveries are not all written yet.
type FanOut struct {
	N       int64 // position of the event
	EventID string
	Account string
	Type    string
	After   string // the endpoint up to which deliveries are written; "" for none
}
