package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
	"github.com/keygate/keygate/internal/webhook"
)

const deliveryColumns = `SELECT n, id, account_id, webhook_id, event_id, event_type, state, cause, next_at, created_at FROM deliveries `

// delivery is a stored delivery with the number of its row.
type delivery struct {
	n int64
	webhook.Delivery
}

func scanDelivery(r rows.Row) (delivery, error) {
	var (
		d              delivery
		state, created int64
		next           sql.NullInt64
	)
	err := r.Scan(&d.n, &d.ID, &d.AccountID, &d.WebhookID, &d.EventID, &d.EventType, &state, &d.Trigger, &next, &created)
	if err == nil {
		d.State = stored.DeliveryStates()[state]
	}
	d.NextAttemptAt, d.CreatedAt = rows.MaybeInstant(next), rows.Instant(created)
	return d, err
}

// deliveries reads the deliveries that the rest of the query selects, with their attempts.
func (t *readTx) deliveries(ctx context.Context, rest string, args ...any) ([]webhook.Delivery, error) {
	var list []webhook.Delivery
	var numbers []int64
	err := t.Query(ctx, "read deliveries", deliveryColumns+rest, args, func(r rows.Row) error {
		d, err := scanDelivery(r)
		list, numbers = append(list, d.Delivery), append(numbers, d.n)
		return err
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	at := make(map[int64]*webhook.Delivery, len(list))
	for i, n := range numbers {
		at[n] = &list[i]
	}
	err = t.Query(ctx, "read attempts", `SELECT n, number, started_at, duration, status, error, response FROM attempts
		WHERE n = ANY($1::bigint[]) ORDER BY n, number`, []any{numbers}, func(r rows.Row) error {
		var (
			a                    webhook.Attempt
			n, started, duration int64
			text                 []byte
		)
		err := r.Scan(&n, &a.Number, &started, &duration, &a.Status, &text, &a.Response)
		a.StartedAt, a.Duration, a.Error = rows.Instant(started), time.Duration(duration), string(text)
		at[n].Attempts = append(at[n].Attempts, a)
		return err
	})
	return list, err
}

// Delivery implements control.DeliveryReader.
func (t *readTx) Delivery(ctx context.Context, accountID, deliveryID string) (*webhook.Delivery, error) {
	var d webhook.Delivery
	err := t.QueryRow(ctx, "delivery", `SELECT 1 FROM deliveries WHERE id = $1 AND account_id = $2`, []any{deliveryID, accountID}, func(rows.Row) error { return nil })
	if err != nil {
		return nil, err
	}
	list, err := t.deliveries(ctx, `WHERE id = $1 AND account_id = $2`, deliveryID, accountID)
	if err != nil {
		return nil, err
	}
	d = list[0]
	err = t.QueryRow(ctx, "event", `SELECT payload FROM events WHERE id = $1`, []any{d.EventID}, func(r rows.Row) error { return r.Scan(&d.Payload) })
	if err != nil {
		return nil, err
	}
	return &d, nil
}

// DeliveriesToRecover implements control.DeliveryReader.
func (t *readTx) DeliveriesToRecover(ctx context.Context, webhookID string, since time.Time, limit int) ([]webhook.Delivery, error) {
	return t.deliveries(ctx, `WHERE webhook_id = $1 AND state = 3 AND NOT again AND finished_at >= $2 ORDER BY finished_at LIMIT $3`,
		webhookID, rows.Micros(since), rows.Limit(limit))
}

// InsertDelivery implements control.DeliveryStore.
func (t *tx) InsertDelivery(ctx context.Context, d *webhook.Delivery) error {
	err := t.Queue(ctx, "mark delivery as redelivered", `UPDATE deliveries SET again = true WHERE event_id = $1 AND webhook_id = $2 AND state = 3 AND NOT again`,
		d.EventID, d.WebhookID)
	if err != nil {
		return err
	}
	return t.insertDeliveries(ctx, []webhook.Delivery{*d})
}

// insertDeliveries adds deliveries of one event, all of the same state, trigger and times. They are
// due at the queue's own time if that is earlier: the clock of this node may be ahead.
func (t *tx) insertDeliveries(ctx context.Context, list []webhook.Delivery) error {
	if len(list) == 0 {
		return nil
	}
	ids, endpoints := make([]string, len(list)), make([]string, len(list))
	for i := range list {
		ids[i], endpoints[i] = list[i].ID, list[i].WebhookID
	}
	d, next := &list[0], rows.Micros(list[0].NextAttemptAt)
	return t.Queue(ctx, "insert deliveries", `WITH head AS (UPDATE delivery_head SET n = n + $1::bigint RETURNING n - $1::bigint AS n)
		INSERT INTO deliveries (n, id, account_id, webhook_id, event_id, event_type, state, cause, attempts, again, next_at, due_at, created_at)
		SELECT head.n + d.place, d.id, $4, d.webhook_id, $5, $6, $7::integer, $8, 0, false, least($9::bigint, queue_now($9)), least($9::bigint, queue_now($9)), $10::bigint
		FROM head CROSS JOIN unnest($2::text[], $3::text[]) WITH ORDINALITY AS d (id, webhook_id, place)`,
		len(list), ids, endpoints, d.AccountID, d.EventID, string(d.EventType), stored.DeliveryState(d.State), string(d.Trigger), next, rows.Micros(d.CreatedAt))
}

// TrimDeliveries implements control.Trimmer.
func (t *tx) TrimDeliveries(ctx context.Context, delivered, failed time.Time, limit int) (more bool, err error) {
	for _, old := range []struct {
		state  int
		before time.Time
	}{{stored.DeliveryDelivered, delivered}, {stored.DeliveryFailed, failed}} {
		n, err := t.removeDeliveries(ctx, `SELECT n FROM deliveries WHERE state = $1 AND finished_at < $2 ORDER BY finished_at LIMIT $3`,
			old.state, rows.Micros(old.before), rows.Limit(limit))
		if err != nil {
			return false, err
		}
		more = more || limit > 0 && n == limit
	}
	return more, nil
}

// removeDeliveries removes the deliveries whose rows the query selects, with their attempts,
// and events that are no longer listed and have no other delivery. It returns the number of
// deliveries.
func (t *tx) removeDeliveries(ctx context.Context, query string, args ...any) (int, error) {
	var (
		numbers []int64
		events  []string
	)
	query = `DELETE FROM deliveries WHERE n IN (` + query + `) RETURNING n, event_id`
	if found, err := t.finds(ctx, "look for deliveries", query, args...); err != nil || !found {
		return 0, err
	}
	err := t.Query(ctx, "remove deliveries", query, args, func(r rows.Row) error {
		var (
			n     int64
			event string
		)
		err := r.Scan(&n, &event)
		numbers, events = append(numbers, n), append(events, event)
		return err
	})
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	if err := t.Queue(ctx, "remove attempts", `DELETE FROM attempts WHERE n = ANY($1::bigint[])`, numbers); err != nil {
		return 0, err
	}
	err = t.Queue(ctx, "remove hidden events", `DELETE FROM events WHERE id = ANY($1::text[]) AND NOT listed
		AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)`, events)
	return len(numbers), err
}
