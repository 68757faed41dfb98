package control

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/webhook"
)

// DeliveryDetail is one delivery with the request of its last attempt: the exact body, and the
// headers. The headers have no signatures if no attempt was made yet, or if the secret has been
// rotated since the attempt.
type DeliveryDetail struct {
	webhook.Delivery
	RequestHeaders map[string]string
}

// recoverBatch is how many deliveries one transaction of RecoverWebhook creates. Other changes
// wait only for one such transaction.
const recoverBatch = 200

// Events lists the account's events, newest first.
func (s *Service) Events(ctx context.Context, actor *Actor, f EventFilter, p Page) ([]event.Event, error) {
	return read(ctx, s, actor, func(tx ReadTx) ([]event.Event, error) {
		return tx.Events(ctx, actor.Account.ID, f, p)
	})
}

// Event returns one event.
func (s *Service) Event(ctx context.Context, actor *Actor, eventID string) (*event.Event, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*event.Event, error) {
		return tx.Event(ctx, actor.Account.ID, eventID)
	})
}

// Deliveries lists the account's deliveries, newest first, without Payload.
func (s *Service) Deliveries(ctx context.Context, actor *Actor, f DeliveryFilter, p Page) ([]webhook.Delivery, error) {
	return read(ctx, s, actor, func(tx ReadTx) ([]webhook.Delivery, error) {
		return tx.Deliveries(ctx, actor.Account.ID, f, p)
	})
}

// Delivery returns one delivery with the request of its last attempt.
func (s *Service) Delivery(ctx context.Context, actor *Actor, deliveryID string) (*DeliveryDetail, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*DeliveryDetail, error) {
		d, err := tx.Delivery(ctx, actor.Account.ID, deliveryID)
		if err != nil {
			return nil, err
		}
		h, err := tx.Webhook(ctx, actor.Account.ID, d.WebhookID)
		if err != nil && fault.CodeOf(err) != fault.NotFound {
			return nil, err
		}
		header, err := s.requestHeader(d, h)
		return &DeliveryDetail{Delivery: *d, RequestHeaders: header}, err
	})
}

// requestHeader returns the headers of d's last attempt, or of the first if there was none. h is
// nil if the endpoint was deleted.
func (s *Service) requestHeader(d *webhook.Delivery, h *webhook.Webhook) (map[string]string, error) {
	m := webhook.Message{EventID: d.EventID, EventType: d.EventType, DeliveryID: d.ID, Attempt: 1, Payload: d.Payload}
	if len(d.Attempts) == 0 {
		return m.Header(d.NextAttemptAt, webhook.Secrets{}), nil
	}
	last := &d.Attempts[len(d.Attempts)-1]
	m.Attempt = last.Number
	var secrets webhook.Secrets
	if h != nil && !last.StartedAt.Before(h.SecretSince) {
		for _, open := range []struct {
			sealed []byte
			to     *string
		}{{h.Secret, &secrets.Current}, {h.OldSecret, &secrets.Old}} {
			if open.sealed == nil || open.to == &secrets.Old && !last.StartedAt.Before(h.OldUntil) {
				continue
			}
			plain, err := s.cfg.Sealer.Open(open.sealed)
			if err != nil {
				return nil, fmt.Errorf("open the signing secret of %s: %w", h.ID, err)
			}
			*open.to = string(plain)
		}
	}
	return m.Header(last.StartedAt, secrets), nil
}

// TestWebhook delivers an event of type webhook.test. If the endpoint is disabled, the error is
// fault.Conflict.
func (s *Service) TestWebhook(ctx context.Context, actor *Actor, webhookID string) (*webhook.Delivery, error) {
	return inTx(ctx, s, actor, func(w *work) (*webhook.Delivery, error) {
		h, err := w.webhookToSend(ctx, webhookID)
		if err != nil {
			return nil, err
		}
		e, err := event.New(h.AccountID, webhook.Test, w.now, struct{}{})
		if err != nil {
			return nil, err
		}
		if err := w.AppendEvent(ctx, &e); err != nil {
			return nil, err
		}
		d, err := w.deliver(ctx, h.ID, &e, webhook.ByTest)
		if err != nil {
			return nil, err
		}
		return d, w.audit(ctx, audit.WebhookTest, h.ID, "", audit.Diff{"delivery_id": {nil, d.ID}})
	})
}

// webhookToSend returns the endpoint, or fault.Conflict if it is disabled.
func (w *work) webhookToSend(ctx context.Context, webhookID string) (*webhook.Webhook, error) {
	h, err := w.Webhook(ctx, w.actor.Account.ID, webhookID)
	if err != nil {
		return nil, err
	}
	if h.State != webhook.Active {
		return nil, fault.New(fault.Conflict, "the webhook endpoint is disabled: set its state to active first")
	}
	return h, nil
}

