package sqlite

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/stored"
	"github.com/keygate/keygate/internal/webhook"
)

const eventColumns = `SELECT id, account_id, type, created_at, payload FROM events `

func scanEvent(r *sql.Rows) (event.Event, error) {
	var (
		e       event.Event
		created int64
	)
	err := r.Scan(&e.ID, &e.AccountID, &e.Type, &created, &e.Payload)
	e.CreatedAt = instant(created)
	return e, err
}

// Event implements control.EventReader.
func (t *readTx) Event(ctx context.Context, accountID, eventID string) (*event.Event, error) {
	var e event.Event
	err := t.row(ctx, "event", eventColumns+`WHERE id = ? AND account_id = ? AND listed = 1`, []any{eventID, accountID}, func(r *sql.Rows) (err error) {
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
	text, args := eventQuery(accountID, f, p)
	var list []event.Event
	err := t.rows(ctx, "read events", text, args, func(r *sql.Rows) error {
		e, err := scanEvent(r)
		list = append(list, e)
		return err
	})
	return list, err
}

func eventQuery(accountID string, f control.EventFilter, p control.Page) (text string, args []any) {
	s := stored.SpanOf(id.Event, f.Since, f.Until, below(p.After))
	const rest = ` AND id >= ? AND id < ? ORDER BY id DESC LIMIT ?+0`
	if f.Type == "" {
		return eventColumns + `INDEXED BY events_list WHERE listed = 1 AND account_id = ?` + rest,
			[]any{accountID, s.From, s.Below, rowLimit(p.Limit)}
	}
	return eventColumns + `INDEXED BY events_type WHERE listed = 1 AND account_id = ? AND type = ?` + rest,
		[]any{accountID, string(f.Type), s.From, s.Below, rowLimit(p.Limit)}
}

// AppendEvent implements control.EventStore.
func (t *tx) AppendEvent(ctx context.Context, e *event.Event) error {
	listed := e.Type != webhook.Test
	_, err := t.exec(ctx, "append event", `INSERT INTO events (id, account_id, type, created_at, payload, listed) VALUES (?, ?, ?, ?, ?, ?)`,
		e.ID, e.AccountID, string(e.Type), micros(e.CreatedAt), e.Payload, listed)
	if err != nil || !listed {
		return err
	}
	endpoints, err := t.listeners(ctx, e.AccountID, e.Type)
	if err != nil {
		return err
	}
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
	gone, err := t.exec(ctx, "trim events", `DELETE FROM events`+old+` AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)`, before, limit)
	if err != nil {
		return 0, err
	}
	hidden, err := t.exec(ctx, "hide events", `UPDATE events SET listed = 0`+old+` AND EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)`, before, limit)
	return gone + hidden, err
}
