package postgres

import (
	"context"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/webhook"
)

// Deliveries implements control.DeliveryReader. An index on (…, state, event_type, id) has
// the order of the list within one state and type. The query merges a page of each state and
// type that the filter allows, at most 36. For one event it reads the event's deliveries instead,
// in their order, until it has a page.
func (t *readTx) Deliveries(ctx context.Context, accountID string, f control.DeliveryFilter, p control.Page) ([]webhook.Delivery, error) {
	if p.Limit <= 0 || f.State != "" && rows.DeliveryState(f.State) < 0 {
		return nil, t.Ready(ctx)
	}
	states := []int{rows.DeliveryPending, rows.DeliveryRetry, rows.DeliveryDelivered, rows.DeliveryFailed}
	if f.State != "" {
		states = []int{rows.DeliveryState(f.State)}
	}
	types := rows.DeliveryTypes()
	if f.EventType != "" {
		types = []event.Type{f.EventType}
	}
	s := rows.SpanOf(id.Delivery, f.Since, f.Until, rows.Below(p.After))
	if f.EventID != "" {
		return t.SelectDeliveries(ctx, `WHERE event_id = $1 AND id >= $2 AND id < $3 AND account_id = $4 AND state = ANY($5::integer[]) AND event_type = ANY($6::text[])
			AND ($7 = '' OR webhook_id = $7) ORDER BY id DESC LIMIT $8`, f.EventID, s.From, s.Below, accountID, states, texts(types), f.WebhookID, p.Limit)
	}
	column, owner := `account_id`, accountID
	if f.WebhookID != "" { // all deliveries of an endpoint belong to its account
		found := ""
		err := t.Query(ctx, "read the owner of deliveries", `SELECT account_id FROM deliveries WHERE webhook_id = $1 LIMIT 1`,
			[]any{f.WebhookID}, func(r *rows.Row) error { return r.Scan(&found) })
		if err != nil || found != accountID {
			return nil, err
		}
		column, owner = `webhook_id`, f.WebhookID
	}
	return t.SelectDeliveries(ctx, `WHERE n IN (SELECT n FROM unnest($1::integer[]) AS s (state) CROSS JOIN unnest($2::text[]) AS t (type)
		CROSS JOIN LATERAL (SELECT d.n, d.id FROM deliveries d WHERE d.`+column+` = $3 AND d.state = s.state AND d.event_type = t.type COLLATE "C" AND d.id >= $4 AND d.id < $5
			ORDER BY d.id DESC LIMIT $6) AS page ORDER BY page.id DESC LIMIT $6) ORDER BY id DESC`,
		states, texts(types), owner, s.From, s.Below, p.Limit)
}

// texts returns types as texts.
func texts(types []event.Type) []string {
	list := make([]string, len(types))
	for i, t := range types {
		list[i] = string(t)
	}
	return list
}