// deliver adds a delivery of a stored event. It uses only e.ID and e.Type.
func (w *work) deliver(ctx context.Context, webhookID string, e *event.Event, by webhook.Trigger) (*webhook.Delivery, error) {
	d := &webhook.Delivery{
		ID: id.NewAt(id.Delivery, w.now), AccountID: w.actor.Account.ID, WebhookID: webhookID, EventID: e.ID, EventType: e.Type,
		State: webhook.Pending, Trigger: by, NextAttemptAt: w.now, CreatedAt: w.now,
	}
	w.wake = true
	return d, w.InsertDelivery(ctx, d)
}

// Redelivery is the result of Redeliver: a new delivery, or the given one if it was brought forward.
type Redelivery struct {
	webhook.Delivery
	New bool
}

// Redeliver adds a new delivery of the same event. A delivery that is RetryScheduled is not sent
// twice: its next attempt is due now instead, unless it runs already. If the delivery is Pending, or
// its endpoint is disabled or deleted, the error is fault.Conflict.
func (s *Service) Redeliver(ctx context.Context, actor *Actor, deliveryID string) (*Redelivery, error) {
	return inTx(ctx, s, actor, func(w *work) (*Redelivery, error) {
		old, err := w.Delivery(ctx, actor.Account.ID, deliveryID)
		if err != nil {
			return nil, err
		}
		if old.State == webhook.Pending {
			return nil, fault.New(fault.Conflict, "the delivery is still pending: wait for its first attempt")
		}
		h, err := w.webhookToSend(ctx, old.WebhookID)
		if fault.CodeOf(err) == fault.NotFound {
			return nil, fault.New(fault.Conflict, "the webhook endpoint of the delivery was deleted")
		}
		if err != nil {
			return nil, err
		}
		if old.State == webhook.RetryScheduled {
			return w.bringForward(ctx, old)
		}
		if err := w.MarkRedelivered(ctx, []string{old.ID}); err != nil {
			return nil, err
		}
		d, err := w.deliver(ctx, h.ID, &event.Event{ID: old.EventID, Type: old.EventType}, webhook.ByHand)
		if err != nil {
			return nil, err
		}
		return &Redelivery{Delivery: *d, New: true}, w.audit(ctx, audit.DeliveryRedeliver, old.ID, "", audit.Diff{"delivery_id": {nil, d.ID}})
	})
}

// bringForward makes the next attempt of a delivery due now. If it is due already, nothing changes.
func (w *work) bringForward(ctx context.Context, old *webhook.Delivery) (*Redelivery, error) {
	if err := w.BringForward(ctx, old.ID, w.now); err != nil {
		return nil, err
	}
	d, err := w.Delivery(ctx, old.AccountID, old.ID)
	if err != nil {
		return nil, err
	}
	w.wake = true
	diff := audit.Diff{}
	if !d.NextAttemptAt.Equal(old.NextAttemptAt) {
		diff["next_attempt_at"] = [2]any{timeOrNil(old.NextAttemptAt), timeOrNil(d.NextAttemptAt)}
	}
	return &Redelivery{Delivery: *d}, w.audit(ctx, audit.DeliveryRedeliver, old.ID, "", diff)
}

// RecoverWebhook redelivers the events whose deliveries failed at or after since and that were not
// redelivered yet, and returns their number. Each batch is one transaction, so after a failure
// another call continues with the rest.
func (s *Service) RecoverWebhook(ctx context.Context, actor *Actor, webhookID string, since time.Time) (int, error) {
	before, more := 0, true
	for more {
		n, err := inTxOnly(ctx, s, actor, func(w *work) (int, error) {
			list, err := w.toRecover(ctx, webhookID, since)
			if more = err == nil && len(list) == recoverBatch; !more { // the last batch stores the response
				return 0, err
			}
			return w.recover(ctx, webhookID, since, list)
		})
		if err != nil {
			return 0, err
		}
		before += n
	}
	return inTx(ctx, s, actor, func(w *work) (int, error) {
		list, err := w.toRecover(ctx, webhookID, since)
		if err != nil {
			return 0, err
		}
		n, err := w.recover(ctx, webhookID, since, list)
		return before + n, err
	})
}

func (w *work) toRecover(ctx context.Context, webhookID string, since time.Time) ([]webhook.Delivery, error) {
	h, err := w.webhookToSend(ctx, webhookID)
	if err != nil {
		return nil, err
	}
	return w.DeliveriesToRecover(ctx, h.ID, since, recoverBatch)
}

// recover delivers again the events of the deliveries, each event once. An event of which more than a few deliveries to
// the endpoint have failed may be in the next list too.
func (w *work) recover(ctx context.Context, webhookID string, since time.Time, list []webhook.Delivery) (int, error) {
	started, ids := map[string]bool{}, make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	if err := w.MarkRedelivered(ctx, ids); err != nil {
		return 0, err
	}
	for i := range list {
		old := &list[i]
		if started[old.EventID] {
			continue
		}
		started[old.EventID] = true
		if _, err := w.deliver(ctx, webhookID, &event.Event{ID: old.EventID, Type: old.EventType}, webhook.ByRecover); err != nil {
			return 0, err
		}
	}
	return len(started), w.audit(ctx, audit.WebhookRecover, webhookID, "",
		audit.Diff{"since": {nil, timeOrNil(since)}, "deliveries": {nil, len(started)}})
}
