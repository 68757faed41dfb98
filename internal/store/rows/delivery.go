package rows

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/webhook"
)

// DeliveryColumns selects deliveries.
const DeliveryColumns = `SELECT n, id, account_id, webhook_id, event_id, event_type, state, cause, next_at, created_at FROM deliveries `

// delivery is a stored delivery with the number of its row.
type delivery struct {
	n int64
	webhook.Delivery
}

func scanDelivery(r *Row) (delivery, error) {
	var (
		d delivery
		c struct { // one allocation
			state, created int64
			next           sql.NullInt64
		}
	)
	err := r.Scan(&d.n, &d.ID, &d.AccountID, &d.WebhookID, &d.EventID, &d.EventType, &c.state, &d.Trigger, &c.next, &c.created)
	if err == nil {
		d.State = deliveryStates()[c.state]
	}
	d.NextAttemptAt, d.CreatedAt = MaybeInstant(c.next), Instant(c.created)
	return d, err
}

// SelectDeliveries reads the deliveries that the rest of the query selects, with their attempts.
func (t *Reader) SelectDeliveries(ctx context.Context, rest string, args ...any) ([]webhook.Delivery, error) {
	var list []webhook.Delivery
	var numbers []int64
	err := t.Query(ctx, "read deliveries", DeliveryColumns+rest, args, func(r *Row) error {
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
	err = t.Attempts(ctx, numbers, func(n int64, a *webhook.Attempt) { at[n].Attempts = append(at[n].Attempts, *a) })
	if err != nil {
		return nil, err
	}
	return list, t.postpone(ctx, list)
}

// postpone sets the NextAttemptAt of the deliveries that the pauses of their endpoints postpone.
func (t *Reader) postpone(ctx context.Context, list []webhook.Delivery) error {
	waiting := map[string][]*webhook.Delivery{}
	for i := range list {
		if d := &list[i]; d.State == webhook.Pending && !isBegun(DeliveryPending, d.Trigger) {
			waiting[d.WebhookID] = append(waiting[d.WebhookID], d)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return t.Query(ctx, "read pauses of webhooks", `SELECT id, paused_until FROM webhooks WHERE id = ANY ($1) AND paused_until IS NOT NULL`,
		[]any{slices.Collect(maps.Keys(waiting))}, func(r *Row) error {
			var (
				webhookID string
				until     int64
			)
			err := r.Scan(&webhookID, &until)
			for _, d := range waiting[webhookID] {
				if end := Instant(until); end.After(d.NextAttemptAt) {
					d.NextAttemptAt = end
				}
			}
			return err
		})
}

// Delivery implements control.DeliveryReader.
func (t *Reader) Delivery(ctx context.Context, accountID, deliveryID string) (*webhook.Delivery, error) {
	list, err := t.SelectDeliveries(ctx, `WHERE id = $1 AND account_id = $2`, deliveryID, accountID)
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, fault.Missing("delivery")
	}
	d := &list[0]
	err = t.QueryRow(ctx, "event", `SELECT payload FROM events WHERE id = $1`, []any{d.EventID}, func(r *Row) error { return r.Scan(&d.Payload) })
	if err != nil {
		return nil, err
	}
	return d, nil
}

// DeliveriesToRecover implements control.DeliveryReader.
func (t *Reader) DeliveriesToRecover(ctx context.Context, webhookID string, since time.Time, limit int) ([]webhook.Delivery, error) {
	return t.SelectDeliveries(ctx, `INDEXED BY deliveries_failed WHERE webhook_id = $1 AND state = 3 AND again = false AND finished_at >= $2 ORDER BY finished_at LIMIT $3`,
		webhookID, Micros(since), Limit(limit))
}

// mostRedelivered is how many failed deliveries InsertDelivery marks.
const mostRedelivered = 5

// InsertDelivery implements control.DeliveryStore.
func (t *Writer) InsertDelivery(ctx context.Context, d *webhook.Delivery) error {
	err := t.Queue(ctx, "mark deliveries of an event as redelivered", `UPDATE deliveries SET again = true WHERE n IN
		(SELECT n FROM deliveries WHERE event_id = $1 AND webhook_id = $2 AND state = 3 AND again = false LIMIT $3)`,
		d.EventID, d.WebhookID, mostRedelivered)
	if err != nil {
		return err
	}
	return t.InsertDeliveries(ctx, []webhook.Delivery{*d})
}

// MarkRedelivered implements control.DeliveryStore.
func (t *Writer) MarkRedelivered(ctx context.Context, deliveryIDs []string) error {
	return t.Queue(ctx, "mark deliveries as redelivered", `UPDATE deliveries SET again = true WHERE id = ANY ($1) AND state = 3 AND again = false`, deliveryIDs)
}

// BringForward implements control.DeliveryStore. The retry is due at the queue's own time.
func (t *Writer) BringForward(ctx context.Context, deliveryID string, now time.Time) error {
	return t.Queue(ctx, "bring a retry forward", `UPDATE deliveries SET next_at = queue_now($2), due_at = queue_now($2)
		WHERE id = $1 AND state = 1 AND token IS NULL AND due_at > queue_now($2)`, deliveryID, Micros(now))
}

// TrimDeliveries implements control.Trimmer.
func (t *Writer) TrimDeliveries(ctx context.Context, delivered, failed time.Time, limit int) (more bool, err error) {
	for _, old := range []struct {
		state  int
		before time.Time
	}{{DeliveryDelivered, delivered}, {DeliveryFailed, failed}} {
		n, err := t.removeDeliveries(ctx, `SELECT n FROM deliveries INDEXED BY deliveries_age WHERE state = $1 AND finished_at < $2 ORDER BY finished_at LIMIT $3`,
			old.state, Micros(old.before), Limit(limit))
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
func (t *Writer) removeDeliveries(ctx context.Context, query string, args ...any) (int, error) {
	var (
		numbers []int64
		events  []string
	)
	query = `DELETE FROM deliveries WHERE n IN (` + query + `) RETURNING n, event_id`
	if found, err := t.MayDelete(ctx, "look for deliveries", query, args...); err != nil || !found {
		return 0, err
	}
	err := t.Query(ctx, "remove deliveries", query, args, func(r *Row) error {
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
	if err := t.RemoveAttempts(ctx, numbers); err != nil {
		return 0, err
	}
	err = t.Queue(ctx, "remove hidden events", `DELETE FROM events WHERE id = ANY ($1) AND listed = false
		AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)`, events)
	return len(numbers), err
}
