package rows

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/webhook"
	"github.com/keygate/keygate/internal/webhook/sender"
)

var _ sender.FinishTx = (*Writer)(nil)

// FinishDeliveries implements sender.Queue.
func (s *Store) FinishDeliveries(ctx context.Context, results []sender.Result) (late int, err error) {
	err = s.engine.Write(ctx, Durable, func(t *Writer) (err error) {
		late, err = sender.Finish(ctx, t, results)
		return err
	})
	return late, err
}

// LockWebhooks implements sender.FinishTx.
func (t *Writer) LockWebhooks(ctx context.Context, webhookIDs []string) ([]webhook.Webhook, error) {
	if len(webhookIDs) == 0 {
		return nil, t.Ready(ctx)
	}
	return t.read.SelectWebhooks(ctx, `WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE`, webhookIDs)
}

// StrandingWebhooks implements control.DeliveryReader.
func (t *Reader) StrandingWebhooks(ctx context.Context) ([]string, error) {
	const all = 1<<31 - 1
	return t.Texts(ctx, "find stranded deliveries", waiting+`SELECT waiting.id FROM waiting LEFT JOIN webhooks w ON w.id = waiting.id
		WHERE waiting.id IS NOT NULL AND (w.id IS NULL OR w.active = false)`, "", all)
}

// FailStranded implements control.DeliveryStore.
func (t *Writer) FailStranded(ctx context.Context, webhookID string, now time.Time, limit int) (more bool, err error) {
	found, err := t.LockWebhooks(ctx, []string{webhookID})
	if err != nil {
		return false, err
	}
	var w *webhook.Webhook
	if len(found) > 0 {
		w = &found[0]
	}
	if w != nil && w.State == webhook.Active {
		return false, nil
	}
	n, err := t.FailWaiting(ctx, webhookID, w.NotSent(), now, limit)
	return limit > 0 && n == limit, err
}
