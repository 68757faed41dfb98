package sqlite

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
	)
	err := r.Scan(&e.ID, &e.AccountID, &e.Type, &created, &e.Payload)
	e.CreatedAt = rows.Instant(created)
	return e, err
}

// Event implements control.EventReader.
func (t *readTx) Event(ctx context.Context, accountID, eventID string) (*event.Event, error) {
	var e event.Event
	err := t.QueryRow(ctx, "event", eventColumns+`WHERE id = ? AND account_id = ? AND listed = 1`, []any{eventID, accountID}, func(r rows.Row) (err error) {
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
	number, known := int64(math.MaxInt64), true
	if p.After != "" && !f.HasTime() {
		known = false
		err := t.Query(ctx, "read the number of an event", `SELECT rowid FROM events WHERE id = ? AND account_id = ?`, []any{p.After, accountID}, func(r rows.Row) error {
			known = true
			return r.Scan(&number)
		})
		if err != nil {
			return nil, err
		}
	}
	text, args := eventQuery(accountID, f, p, number, known)
	var list []event.Event
	err := t.Query(ctx, "read events", text, args, func(r rows.Row) error {
		e, err := scanEvent(r)
		list = append(list, e)
		return err
	})
	return list, err
}

// eventQuery returns the query for a page of events. It begins below a number, which is known if the
// event after which it begins is still there. An event that retention has removed leaves only others of
// its age behind it: they, and all lists of a time, are read in the order of the identifiers.
func eventQuery(accountID string, f control.EventFilter, p control.Page, number int64, known bool) (text string, args []any) {
	index, where, args := `events`, `WHERE listed = 1 AND account_id = ?`, []any{accountID}
	if f.Type != "" {
		index, where, args = index+`_type`, where+` AND type = ?`, append(args, string(f.Type))
	}
	if known && !f.HasTime() { // an index ends with the rowid
		return eventColumns + `INDEXED BY ` + index + `_order ` + where + ` AND rowid < ? ORDER BY rowid DESC LIMIT ?+0`,
			append(args, number, rows.Limit(p.Limit))
	}
	if f.Type == "" {
		index += `_list`
	}
	s := stored.SpanOf(id.Event, f.Since, f.Until, rows.Below(p.After))
	return eventColumns + `INDEXED BY ` + index + ` ` + where + ` AND id >= ? AND id < ? ORDER BY id DESC LIMIT ?+0`,
		append(args, s.From, s.Below, rows.Limit(p.Limit))
}

// AppendEvent implements control.EventStore.
func (t *tx) AppendEvent(ctx context.Context, e *event.Event) error {
	listed := e.Type != webhook.Test
	_, err := t.Exec(ctx, "append event", `INSERT INTO events (id, account_id, type, created_at, payload, listed) VALUES (?, ?, ?, ?, ?, ?)`,
		e.ID, e.AccountID, string(e.Type), rows.Micros(e.CreatedAt), e.Payload, listed)
	if err != nil || !listed {
		return err
	}
	endpoints, err := t.listeners(ctx, e.AccountID, e.Type, stored.DirectDeliveries-t.direct+1)
	if err != nil {
		return err
	}
	if len(endpoints) > stored.DirectDeliveries-t.direct {
		return t.insertFanOut(ctx, e)
	}
	t.direct += len(endpoints)
	for _, endpoint := range endpoints {
		d := webhook.Delivery{
			ID: id.NewAt(id.Delivery, e.CreatedAt), AccountID: e.AccountID, WebhookID: endpoint, EventID: e.ID, EventType: e.Type,
			State: webhook.Pending, Trigger: webhook.ByEvent, NextAttemptAt: e.CreatedAt, CreatedAt: e.CreatedAt,
		}
		if err := t.insertDelivery(ctx, &d); err != nil {
			return err
		}
	}
	return nil
}

// AppendEvents implements detect.Store: it appends events of the data plane in one
// transaction.
func (db *DB) AppendEvents(ctx context.Context, events []event.Event) error {
	return db.Update(ctx, func(t control.Tx) error {
		for i := range events {
			if err := t.AppendEvent(ctx, &events[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// trimEvents removes up to limit events that were created before the given time. Events that
// a delivery needs are only removed from the list. It returns the number of events.
func (t *tx) trimEvents(ctx context.Context, before int64, limit int) (int64, error) {
	const old = ` WHERE rowid IN (SELECT rowid FROM events INDEXED BY events_age WHERE listed = 1 AND created_at < ? ORDER BY created_at LIMIT ?+0)`
	gone, err := t.Exec(ctx, "trim events", `DELETE FROM events`+old+` AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)`, before, limit)
	if err != nil {
		return 0, err
	}
	hidden, err := t.Exec(ctx, "hide events", `UPDATE events SET listed = 0`+old+` AND EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)`, before, limit)
	return gone + hidden, err
}
