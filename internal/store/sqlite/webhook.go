package sqlite

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/store/rows"
	"github.com/keygate/keygate/internal/store/stored"
	"github.com/keygate/keygate/internal/webhook"
)

const webhookColumns = `SELECT id, account_id, url, events, active, disabled_reason, secret, secret_since, old_secret,
	old_until, failing_since, created_at, version FROM webhooks `

func scanWebhook(r rows.Row) (webhook.Webhook, error) {
	var (
		w                      webhook.Webhook
		events                 string
		active                 bool
		since, created         int64
		oldUntil, failingSince sql.NullInt64
	)
	err := r.Scan(&w.ID, &w.AccountID, &w.URL, &events, &active, &w.DisabledReason, &w.Secret, &since, &w.OldSecret, &oldUntil,
		&failingSince, &created, &w.Version)
	w.Events = stored.ReadEventTypes(events)
	w.State = webhook.Disabled
	if active {
		w.State = webhook.Active
	}
	w.SecretSince, w.OldUntil = rows.Instant(since), rows.MaybeInstant(oldUntil)
	w.FailingSince, w.CreatedAt = rows.MaybeInstant(failingSince), rows.Instant(created)
	return w, err
}

// webhooks reads the endpoints that the rest of the query selects.
func (t *readTx) webhooks(ctx context.Context, rest string, args ...any) ([]webhook.Webhook, error) {
	var list []webhook.Webhook
	err := t.Query(ctx, "read webhooks", webhookColumns+rest, args, func(r rows.Row) error {
		w, err := scanWebhook(r)
		list = append(list, w)
		return err
	})
	return list, err
}

// Webhook implements control.WebhookReader.
func (t *readTx) Webhook(ctx context.Context, accountID, webhookID string) (*webhook.Webhook, error) {
	var w webhook.Webhook
	err := t.QueryRow(ctx, "webhook", webhookColumns+`WHERE id = ? AND account_id = ?`, []any{webhookID, accountID}, func(r rows.Row) (err error) {
		w, err = scanWebhook(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &w, nil
}

// Webhooks implements control.WebhookReader.
func (t *readTx) Webhooks(ctx context.Context, accountID string, p control.Page) ([]webhook.Webhook, error) {
	return t.webhooks(ctx, `INDEXED BY webhooks_list WHERE account_id = ? AND id < ? ORDER BY id DESC LIMIT ?+0`,
		accountID, rows.Below(p.After), rows.Limit(p.Limit))
}

const nthWebhook = `SELECT 1 FROM webhooks INDEXED BY webhooks_list WHERE account_id = ? ORDER BY id LIMIT 1 OFFSET ?`

// HasWebhooks implements control.WebhookReader. It reads n entries of an index.
func (t *readTx) HasWebhooks(ctx context.Context, accountID string, n int) (found bool, err error) {
	err = t.Query(ctx, "count webhooks", nthWebhook, []any{accountID, n - 1}, func(rows.Row) error {
		found = true
		return nil
	})
	return found, err
}

// listeners finds the active endpoints of an account that subscribe to an event type. It steps
// through the different lists of types, of which there are few however many endpoints there
// are.
const listeners = `WITH RECURSIVE lists (events) AS (
		SELECT min(events) FROM webhooks INDEXED BY webhooks_listeners WHERE account_id = ? AND active = 1
		UNION ALL
		SELECT (SELECT min(w.events) FROM webhooks w INDEXED BY webhooks_listeners WHERE w.account_id = ? AND w.active = 1 AND w.events > lists.events)
		FROM lists WHERE lists.events IS NOT NULL
	)
	SELECT w.id FROM lists CROSS JOIN webhooks w INDEXED BY webhooks_listeners ON w.account_id = ? AND w.active = 1 AND w.events = lists.events
	WHERE instr(' ' || lists.events || ' ', ' ' || ? || ' ') > 0 LIMIT ?+0`

// listeners returns the identifiers of up to limit active endpoints that subscribe to an event type.
func (t *readTx) listeners(ctx context.Context, accountID string, of event.Type, limit int) ([]string, error) {
	return t.Texts(ctx, "read subscribed webhooks", listeners, accountID, accountID, accountID, string(of), limit)
}

// webhookValues returns the values that InsertWebhook and UpdateWebhook write, in their order.
func webhookValues(w *webhook.Webhook) []any {
	var old any
	if w.OldSecret != nil {
		old = w.OldSecret
	}
	return []any{w.URL, stored.EventTypes(w.Events), w.State == webhook.Active, w.DisabledReason, w.Secret, rows.Micros(w.SecretSince), old,
		rows.MaybeMicros(w.OldUntil), rows.MaybeMicros(w.FailingSince), w.Version}
}

// InsertWebhook implements control.WebhookStore.
func (t *tx) InsertWebhook(ctx context.Context, w *webhook.Webhook) error {
	_, err := t.Exec(ctx, "insert webhook", `INSERT INTO webhooks (url, events, active, disabled_reason, secret, secret_since,
		old_secret, old_until, failing_since, version, id, account_id, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		append(webhookValues(w), w.ID, w.AccountID, rows.Micros(w.CreatedAt))...)
	return err
}

// UpdateWebhook implements control.WebhookStore.
func (t *tx) UpdateWebhook(ctx context.Context, w *webhook.Webhook) error {
	return t.QueueOne(ctx, "update webhook", "webhook", `UPDATE webhooks SET url = ?, events = ?, active = ?, disabled_reason = ?, secret = ?,
		secret_since = ?, old_secret = ?, old_until = ?, failing_since = ?, version = ? WHERE id = ? AND account_id = ?`,
		append(webhookValues(w), w.ID, w.AccountID)...)
}

// DeleteWebhook implements control.WebhookStore.
func (t *tx) DeleteWebhook(ctx context.Context, accountID, webhookID string) error {
	return t.QueueOne(ctx, "delete webhook", "webhook", `DELETE FROM webhooks WHERE id = ? AND account_id = ?`, webhookID, accountID)
}
