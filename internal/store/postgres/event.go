package postgres

import (
	"context"
	"math"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
	"github.com/keygate/keygate/internal/webhook"
)

const eventColumns = `SELECT id, account_id, type, created_at, payload FROM events `

func scanEvent(r rows.Row) (event.Event, error) {
	var (
		e       event.Event
		created int64
		payload []byte
	)
	err := r.Scan(&e.ID, &e.AccountID, &e.Type, &created, &payload)
	e.CreatedAt, e.Payload = rows.Instant(created), payload
	return e, err
}

// Event implements control.EventReader.
func (t *readTx) Event(ctx context.Context, accountID, eventID string) (*event.Event, error) {
	var e event.Event
	err := t.QueryRow(ctx, "event", eventColumns+`WHERE id = $1 AND account_id = $2 AND listed`, []any{eventID, accountID}, func(r rows.Row) (err error) {
		e, err = scanEvent(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// Events implements control.EventReader.
func (t *readTx) Events(ctx context.Context, accountID string, f control.EventFilter, p control.Page) ([]event.Event, error) {
	n, known := int64(math.MaxInt64), true
	if p.After != "" && !f.HasTime() {
		known = false
		err := t.Query(ctx, "read the number of an event", `SELECT n FROM events WHERE id = $1 AND account_id = $2`, []any{p.After, accountID}, func(r rows.Row) error {
			known = true
			return r.Scan(&n)
		})
		if err != nil {
			return nil, err
		}
	}
	text, args := eventQuery(accountID, f, p, n, known)
	var list []event.Event
	err := t.Query(ctx, "read events", text, args, func(r rows.Row) error {
		e, err := scanEvent(r)
		list = append(list, e)
		return err
	})
	return list, err
}

// eventQuery returns the query for a page of events. It begins below the number n, which is known if the
// event after which it begins is still there. An event that retention has removed leaves only others of
// its age behind it: they, and all lists of a time, are read in the order of the identifiers.
func eventQuery(accountID string, f control.EventFilter, p control.Page, n int64, known bool) (text string, args []any) {
	text, order := eventColumns+`WHERE listed AND account_id = $1 AND (n, id) < ($2, $3)`, ` ORDER BY n DESC, id DESC LIMIT $4`
	args = []any{accountID, n, rows.Below(p.After), rows.Limit(p.Limit)}
	if f.HasTime() || !known {
		s := stored.SpanOf(id.Event, f.Since, f.Until, rows.Below(p.After))
		text, order = eventColumns+`WHERE listed AND account_id = $1 AND id >= $2 AND id < $3`, ` ORDER BY id DESC LIMIT $4`
		args[1], args[2] = s.From, s.Below
	}
	if f.Type != "" {
		text, args = text+` AND type = $5`, append(args, string(f.Type))
	}
	return text + order, args
}

// AppendEvent implements control.EventStore. next_event gives numbers in the order of the commits: the
// transaction holds the row that has the last one.
func (t *tx) AppendEvent(ctx context.Context, e *event.Event) error {
	endpoints, err := t.eventListeners(ctx, e)
	if err != nil {
		return err
	}
	return t.appendEvent(ctx, e, endpoints)
}

// eventListeners returns the endpoints that get an event.
func (t *tx) eventListeners(ctx context.Context, e *event.Event) ([]string, error) {
	if e.Type == webhook.Test {
		return nil, t.Ready(ctx)
	}
	limit := stored.DirectDeliveries - t.direct + 1
	if h := &t.heard; h.accountID == e.AccountID && h.of == e.Type {
		return h.endpoints[:min(len(h.endpoints), limit)], t.Ready(ctx)
	}
	list, err := t.listeners(ctx, e.AccountID, e.Type, limit)
	if err == nil {
		t.heard = listening{e.AccountID, e.Type, list}
	}
	return list, err
}

// listening is the result of a call of listeners. A later one of the transaction has no larger limit. What changes
// endpoints forgets it.
type listening struct {
	accountID string
	of        event.Type
	endpoints []string
}

// appendEvent stores an event with deliveries to the endpoints.
func (t *tx) appendEvent(ctx context.Context, e *event.Event, endpoints []string) error {
	err := t.Queue(ctx, "append event", `INSERT INTO events (id, account_id, type, created_at, payload, listed, n)
		VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $6 THEN next_event() ELSE 0 END)`,
		e.ID, e.AccountID, string(e.Type), rows.Micros(e.CreatedAt), e.Payload, e.Type != webhook.Test)
	if err != nil {
		return err
	}
	if len(endpoints) > stored.DirectDeliveries-t.direct {
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
	return t.insertDeliveries(ctx, deliveries)
}

// AppendEvents implements detect.Store: it appends events of the data plane in one transaction. They
// change no configuration, so they do not wait for mutations. It reads all endpoints before it takes numbers, so that
// a node that is slow does not hold them: all else is sent with COMMIT.
func (db *DB) AppendEvents(ctx context.Context, events []event.Event) error {
	return db.write(ctx, func(t *tx) error {
		endpoints := make([][]string, len(events))
		for i := range events {
			var err error
			if endpoints[i], err = t.eventListeners(ctx, &events[i]); err != nil {
				return err
			}
		}
		for i := range events {
			if err := t.appendEvent(ctx, &events[i], endpoints[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// trimEvents removes up to limit events that were created before the given time. Events that
// a delivery needs are only removed from the list. It returns the number of events.
func (t *tx) trimEvents(ctx context.Context, before int64, limit int) (int64, error) {
	found, err := t.finds(ctx, "trim events", `SELECT FROM events WHERE listed AND created_at < $1`, before)
	if err != nil || !found {
		return 0, err
	}
	var n int64
	err = t.Query(ctx, "trim events", `WITH old AS (
			SELECT id, EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id) AS needed FROM events
			WHERE listed AND created_at < $1 ORDER BY created_at LIMIT $2
		), gone AS (DELETE FROM events USING old WHERE events.id = old.id AND NOT old.needed RETURNING 1),
		hidden AS (UPDATE events SET listed = false FROM old WHERE events.id = old.id AND old.needed RETURNING 1)
		SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM hidden)`, []any{before, limit}, func(r rows.Row) error { return r.Scan(&n) })
	return n, err
}
