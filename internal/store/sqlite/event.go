package sqlite

import (
	"context"
	"math"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/rows"
)

// Events implements control.EventReader.
func (t *readTx) Events(ctx context.Context, accountID string, f control.EventFilter, p control.Page) ([]event.Event, error) {
	number, known := int64(math.MaxInt64), true
	if p.After != "" && !f.HasTime() {
		known = false
		err := t.Query(ctx, "read the number of an event", `SELECT rowid FROM events WHERE id = ? AND account_id = ?`, []any{p.After, accountID}, func(r *rows.Row) error {
			known = true
			return r.Scan(&number)
		})
		if err != nil {
			return nil, err
		}
	}
	text, args := eventQuery(accountID, f, p, number, known)
	return t.SelectEvents(ctx, text, args...)
}

// eventQuery returns the query for a page of events. It begins below a number, which is known if the
// event after which the page begins still exists. If retention has removed that event, only events of
// its age can follow: they, and all lists with a bound of time, are read in the order of the
// identifiers.
func eventQuery(accountID string, f control.EventFilter, p control.Page, number int64, known bool) (text string, args []any) {
	index, where, args := `events`, `WHERE listed = 1 AND account_id = ?`, []any{accountID}
	if f.Type != "" {
		index, where, args = index+`_type`, where+` AND type = ?`, append(args, string(f.Type))
	}
	if known && !f.HasTime() { // an index ends with the rowid
		return rows.EventColumns + `INDEXED BY ` + index + `_order ` + where + ` AND rowid < ? ORDER BY rowid DESC LIMIT ?+0`,
			append(args, number, rows.Limit(p.Limit))
	}
	if f.Type == "" {
		index += `_list`
	}
	s := rows.SpanOf(id.Event, f.Since, f.Until, rows.Below(p.After))
	return rows.EventColumns + `INDEXED BY ` + index + ` ` + where + ` AND id >= ? AND id < ? ORDER BY id DESC LIMIT ?+0`,
		append(args, s.From, s.Below, rows.Limit(p.Limit))
}

// InsertEvent implements rows.Tx.
func (t *tx) InsertEvent(ctx context.Context, e *event.Event, listed bool) error {
	return t.Queue(ctx, "append event", `INSERT INTO events (id, account_id, type, created_at, payload, listed) VALUES (?, ?, ?, ?, ?, ?)`,
		e.ID, e.AccountID, string(e.Type), rows.Micros(e.CreatedAt), e.Payload, listed)
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

// TrimEvents implements rows.Tx.
func (t *tx) TrimEvents(ctx context.Context, before int64, limit int) (int64, error) {
	const old = ` WHERE rowid IN (SELECT rowid FROM events INDEXED BY events_age WHERE listed = 1 AND created_at < ? ORDER BY created_at LIMIT ?+0)`
	gone, err := t.Exec(ctx, "trim events", `DELETE FROM events`+old+` AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)`, before, limit)
	if err != nil {
		return 0, err
	}
	hidden, err := t.Exec(ctx, "hide events", `UPDATE events SET listed = 0`+old+` AND EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id)`, before, limit)
	return gone + hidden, err
}
