package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
	"github.com/keygate/keygate/internal/webhook"
)

// attemptSlots is the number of attempt rows reserved for each delivery: attempt k of
// delivery n has the row n*attemptSlots + k.
const attemptSlots = 8

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
	var found []delivery
	err := t.Query(ctx, "read deliveries", deliveryColumns+rest, args, func(r rows.Row) error {
		d, err := scanDelivery(r)
		found = append(found, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	var list []webhook.Delivery
	for i := range found {
		if err := t.readAttempts(ctx, &found[i]); err != nil {
			return nil, err
		}
		list = append(list, found[i].Delivery)
	}
	return list, nil
}

func (t *readTx) readAttempts(ctx context.Context, d *delivery) error {
	first := d.n * attemptSlots
	return t.Query(ctx, "read attempts", `SELECT n, started_at, duration, status, error, response FROM attempts WHERE n > ? AND n < ? ORDER BY n`,
		[]any{first, first + attemptSlots}, func(r rows.Row) error {
			var (
				a                    webhook.Attempt
				n, started, duration int64
			)
			err := r.Scan(&n, &started, &duration, &a.Status, &a.Error, &a.Response)
			a.Number, a.StartedAt, a.Duration = int(n-first), rows.Instant(started), time.Duration(duration)
			d.Attempts = append(d.Attempts, a)
			return err
		})
}

// Delivery implements control.DeliveryReader.
func (t *readTx) Delivery(ctx context.Context, accountID, deliveryID string) (*webhook.Delivery, error) {
	var d delivery
	err := t.QueryRow(ctx, "delivery", deliveryColumns+`WHERE id = ? AND account_id = ?`, []any{deliveryID, accountID}, func(r rows.Row) (err error) {
		d, err = scanDelivery(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := t.readAttempts(ctx, &d); err != nil {
		return nil, err
	}
	err = t.QueryRow(ctx, "event", `SELECT payload FROM events WHERE id = ?`, []any{d.EventID}, func(r rows.Row) error { return r.Scan(&d.Payload) })
	if err != nil {
		return nil, err
	}
	return &d.Delivery, nil
}

// DeliveriesToRecover implements control.DeliveryReader.
func (t *readTx) DeliveriesToRecover(ctx context.Context, webhookID string, since time.Time, limit int) ([]webhook.Delivery, error) {
	return t.deliveries(ctx, `INDEXED BY deliveries_failed WHERE webhook_id = ? AND state = 3 AND again = 0 AND finished_at >= ?
		ORDER BY finished_at LIMIT ?+0`, webhookID, rows.Micros(since), rows.Limit(limit))
}

// InsertDelivery implements control.DeliveryStore.
func (t *tx) InsertDelivery(ctx context.Context, d *webhook.Delivery) error {
	_, err := t.Exec(ctx, "mark delivery as redelivered", `UPDATE deliveries SET again = 1 WHERE event_id = ? AND webhook_id = ? AND state = 3 AND again = 0`,
		d.EventID, d.WebhookID)
	if err != nil {
		return err
	}
	return t.insertDelivery(ctx, d)
}

func (t *tx) insertDelivery(ctx context.Context, d *webhook.Delivery) error {
	_, err := t.Exec(ctx, "insert delivery", `INSERT INTO deliveries (id, account_id, webhook_id, event_id, event_type, state, cause,
		attempts, again, next_at, due_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?)`,
		d.ID, d.AccountID, d.WebhookID, d.EventID, string(d.EventType), stored.DeliveryState(d.State), string(d.Trigger),
		rows.Micros(d.NextAttemptAt), rows.Micros(d.NextAttemptAt), rows.Micros(d.CreatedAt))
	return err
}

// insertAttempt adds an attempt to the delivery in row n.
func (t *tx) insertAttempt(ctx context.Context, n int64, a *webhook.Attempt) error {
	var response any
	if kept := stored.Response(a); kept != nil {
		response = kept
	}
	_, err := t.Exec(ctx, "insert attempt", `INSERT INTO attempts (n, started_at, duration, status, error, response) VALUES (?, ?, ?, ?, ?, ?)`,
		n*attemptSlots+int64(a.Number), rows.Micros(a.StartedAt), int64(a.Duration), a.Status, a.Error, response)
	return err
}

// TrimDeliveries implements control.Trimmer.
func (t *tx) TrimDeliveries(ctx context.Context, delivered, failed time.Time, limit int) (more bool, err error) {
	for _, old := range []struct {
		state  int
		before time.Time
	}{{stored.DeliveryDelivered, delivered}, {stored.DeliveryFailed, failed}} {
		n, err := t.trimDeliveries(ctx, old.state, rows.Micros(old.before), rows.Limit(limit))
		if err != nil {
			return false, err
		}
		more = more || limit > 0 && n == limit
	}
	return more, nil
}

// trimDeliveries removes up to limit deliveries that ended before the given time.
func (t *tx) trimDeliveries(ctx context.Context, state int, before int64, limit int) (int, error) {
	return t.removeDeliveries(ctx, `SELECT n FROM deliveries INDEXED BY deliveries_age
		WHERE state = ? AND finished_at < ? ORDER BY finished_at LIMIT ?+0`, state, before, limit)
}

// removeDeliveries removes the deliveries whose rows the query selects, with their attempts,
// and events that are no longer listed and have no other delivery. It returns the number of
// deliveries.
func (t *tx) removeDeliveries(ctx context.Context, query string, args ...any) (int, error) {
	var (
		numbers []int64
		events  []string
	)
	err := t.Query(ctx, "remove deliveries", `DELETE FROM deliveries WHERE n IN (`+query+`) RETURNING n, event_id`, args, func(r rows.Row) error {
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
	for _, rest := range []struct {
		what, query string
		of          any
	}{
		{"remove attempts", `DELETE FROM attempts WHERE n IN (SELECT 8 * d.value + slot.value FROM json_each(?) d, json_each('[1, 2, 3, 4, 5, 6, 7]') slot)`, numbers},
		{"remove hidden events", `DELETE FROM events WHERE id IN (SELECT value FROM json_each(?)) AND listed = 0
			AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)`, events},
	} {
		of, err := maybeJSON(rest.of, false)
		if err != nil {
			return 0, err
		}
		if _, err := t.Exec(ctx, rest.what, rest.query, of); err != nil {
			return 0, err
		}
	}
	return len(numbers), nil
}
