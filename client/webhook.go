package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// CreateWebhookRequest is the body of CreateWebhook.
type CreateWebhookRequest struct {
	URL    string   `json:"url"`
	Events []string `json:"events"` // their types, as in key.created
	// SigningSecret has 16 to 128 bytes. "" makes one.
	SigningSecret string `json:"signing_secret,omitempty"`
}

// WebhookPatch is the body of UpdateWebhook. Fields that are not set stay; none
// can be cleared.
type WebhookPatch struct {
	URL    Change[string]   `json:"url,omitzero"`
	Events Change[[]string] `json:"events,omitzero"` // replaces all
	State  Change[string]   `json:"state,omitzero"`  // active or disabled
}

// NewWebhook is an endpoint with a secret just made, which no other call gives.
type NewWebhook struct {
	Webhook
	// SigningSecret is "" if the connection failed after the server had made the
	// secret and the call was tried again: then Message says so, and the secret
	// is to be rotated.
	SigningSecret string `json:"signing_secret,omitempty"`
	// StandardWebhooksSecret is what a Standard Webhooks library takes; "" if
	// that is SigningSecret.
	StandardWebhooksSecret string `json:"standard_webhooks_secret,omitempty"`
	Message                string `json:"message,omitempty"`
}

// DeliveryFilter narrows a list of deliveries. Empty fields do not filter.
type DeliveryFilter struct {
	ListOptions
	WebhookID string
	State     string // pending, retry_scheduled, delivered or failed
	EventType string
	// Since is included, Until is not; both are of the delivery's begin.
	Since, Until time.Time
}

// DeliveryDetail is a single delivery with what it sends.
type DeliveryDetail struct {
	Delivery
	Payload        string            `json:"payload"` // the exact body of each attempt
	RequestHeaders map[string]string `json:"request_headers"`
}

// EventFilter narrows a list of events. Empty fields do not filter.
type EventFilter struct {
	ListOptions
	Type         string
	Since, Until time.Time // Since is included, Until is not
}

// Event is the envelope that is delivered. Data holds, by Type, a KeyEvent
// (key.created, key.revoked, key.expired), a KeyRotatedEvent, a
// RateLimitExceededEvent, an UpstreamErrorEvent or a SpecPushedEvent.
type Event struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	CreatedAt time.Time       `json:"created_at"`
	Data      json.RawMessage `json:"data"`
}

func webhookPath(webhookID string) string { return "/v1/webhooks/" + url.PathEscape(webhookID) }

func deliveryPath(deliveryID string) string {
	return "/v1/webhook-deliveries/" + url.PathEscape(deliveryID)
}

// Webhooks lists the account's endpoints, newest first.
func (c *Client) Webhooks(ctx context.Context, o ListOptions) iter.Seq2[Webhook, error] {
	return list[Webhook](ctx, c, "/v1/webhooks", nil, o.PageSize)
}

// Webhook returns one endpoint.
func (c *Client) Webhook(ctx context.Context, webhookID string) (*Webhook, error) {
	return call[Webhook](ctx, c, http.MethodGet, webhookPath(webhookID), nil)
}

// CreateWebhook registers an endpoint (contract, section 6). An address that the
// server does not deliver to is refused.
func (c *Client) CreateWebhook(ctx context.Context, in CreateWebhookRequest) (*NewWebhook, error) {
	return call[NewWebhook](ctx, c, http.MethodPost, "/v1/webhooks", in)
}

// UpdateWebhook changes an endpoint.
func (c *Client) UpdateWebhook(ctx context.Context, webhookID string, p WebhookPatch) (*Webhook, error) {
	return call[Webhook](ctx, c, http.MethodPatch, webhookPath(webhookID), p)
}

// DeleteWebhook ends an endpoint. It returns the last state of the record.
func (c *Client) DeleteWebhook(ctx context.Context, webhookID string) (*Webhook, error) {
	return call[Webhook](ctx, c, http.MethodDelete, webhookPath(webhookID), nil)
}

// RotateWebhookSecret gives an endpoint a new secret; the old one signs beside it
// for overlapHours.
func (c *Client) RotateWebhookSecret(ctx context.Context, webhookID string, overlapHours int) (*NewWebhook, error) {
	return call[NewWebhook](ctx, c, http.MethodPost, webhookPath(webhookID)+"/rotate-secret", map[string]int{"overlap_hours": overlapHours})
}

// TestWebhook begins the delivery of an event of the type webhook.test and
// returns its identifier.
func (c *Client) TestWebhook(ctx context.Context, webhookID string) (deliveryID string, err error) {
	r, err := call[struct {
		DeliveryID string `json:"delivery_id"`
	}](ctx, c, http.MethodPost, webhookPath(webhookID)+"/test", nil)
	if err != nil {
		return "", err
	}
	return r.DeliveryID, nil
}

// RecoverWebhook delivers again what failed at or after since and was not
// delivered again; it returns how many.
func (c *Client) RecoverWebhook(ctx context.Context, webhookID string, since time.Time) (int, error) {
	r, err := call[struct {
		Deliveries int `json:"deliveries"`
	}](ctx, c, http.MethodPost, webhookPath(webhookID)+"/recover", map[string]time.Time{"since": since.UTC()})
	if err != nil {
		return 0, err
	}
	return r.Deliveries, nil
}

// Deliveries lists the account's deliveries, newest first.
func (c *Client) Deliveries(ctx context.Context, f DeliveryFilter) iter.Seq2[Delivery, error] {
	return list[Delivery](ctx, c, "/v1/webhook-deliveries",
		filter("webhook_id", f.WebhookID, "state", f.State, "event_type", f.EventType, "since", instant(f.Since), "until", instant(f.Until)), f.PageSize)
}

// Delivery returns one delivery with what it sends.
func (c *Client) Delivery(ctx context.Context, deliveryID string) (*DeliveryDetail, error) {
	return call[DeliveryDetail](ctx, c, http.MethodGet, deliveryPath(deliveryID), nil)
}

// Redeliver begins a new delivery of the same event. One that is still to come is
// a conflict.
func (c *Client) Redeliver(ctx context.Context, deliveryID string) (*Delivery, error) {
	return call[Delivery](ctx, c, http.MethodPost, deliveryPath(deliveryID)+"/redeliver", nil)
}

// Events lists the account's events, newest first.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return list[Event](ctx, c, "/v1/events", filter("type", f.Type, "since", instant(f.Since), "until", instant(f.Until)), f.PageSize)
}

// Event returns one event.
func (c *Client) Event(ctx context.Context, eventID string) (*Event, error) {
	return call[Event](ctx, c, http.MethodGet, "/v1/events/"+url.PathEscape(eventID), nil)
}
