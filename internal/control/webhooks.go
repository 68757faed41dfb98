package control

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/webhook"
)

// WebhookInput is the body of an endpoint's creation. If Secret is "" or "auto", a secret is generated.
type WebhookInput struct {
	URL    string
	Events []string
	Secret string
}

// WebhookPatch is the body of an endpoint's update.
type WebhookPatch struct {
	URL    Optional[string]
	Events Optional[[]string]
	State  Optional[string]
}

// NewWebhook is an endpoint with its secret, which is returned only once. StandardSecret is the secret
// in the form for Standard Webhooks libraries, or "" if Secret already has it.
type NewWebhook struct {
	webhook.Webhook
	Secret         string
	StandardSecret string
}

// maxOverlapHours is the longest time for which the old secret signs too.
const maxOverlapHours = 168

// disabledByHand is the DisabledReason of an endpoint that a management call disabled.
const disabledByHand = "disabled by a management call"

// maxWebhooks is the most endpoints of an account, in any state. An account that has more
// endpoints, from an earlier version, keeps them.
const maxWebhooks = 1000

// strandedBatch is how many deliveries fail in the transaction that deletes or disables their
// endpoint. The maintenance fails the others.
const strandedBatch = 100

// Webhooks lists the account's endpoints, newest first.
func (s *Service) Webhooks(ctx context.Context, actor *Actor, p Page) ([]webhook.Webhook, error) {
	return read(ctx, s, actor, func(tx ReadTx) ([]webhook.Webhook, error) {
		return tx.Webhooks(ctx, actor.Account.ID, p)
	})
}

// Webhook returns one endpoint.
func (s *Service) Webhook(ctx context.Context, actor *Actor, webhookID string) (*webhook.Webhook, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*webhook.Webhook, error) {
		return tx.Webhook(ctx, actor.Account.ID, webhookID)
	})
}

// CreateWebhook registers an endpoint. If the account already has maxWebhooks, the error is
// fault.Conflict.
func (s *Service) CreateWebhook(ctx context.Context, actor *Actor, in WebhookInput) (*NewWebhook, error) {
	events, badEvents := webhook.ParseEvents(in.Events)
	secret, badSecret := webhook.ParseSecret(in.Secret)
	if err := fault.Join(s.cfg.WebhookURLs.Check(in.URL), badEvents, badSecret); err != nil {
		return nil, err
	}
	sealed, err := s.cfg.Sealer.Seal([]byte(secret))
	if err != nil {
		return nil, fmt.Errorf("seal a signing secret: %w", err)
	}
	return inTx(ctx, s, actor, func(w *work) (*NewWebhook, error) {
		full, err := w.HasWebhooks(ctx, actor.Account.ID, maxWebhooks)
		if err != nil {
			return nil, err
		}
		if full {
			return nil, fault.New(fault.Conflict, "the account has %d webhook endpoints, which is the most that it may have: delete one first", maxWebhooks)
		}
		if err := w.mayGrow(ctx); err != nil {
			return nil, err
		}
		h := webhook.Webhook{
			ID: id.NewAt(id.Webhook, w.now), AccountID: actor.Account.ID, URL: in.URL, Events: events, State: webhook.Active,
			Secret: sealed, SecretSince: w.now, CreatedAt: w.now, Version: 1,
		}
		if err := w.InsertWebhook(ctx, &h); err != nil {
			return nil, err
		}
		return withSecret(&h, secret), w.audit(ctx, audit.WebhookCreate, h.ID, "", webhookDiff(nil, &h))
	})
}

func withSecret(h *webhook.Webhook, secret string) *NewWebhook {
	return &NewWebhook{Webhook: *h, Secret: secret, StandardSecret: webhook.StandardSecret(secret)}
}

// webhookEdit is a validated WebhookPatch. A field that is zero changes nothing.
type webhookEdit struct {
	url    string
	events []event.Type
	state  webhook.State
}

func (s *Service) readWebhookPatch(p WebhookPatch) (e webhookEdit, err error) {
	var badURL, badEvents, badState error
	switch e.url = p.URL.Value; {
	case p.URL.Null:
		badURL = fault.Invalid("url", "cannot be removed")
	case p.URL.Present:
		badURL = s.cfg.WebhookURLs.Check(e.url)
	}
	switch {
	case p.Events.Null:
		badEvents = fault.Invalid("events", "cannot be removed")
	case p.Events.Present:
		e.events, badEvents = webhook.ParseEvents(p.Events.Value)
	}
	if p.State.Present {
		e.state = webhook.State(p.State.Value)
		if p.State.Null || e.state != webhook.Active && e.state != webhook.Disabled {
			badState = fault.Invalid("state", "must be active or disabled")
		}
	}
	return e, fault.Join(badURL, badEvents, badState)
}

// apply changes h. A new URL, or enabling the endpoint, resets its failures.
func (e *webhookEdit) apply(h *webhook.Webhook) {
	if e.url != "" && e.url != h.URL {
		h.URL, h.FailingSince = e.url, time.Time{}
	}
	if e.events != nil {
		h.Events = e.events
	}
	switch {
	case e.state == webhook.Active && h.State != webhook.Active:
		h.Enable()
	case e.state == webhook.Disabled && h.State != webhook.Disabled:
		h.State, h.DisabledReason = webhook.Disabled, disabledByHand
	}
}

