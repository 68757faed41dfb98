package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// CreateWebhookRequest is the body of CreateWebhook (contract, section 3.3).
type CreateWebhookRequest struct {
	URL    string   `json:"url"`    // an https URL, at most 2048 characters
	Events []string `json:"events"` // event types, as in key.created; at least one
	// SigningSecret has 16 to 128 bytes. If it is "", the server generates one.
	SigningSecret string `json:"signing_secret,omitempty"`
	// AllowDuplicate allows a URL that another endpoint of the account has.
	AllowDuplicate bool `json:"allow_duplicate,omitempty"`
}

// WebhookPatch is the body of UpdateWebhook. Fields without a Change are unchanged. No field can be
// cleared.
type WebhookPatch struct {
	URL            Change[string]   `json:"url,omitzero"`
	Events         Change[[]string] `json:"events,omitzero"`          // replaced as a whole
	State          Change[string]   `json:"state,omitzero"`           // active or disabled
	AllowDuplicate bool             `json:"allow_duplicate,omitzero"` // allow a URL that another endpoint of the account has
}

// NewWebhook is an endpoint with a new secret. No other call returns the secret.
type NewWebhook struct {
	Webhook
	// SigningSecret is the new secret. It is "" if the connection failed after the
	// server had created it and the call was retried: then Message says so, and
	// the secret must be rotated.
	SigningSecret string `json:"signing_secret,omitempty"`
	// StandardWebhooksSecret is the secret in the form that Standard Webhooks
	// libraries take. It is "" if SigningSecret has that form.
	StandardWebhooksSecret string `json:"standard_webhooks_secret,omitempty"`
	Message                string `json:"message,omitempty"`
}

// DeliveryFilter restricts Deliveries to matching deliveries. Zero fields match all
// deliveries.
type DeliveryFilter struct {
	ListOptions
	WebhookID string
	EventID   string
	State     string // pending, retry_scheduled, delivered or failed
	EventType string
	// Since (inclusive) and Until (exclusive) apply to CreatedAt.
	Since, Until time.Time
}

// DeliveryDetail is a delivery with the request that it sends.
type DeliveryDetail struct {
	Delivery
	Payload        string            `json:"payload"`         // exact request body, the same in each attempt
	RequestHeaders map[string]string `json:"request_headers"` // headers of the last attempt, or of the first if there was none yet
}

// EventFilter restricts Events to matching events. Zero fields match all events.
type EventFilter struct {
	ListOptions
	Type         string
	Since, Until time.Time // Since is inclusive, Until exclusive
}

// Event is an event in the form in which it is delivered (contract, section 6).
// Depending on Type, Data is the JSON of a KeyEvent (key.created, key.revoked,
// key.expired), a KeyRotatedEvent, a RateLimitExceededEvent, an UpstreamErrorEvent,
// a SpecPushedEvent or a SyncFailedEvent.
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

// Webhooks lists the webhook endpoints of the account, newest first.
func (c *Client) Webhooks(ctx context.Context, o ListOptions) iter.Seq2[Webhook, error] {
	return list[Webhook](ctx, c, "/v1/webhooks", nil, o.PageSize)
}

// Webhook returns one webhook endpoint.
func (c *Client) Webhook(ctx context.Context, webhookID string) (*Webhook, error) {
	return call[Webhook](ctx, c, http.MethodGet, webhookPath(webhookID), nil)
}

// CreateWebhook registers a webhook endpoint and returns it with its signing secret
// (contract, section 6). A URL that the server may not deliver to is an *Error with
// status 422.
func (c *Client) CreateWebhook(ctx context.Context, in CreateWebhookRequest) (*NewWebhook, error) {
	return call[NewWebhook](ctx, c, http.MethodPost, "/v1/webhooks", in)
}

// UpdateWebhook changes a webhook endpoint and returns it.
func (c *Client) UpdateWebhook(ctx context.Context, webhookID string, p WebhookPatch) (*Webhook, error) {
	return call[Webhook](ctx, c, http.MethodPatch, webhookPath(webhookID), p)
}

// DeleteWebhook deletes a webhook endpoint; its unfinished deliveries fail. It
// returns the record as it was before.
func (c *Client) DeleteWebhook(ctx context.Context, webhookID string) (*Webhook, error) {
	return call[Webhook](ctx, c, http.MethodDelete, webhookPath(webhookID), nil)
}

// RotateWebhookSecret creates a new signing secret for an endpoint and returns the
// endpoint with it (contract, section 3.3). For overlapHours hours, 0 to 168,
// deliveries are signed with the old secret as well.
func (c *Client) RotateWebhookSecret(ctx context.Context, webhookID string, overlapHours int) (*NewWebhook, error) {
	return call[NewWebhook](ctx, c, http.MethodPost, webhookPath(webhookID)+"/rotate-secret", map[string]int{"overlap_hours": overlapHours})
}

// TestWebhook starts the delivery of an event of type webhook.test to an endpoint
// and returns the identifier of the delivery.
func (c *Client) TestWebhook(ctx context.Context, webhookID string) (deliveryID string, err error) {
	r, err := call[struct {
		DeliveryID string `json:"delivery_id"`
	}](ctx, c, http.MethodPost, webhookPath(webhookID)+"/test", nil)
	if err != nil {
		return "", err
	}
	return r.DeliveryID, nil
}

// RecoverWebhook redelivers the events whose delivery to an endpoint failed at or
// after since and that were not redelivered afterwards. It returns the number of
// new deliveries.
func (c *Client) RecoverWebhook(ctx context.Context, webhookID string, since time.Time) (int, error) {
	r, err := call[struct {
		Deliveries int `json:"deliveries"`
	}](ctx, c, http.MethodPost, webhookPath(webhookID)+"/recover", map[string]time.Time{"since": since.UTC()})
	if err != nil {
		return 0, err
	}
	return r.Deliveries, nil
}

// Deliveries lists the webhook deliveries of the account, newest first. Failed
// deliveries are kept for 7 days, successful ones for 3 days (contract, section 6).
func (c *Client) Deliveries(ctx context.Context, f DeliveryFilter) iter.Seq2[Delivery, error] {
	return list[Delivery](ctx, c, "/v1/webhook-deliveries",
		filter("webhook_id", f.WebhookID, "event_id", f.EventID, "state", f.State, "event_type", f.EventType, "since", instant(f.Since), "until", instant(f.Until)), f.PageSize)
}

// Delivery returns one delivery with the request that it sends.
func (c *Client) Delivery(ctx context.Context, deliveryID string) (*DeliveryDetail, error) {
	return call[DeliveryDetail](ctx, c, http.MethodGet, deliveryPath(deliveryID), nil)
}

// Redeliver starts a new delivery of the same event to the same endpoint and
// returns it. If a retry of the delivery is scheduled, it makes the retry due now
// and returns the same delivery. For a delivery that is pending it returns an *Error
// with status 409.
func (c *Client) Redeliver(ctx context.Context, deliveryID string) (*Delivery, error) {
	return call[Delivery](ctx, c, http.MethodPost, deliveryPath(deliveryID)+"/redeliver", nil)
}

// Events lists the events of the account, newest first. They are kept for 7 days
// (contract, section 3).
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return list[Event](ctx, c, "/v1/events", filter("type", f.Type, "since", instant(f.Since), "until", instant(f.Until)), f.PageSize)
}

// Event returns one event.
func (c *Client) Event(ctx context.Context, eventID string) (*Event, error) {
	return call[Event](ctx, c, http.MethodGet, "/v1/events/"+url.PathEscape(eventID), nil)
}
