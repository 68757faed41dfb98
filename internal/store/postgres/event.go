package postgres

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
	n, known := int64(math.MaxInt64), true
	if p.After != "" && !f.HasTime() {
		known = false
		err := t.Query(ctx, "read the number of an event", `SELECT n FROM events WHERE id = $1 AND account_id = $2`, []any{p.After, accountID}, func(r *rows.Row) error {
			known = true
			return r.Scan(&n)
		})
		if err != nil {
			return nil, err
		}
	}
	text, args := eventQuery(accountID, f, p, n, known)
	return t.SelectEvents(ctx, text, args...)
}

// eventQuery returns the query for a page of events. It begins below the number n, which is known if the
// event after which the page begins still exists. If retention has removed that event, only events of
// its age can follow: they, and all lists with a bound of time, are read in the order of the
// identifiers.
func eventQuery(accountID string, f control.EventFilter, p control.Page, n int64, known bool) (text string, args []any) {
	text, order := rows.EventColumns+`WHERE listed AND account_id = $1 AND (n, id) < ($2, $3)`, ` ORDER BY n DESC, id DESC LIMIT $4`
	args = []any{accountID, n, rows.Below(p.After), rows.Limit(p.Limit)}
	if f.HasTime() || !known {
		s := rows.SpanOf(id.Event, f.Since, f.Until, rows.Below(p.After))
		text, order = rows.EventColumns+`WHERE listed AND account_id = $1 AND id >= $2 AND id < $3`, ` ORDER BY id DESC LIMIT $4`
		args[1], args[2] = s.From, s.Below
	}
	if f.Type != "" {
		text, args = text+` AND type = $5`, append(args, string(f.Type))
	}
	return text + order, args
}

// InsertEvent implements rows.Tx. next_event gives numbers in the order of the commits: the transaction holds the row that
// has the last one.
func (t *tx) InsertEvent(ctx context.Context, e *event.Event, listed bool) error {
	return t.Queue(ctx, "append event", `INSERT INTO events (id, account_id, type, created_at, payload, listed, n)
		VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $6 THEN next_event() ELSE 0 END)`,
		e.ID, e.AccountID, string(e.Type), rows.Micros(e.CreatedAt), e.Payload, listed)
}

// AppendEvents implements detect.Store: it appends events of the data plane in one transaction. They
// change no configuration, so they do not wait for mutations. It reads all endpoints before it takes numbers, and
// sends everything else with COMMIT, so that a slow node does not hold the row of the numbers.
func (db *DB) AppendEvents(ctx context.Context, events []event.Event) error {
	return db.write(ctx, func(t *tx) error {
		endpoints := make([][]string, len(events))
		for i := range events {
			var err error
			if endpoints[i], err = t.EventListeners(ctx, &events[i]); err != nil {
				return err
			}
		}
		for i := range events {
			if err := t.AppendEventFor(ctx, &events[i], endpoints[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// TrimEvents implements rows.Tx.
func (t *tx) TrimEvents(ctx context.Context, before int64, limit int) (int64, error) {
	found, err := t.MayDelete(ctx, "trim events", `SELECT FROM events WHERE listed AND created_at < $1`, before)
	if err != nil || !found {
		return 0, err
	}
	var n int64
	err = t.Query(ctx, "trim events", `WITH old AS (
			SELECT id, EXISTS (SELECT 1 FROM deliveries WHERE event_id = events.id) AS needed FROM events
			WHERE listed AND created_at < $1 ORDER BY created_at LIMIT $2
		), gone AS (DELETE FROM events USING old WHERE events.id = old.id AND NOT old.needed RETURNING 1),
		hidden AS (UPDATE events SET listed = false FROM old WHERE events.id = old.id AND old.needed RETURNING 1)
		SELECT (SELECT count(*) FROM gone) + (SELECT count(*) FROM hidden)`, []any{before, limit}, func(r *rows.Row) error { return r.Scan(&n) })
	return n, err
}
