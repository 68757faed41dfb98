package rows

import (
	"context"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
)

// EventColumns selects events.
const EventColumns = `SELECT id, account_id, type, created_at, payload FROM events `

func scanEvent(r *Row) (event.Event, error) {
	var (
		e       event.Event
		created int64
		payload []byte
	)
	err := r.Scan(&e.ID, &e.AccountID, &e.Type, &created, &payload)
	e.CreatedAt, e.Payload = Instant(created), payload
	return e, err
}

// Event implements control.EventReader.
func (t *Reader) Event(ctx context.Context, accountID, eventID string) (*event.Event, error) {
	return readOne(ctx, t, "event", EventColumns+`WHERE id = $1 AND account_id = $2 AND listed = true`, []any{eventID, accountID}, scanEvent)
}

// SelectEvents reads the events that a query finds, which begins with EventColumns.
func (t *Reader) SelectEvents(ctx context.Context, query string, args ...any) ([]event.Event, error) {
	return readAll(ctx, t, "read events", query, args, scanEvent)
}

// AppendEvent implements control.EventStore.
func (t *Writer) AppendEvent(ctx context.Context, e *event.Event) error {
	endpoints, err := t.EventListeners(ctx, e)
	if err != nil {
		return err
	}
	return t.AppendEventFor(ctx, e, endpoints)
}

// EventListeners returns the endpoints that get an event.
func (t *Writer) EventListeners(ctx context.Context, e *event.Event) ([]string, error) {
	if e.Type == webhook.Test {
		return nil, t.Ready(ctx)
	}
	limit := DirectDeliveries - t.direct + 1
	if h := &t.heard; h.accountID == e.AccountID && h.of == e.Type {
		return h.endpoints[:min(len(h.endpoints), limit)], t.Ready(ctx)
	}
	list, err := t.read.Listeners(ctx, e.AccountID, e.Type, limit)
	if err == nil {
		t.heard = listening{e.AccountID, e.Type, list}
	}
	return list, err
}

// listening is the result of a call of listeners. A later call in the transaction has no larger limit. A change of
// endpoints drops it.
type listening struct {
	accountID string
	of        event.Type
	endpoints []string
}

// AppendEventFor stores an event with deliveries to the endpoints.
func (t *Writer) AppendEventFor(ctx context.Context, e *event.Event, endpoints []string) error {
	if err := t.InsertEvent(ctx, e, e.Type != webhook.Test); err != nil {
		return err
	}
	if len(endpoints) > DirectDeliveries-t.direct {
		return t.Queue(ctx, "note an event to fan out", `INSERT INTO fan_outs (event_id, account_id, type, after) VALUES ($1, $2, $3, '')`,
			e.ID, e.AccountID, string(e.Type))
	}
	t.direct += len(endpoints)
	deliveries := make([]webhook.Delivery, len(endpoints))
	for i, endpoint := range endpoints {
		deliveries[i] = webhook.Delivery{
			ID: id.NewAt(id.Delivery, e.CreatedAt), AccountID: e.AccountID, WebhookID: endpoint, EventID: e.ID, EventType: e.Type,
			State: webhook.Pending, Trigger: webhook.ByEvent, NextAttemptAt: e.CreatedAt, CreatedAt: e.CreatedAt,
		}
	}
	return t.InsertDeliveries(ctx, deliveries)
}