// UpdateWebhook changes an endpoint. If this disables it, its pending deliveries fail.
func (s *Service) UpdateWebhook(ctx context.Context, actor *Actor, webhookID string, p WebhookPatch, m Match) (*webhook.Webhook, error) {
	edit, err := s.readWebhookPatch(p)
	if err != nil {
		return nil, err
	}
	return inTx(ctx, s, actor, func(w *work) (*webhook.Webhook, error) {
		before, err := w.webhookToChange(ctx, webhookID, m)
		if err != nil {
			return nil, err
		}
		if err := w.mayGrow(ctx); err != nil {
			return nil, err
		}
		h := *before
		edit.apply(&h)
		if err := w.storeWebhook(ctx, audit.WebhookUpdate, before, &h); err != nil {
			return nil, err
		}
		if h.State == webhook.Disabled {
			err = w.Strand(ctx, h.ID, &h, w.now, strandedBatch)
		}
		return &h, err
	})
}

// webhookToChange returns the endpoint if its version satisfies m.
func (w *work) webhookToChange(ctx context.Context, webhookID string, m Match) (*webhook.Webhook, error) {
	h, err := w.Webhook(ctx, w.actor.Account.ID, webhookID)
	if err != nil {
		return nil, err
	}
	return h, require(m, h.Version)
}

// storeWebhook stores h with a new version and an audit record, unless it equals before.
func (w *work) storeWebhook(ctx context.Context, a audit.Action, before, h *webhook.Webhook) error {
	diff := webhookDiff(before, h)
	if len(diff) == 0 {
		return nil
	}
	h.Version = before.Version + 1
	if err := w.UpdateWebhook(ctx, h); err != nil {
		return err
	}
	if err := w.changed(ctx, snapshot.WebhookChange, h.ID); err != nil {
		return err
	}
	return w.audit(ctx, a, h.ID, "", diff)
}

// DeleteWebhook deletes an endpoint and fails its pending deliveries. It returns the endpoint as it was.
func (s *Service) DeleteWebhook(ctx context.Context, actor *Actor, webhookID string, m Match) (*webhook.Webhook, error) {
	return inTx(ctx, s, actor, func(w *work) (*webhook.Webhook, error) {
		h, err := w.webhookToChange(ctx, webhookID, m)
		if err != nil {
			return nil, err
		}
		if err := w.DeleteWebhook(ctx, actor.Account.ID, h.ID); err != nil {
			return nil, err
		}
		if err := w.Strand(ctx, h.ID, nil, w.now, strandedBatch); err != nil {
			return nil, err
		}
		if err := w.changed(ctx, snapshot.WebhookChange, h.ID); err != nil {
			return nil, err
		}
		return h, w.audit(ctx, audit.WebhookDelete, h.ID, "", webhookDiff(h, nil))
	})
}

// RotateWebhookSecret gives an endpoint a new secret. For overlapHours, the old secret signs too.
func (s *Service) RotateWebhookSecret(ctx context.Context, actor *Actor, webhookID string, overlapHours int, m Match) (*NewWebhook, error) {
	if overlapHours < 0 || overlapHours > maxOverlapHours {
		return nil, fault.Invalid("overlap_hours", "must be between 0 and %d", maxOverlapHours)
	}
	secret := webhook.NewSecret()
	sealed, err := s.cfg.Sealer.Seal([]byte(secret))
	if err != nil {
		return nil, fmt.Errorf("seal a signing secret: %w", err)
	}
	return inTx(ctx, s, actor, func(w *work) (*NewWebhook, error) {
		before, err := w.webhookToChange(ctx, webhookID, m)
		if err != nil {
			return nil, err
		}
		h := *before
		h.Secret, h.SecretSince, h.OldSecret, h.OldUntil = sealed, w.now, nil, time.Time{}
		if overlapHours > 0 {
			h.OldSecret, h.OldUntil = before.Secret, w.now.Add(time.Duration(overlapHours)*time.Hour)
		}
		if err := w.storeWebhook(ctx, audit.WebhookRotateSecret, before, &h); err != nil {
			return nil, err
		}
		return withSecret(&h, secret), nil
	})
}

// webhookDiff shows secrets as "***"; a changed secret shows as a pair of them.
func webhookDiff(before, after *webhook.Webhook) audit.Diff {
	d := differ(webhookFields(before), webhookFields(after))
	switch {
	case before == nil:
		d["signing_secret"] = [2]any{nil, "***"}
	case after == nil:
		d["signing_secret"] = [2]any{"***", nil}
	case !before.SecretSince.Equal(after.SecretSince) || !bytes.Equal(before.Secret, after.Secret):
		d["signing_secret"] = [2]any{"***", "***"}
	}
	return d
}

func webhookFields(h *webhook.Webhook) fields {
	if h == nil {
		return nil
	}
	events := make([]string, len(h.Events))
	for i, t := range h.Events {
		events[i] = string(t)
	}
	return fields{"url": h.URL, "events": events, "state": string(h.State), "disabled_reason": orNil(h.DisabledReason)}
}
