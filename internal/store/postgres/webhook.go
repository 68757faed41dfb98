package postgres

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

func (t *readTx) webhook(ctx context.Context, rest string, args ...any) (*webhook.Webhook, error) {
	var w webhook.Webhook
	err := t.QueryRow(ctx, "webhook", webhookColumns+rest, args, func(r rows.Row) (err error) {
		w, err = scanWebhook(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &w, nil
}

// Webhook implements control.WebhookReader.
func (t *readTx) Webhook(ctx context.Context, accountID, webhookID string) (*webhook.Webhook, error) {
	return t.webhook(ctx, `WHERE id = $1 AND account_id = $2`, webhookID, accountID)
}

// Webhook implements control.WebhookReader. The results of deliveries change endpoints too, without
// the head: what a mutation reads of an endpoint, it locks.
func (t *tx) Webhook(ctx context.Context, accountID, webhookID string) (*webhook.Webhook, error) {
	return t.webhook(ctx, `WHERE id = $1 AND account_id = $2 FOR NO KEY UPDATE`, webhookID, accountID)
}

// Webhooks implements control.WebhookReader.
func (t *readTx) Webhooks(ctx context.Context, accountID string, p control.Page) ([]webhook.Webhook, error) {
	return t.webhooks(ctx, `WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, accountID, rows.Below(p.After), rows.Limit(p.Limit))
}

// HasWebhooks implements control.WebhookReader. It reads n entries of an index.
func (t *readTx) HasWebhooks(ctx context.Context, accountID string, n int) (found bool, err error) {
	err = t.Query(ctx, "count webhooks", `SELECT 1 FROM webhooks WHERE account_id = $1 ORDER BY id LIMIT 1 OFFSET $2`, []any{accountID, rows.Limit(n - 1)},
		func(rows.Row) error {
			found = true
			return nil
		})
	return found, err
}

// listeners finds the active endpoints of an account that subscribe to an event type. It steps
// through the different lists of types, of which there are few however many endpoints there
// are. The column is always named with its table, because there is a table of this name too (mentions).
const listeners = `WITH RECURSIVE lists (types) AS (
		(SELECT w.events FROM webhooks w WHERE w.account_id = $1 AND w.active ORDER BY w.events LIMIT 1)
		UNION ALL
		SELECT (SELECT w.events FROM webhooks w WHERE w.account_id = $1 AND w.active AND w.events > lists.types ORDER BY w.events LIMIT 1)
		FROM lists WHERE lists.types IS NOT NULL
	)
	SELECT w.id FROM lists JOIN webhooks w ON w.account_id = $1 AND w.active AND w.events = lists.types
	WHERE strpos(' ' || lists.types || ' ', ' ' || $2 || ' ') > 0 LIMIT $3`

// listeners returns the identifiers of up to limit active endpoints that subscribe to an event type.
func (t *readTx) listeners(ctx context.Context, accountID string, of event.Type, limit int) ([]string, error) {
	return t.Texts(ctx, "read subscribed webhooks", listeners, accountID, string(of), limit)
}

// webhookValues returns the values that InsertWebhook and UpdateWebhook write, in their order.
func webhookValues(w *webhook.Webhook) []any {
	return []any{w.ID, w.AccountID, w.URL, stored.EventTypes(w.Events), w.State == webhook.Active, w.DisabledReason, w.Secret, rows.Micros(w.SecretSince),
		w.OldSecret, rows.MaybeMicros(w.OldUntil), rows.MaybeMicros(w.FailingSince), w.Version}
}

// InsertWebhook implements control.WebhookStore.
func (t *tx) InsertWebhook(ctx context.Context, w *webhook.Webhook) error {
	t.heard = listening{}
	return t.Queue(ctx, "insert webhook", `INSERT INTO webhooks (id, account_id, url, events, active, disabled_reason, secret, secret_since,
		old_secret, old_until, failing_since, version, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		append(webhookValues(w), rows.Micros(w.CreatedAt))...)
}

// UpdateWebhook implements control.WebhookStore.
func (t *tx) UpdateWebhook(ctx context.Context, w *webhook.Webhook) error {
	t.heard = listening{}
	return t.QueueOne(ctx, "update webhook", "webhook", `UPDATE webhooks SET url = $3, events = $4, active = $5, disabled_reason = $6, secret = $7,
		secret_since = $8, old_secret = $9, old_until = $10, failing_since = $11, version = $12 WHERE id = $1 AND account_id = $2`, webhookValues(w)...)
}

// DeleteWebhook implements control.WebhookStore.
func (t *tx) DeleteWebhook(ctx context.Context, accountID, webhookID string) error {
	t.heard = listening{}
	return t.QueueOne(ctx, "delete webhook", "webhook", `DELETE FROM webhooks WHERE id = $1 AND account_id = $2`, webhookID, accountID)
}
