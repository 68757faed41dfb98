package sqlite

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
)

// Events implements control.LedgerReader.
func (t *readTx) Events(ctx context.Context, accountID string, p control.Page) ([]event.Event, error) {
	var list []event.Event
	err := t.rows(ctx, "read events", `SELECT id, account_id, type, created_at, payload FROM events INDEXED BY events_list
		WHERE account_id = ? AND id < ? ORDER BY id DESC LIMIT ?`,
		[]any{accountID, below(p.After), rowLimit(p.Limit)}, func(r *sql.Rows) error {
			var (
				e       event.Event
				created int64
			)
			err := r.Scan(&e.ID, &e.AccountID, &e.Type, &created, &e.Payload)
			e.CreatedAt = instant(created)
			list = append(list, e)
			return err
		})
	return list, err
}

// AppendEvent implements control.LedgerWriter.
func (t *tx) AppendEvent(ctx context.Context, e *event.Event) error {
	_, err := t.exec(ctx, "append event", `INSERT INTO events (id, account_id, type, created_at, payload) VALUES (?, ?, ?, ?, ?)`,
		e.ID, e.AccountID, string(e.Type), micros(e.CreatedAt), e.Payload)
	return err
}
