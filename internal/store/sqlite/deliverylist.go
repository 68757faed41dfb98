package sqlite

import (
	"context"
	"strings"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook"
)

// Deliveries implements control.DeliveryReader. An index on (…, state, event_type, id) has
// the order of the list within one state and type. The query merges a page of each state and
// type that the filter allows, at most 32. For one event it reads the event's deliveries instead,
// in their order, until it has a page.
func (t *readTx) Deliveries(ctx context.Context, accountID string, f control.DeliveryFilter, p control.Page) ([]webhook.Delivery, error) {
	if p.Limit <= 0 || f.State != "" && rows.DeliveryState(f.State) < 0 {
		return nil, t.Ready(ctx)
	}
	if f.EventID != "" { // all deliveries of an event have its account and type
		owner, of := "", ""
		err := t.Query(ctx, "read the event of deliveries", `SELECT account_id, event_type FROM deliveries INDEXED BY deliveries_of_event WHERE event_id = ? LIMIT 1`,
			[]any{f.EventID}, func(r *rows.Row) error { return r.Scan(&owner, &of) })
		if err != nil || owner != accountID || f.EventType != "" && of != string(f.EventType) {
			return nil, err
		}
	}
	if f.WebhookID != "" { // all deliveries of an endpoint belong to its account
		owner := ""
		err := t.Query(ctx, "read the owner of deliveries", `SELECT account_id FROM deliveries INDEXED BY deliveries_webhook WHERE webhook_id = ? LIMIT 1`,
			[]any{f.WebhookID}, func(r *rows.Row) error { return r.Scan(&owner) })
		if err != nil || owner != accountID {
			return nil, err
		}
	}
	text, args := deliveryQuery(accountID, f, p)
	return t.SelectDeliveries(ctx, text, args...)
}

func deliveryQuery(accountID string, f control.DeliveryFilter, p control.Page) (text string, args []any) {
	s := rows.SpanOf(id.Delivery, f.Since, f.Until, rows.Below(p.After))
	if f.EventID != "" {
		where, args := ` WHERE event_id = ? AND id >= ? AND id < ?`, []any{f.EventID, s.From, s.Below}
		if f.WebhookID != "" {
			where, args = where+` AND webhook_id = ?`, append(args, f.WebhookID)
		}
		if f.State != "" {
			where, args = where+` AND state = ?`, append(args, rows.DeliveryState(f.State))
		}
		return `INDEXED BY deliveries_of_event` + where + ` ORDER BY id DESC LIMIT ?+0`, append(args, p.Limit)
	}
	states := []int{rows.DeliveryPending, rows.DeliveryRetry, rows.DeliveryDelivered, rows.DeliveryFailed}
	if f.State != "" {
		states = []int{rows.DeliveryState(f.State)}
	}
	types := rows.DeliveryTypes()
	if f.EventType != "" {
		types = []event.Type{f.EventType}
	}
	from, owner := `FROM deliveries INDEXED BY deliveries_account WHERE account_id = ?`, accountID
	if f.WebhookID != "" {
		from, owner = `FROM deliveries INDEXED BY deliveries_webhook WHERE webhook_id = ?`, f.WebhookID
	}
	var branches []string
	for _, state := range states {
		for _, of := range types {
			branches = append(branches, `SELECT n, id FROM (SELECT n, id `+from+
				` AND state = ? AND event_type = ? AND id >= ? AND id < ? ORDER BY id DESC LIMIT ?+0)`)
			args = append(args, owner, state, string(of), s.From, s.Below, p.Limit)
		}
	}
	merged := `SELECT n FROM (` + strings.Join(branches, " UNION ALL ") + `) ORDER BY id DESC LIMIT ?+0`
	// The plus prevents SQLite from scanning all deliveries by id to avoid sorting one page.
	return `WHERE n IN (` + merged + `) ORDER BY +id DESC`, append(args, p.Limit)
}
