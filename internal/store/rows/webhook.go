package rows

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/webhook"
)

const webhookColumns = `SELECT id, account_id, url, shares_url, events, active, disabled_reason, secret, secret_since, old_secret,
	old_until, failing_since, paused_until, created_at, version FROM webhooks `

func scanWebhook(r *Row) (webhook.Webhook, error) {
	var (
		w webhook.Webhook
		c struct { // one allocation
			events                              string
			active                              bool
			since, created                      int64
			oldUntil, failingSince, pausedUntil sql.NullInt64
		}
	)
	err := r.Scan(&w.ID, &w.AccountID, &w.URL, &w.SharesURL, &c.events, &c.active, &w.DisabledReason, &w.Secret, &c.since, &w.OldSecret, &c.oldUntil,
		&c.failingSince, &c.pausedUntil, &c.created, &w.Version)
	w.Events = readEventTypes(c.events)
	w.State = webhook.Disabled
	if c.active {
		w.State = webhook.Active
	}
	w.SecretSince, w.OldUntil = Instant(c.since), MaybeInstant(c.oldUntil)
	w.FailingSince, w.PausedUntil, w.CreatedAt = MaybeInstant(c.failingSince), MaybeInstant(c.pausedUntil), Instant(c.created)
	return w, err
}

// SelectWebhooks reads the endpoints that the rest of the query selects.
func (t *Reader) SelectWebhooks(ctx context.Context, rest string, args ...any) ([]webhook.Webhook, error) {
	return readAll(ctx, t, "read webhooks", webhookColumns+rest, args, scanWebhook)
}

func (t *Reader) webhook(ctx context.Context, rest string, args ...any) (*webhook.Webhook, error) {
	return readOne(ctx, t, "webhook", webhookColumns+rest, args, scanWebhook)
}

// Webhook implements control.WebhookReader.
func (t *Reader) Webhook(ctx context.Context, accountID, webhookID string) (*webhook.Webhook, error) {
	return t.webhook(ctx, `WHERE id = $1 AND account_id = $2`, webhookID, accountID)
}

// Webhook implements control.WebhookReader. The results of deliveries change endpoints too, without
// taking the head: so a transaction that writes locks every endpoint that it reads.
func (t *Writer) Webhook(ctx context.Context, accountID, webhookID string) (*webhook.Webhook, error) {
	return t.read.webhook(ctx, `WHERE id = $1 AND account_id = $2 FOR NO KEY UPDATE`, webhookID, accountID)
}

// Webhooks implements control.WebhookReader.
func (t *Reader) Webhooks(ctx context.Context, accountID string, p control.Page) ([]webhook.Webhook, error) {
	return t.SelectWebhooks(ctx, `INDEXED BY webhooks_list WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, accountID, Below(p.After), Limit(p.Limit))
}

// HasWebhooks implements control.WebhookReader. It reads n entries of an index.
func (t *Reader) HasWebhooks(ctx context.Context, accountID string, n int) (bool, error) {
	return t.Exists(ctx, "count webhooks", `SELECT 1 FROM webhooks INDEXED BY webhooks_list WHERE account_id = $1 ORDER BY id LIMIT 1 OFFSET $2`, accountID, Limit(n-1))
}

// WebhookAt implements control.WebhookReader.
func (t *Reader) WebhookAt(ctx context.Context, accountID, url, exceptID string) (webhookID string, err error) {
	return t.text(ctx, "find a webhook by its URL", `SELECT id FROM webhooks INDEXED BY webhooks_urls WHERE account_id = $1 AND url = $2 AND id <> $3 ORDER BY id LIMIT 1`, accountID, url, exceptID)
}

// ListenersQuery finds the active endpoints of an account that subscribe to an event type. It steps
// through the different lists of types, of which there are few however many endpoints there
// are. The column is always named with its table, because there is a table of this name too (mentions).
const ListenersQuery = `WITH RECURSIVE lists (types) AS (
		SELECT first.events FROM (SELECT w.events FROM webhooks w INDEXED BY webhooks_listeners WHERE w.account_id = $1 AND w.active = true ORDER BY w.events LIMIT 1) AS first
		UNION ALL
		SELECT (SELECT w.events FROM webhooks w INDEXED BY webhooks_listeners WHERE w.account_id = $1 AND w.active = true AND w.events > lists.types ORDER BY w.events LIMIT 1)
		FROM lists WHERE lists.types IS NOT NULL
	)
	SELECT w.id FROM lists CROSS JOIN webhooks w INDEXED BY webhooks_listeners ON w.account_id = $1 AND w.active = true AND w.events = lists.types
	WHERE strpos(' ' || lists.types || ' ', ' ' || $2 || ' ') > 0 LIMIT $3`

// Listeners returns the identifiers of up to limit active endpoints that subscribe to an event type.
func (t *Reader) Listeners(ctx context.Context, accountID string, of event.Type, limit int) ([]string, error) {
	return t.Texts(ctx, "read subscribed webhooks", ListenersQuery, accountID, string(of), limit)
}

// webhookValues returns the values that InsertWebhook and UpdateWebhook write, in their order.
func webhookValues(w *webhook.Webhook) []any {
	return []any{w.ID, w.AccountID, w.URL, w.SharesURL, eventTypes(w.Events), w.State == webhook.Active, w.DisabledReason, w.Secret, Micros(w.SecretSince),
		w.OldSecret, MaybeMicros(w.OldUntil), MaybeMicros(w.FailingSince), MaybeMicros(w.PausedUntil), w.Version}
}

// InsertWebhook implements control.WebhookStore.
func (t *Writer) InsertWebhook(ctx context.Context, w *webhook.Webhook) error {
	t.heard = listening{}
	return t.Queue(ctx, "insert webhook", `INSERT INTO webhooks (id, account_id, url, shares_url, events, active, disabled_reason, secret, secret_since,
		old_secret, old_until, failing_since, paused_until, version, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
		append(webhookValues(w), Micros(w.CreatedAt))...)
}

// UpdateWebhook implements control.WebhookStore.
func (t *Writer) UpdateWebhook(ctx context.Context, w *webhook.Webhook) error {
	t.heard = listening{}
	return t.QueueOne(ctx, "update webhook", "webhook", `UPDATE webhooks SET url = $3, shares_url = $4, events = $5, active = $6, disabled_reason = $7, secret = $8,
		secret_since = $9, old_secret = $10, old_until = $11, failing_since = $12, paused_until = $13, version = $14 WHERE id = $1 AND account_id = $2`, webhookValues(w)...)
}

// DeleteWebhook implements control.WebhookStore.
func (t *Writer) DeleteWebhook(ctx context.Context, accountID, webhookID string) error {
	t.heard = listening{}
	return t.QueueOne(ctx, "delete webhook", "webhook", `DELETE FROM webhooks WHERE id = $1 AND account_id = $2`, webhookID, accountID)
}
