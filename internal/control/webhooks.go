package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/webhook"
)

// WebhookInput is the body of an endpoint's creation. Secret is "" or "auto" for
// one that is made here.
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

// NewWebhook is an endpoint with its secret, which is shown this once.
// StandardSecret is what a Standard Webhooks library takes; it is "" if that is
// the secret itself.
type NewWebhook struct {
	webhook.Webhook
	Secret         string
	StandardSecret string
}

// DeliveryFilter narrows a list of deliveries. Zero members do not filter. Since
// is included, Until is not; both are of CreatedAt.
type DeliveryFilter struct {
	WebhookID    string
	State        webhook.DeliveryState
	EventType    event.Type
	Since, Until time.Time
}

// EventFilter narrows a list of events, like DeliveryFilter.
type EventFilter struct {
	Type         event.Type
	Since, Until time.Time
}

// DeliveryDetail is a single delivery with what an attempt sends: the exact body,
// and the header fields without the signatures' values where there was no
// attempt yet.
type DeliveryDetail struct {
	webhook.Delivery
	RequestHeaders map[string]string
}

// Webhooks lists the account's endpoints, newest first.
func (s *Service) Webhooks(ctx context.Context, c *Caller, p Page) ([]webhook.Webhook, error) {
	panic("x")
}

// Webhook returns one endpoint.
func (s *Service) Webhook(ctx context.Context, c *Caller, webhookID string) (*webhook.Webhook, error) {
	panic("x")
}

// CreateWebhook registers an endpoint.
func (s *Service) CreateWebhook(ctx context.Context, c *Caller, in WebhookInput) (*NewWebhook, error) {
	panic("x")
}

// UpdateWebhook changes an endpoint.
func (s *Service) UpdateWebhook(ctx context.Context, c *Caller, webhookID string, p WebhookPatch, m Match) (*webhook.Webhook, error) {
	panic("x")
}

// DeleteWebhook removes an endpoint; what was not delivered to it is failed.
func (s *Service) DeleteWebhook(ctx context.Context, c *Caller, webhookID string, m Match) (*webhook.Webhook, error) {
	panic("x")
}

// RotateWebhookSecret gives an endpoint a new secret; the old one signs too for
// overlapHours.
func (s *Service) RotateWebhookSecret(ctx context.Context, c *Caller, webhookID string, overlapHours int, m Match) (*NewWebhook, error) {
	panic("x")
}

// TestWebhook delivers an event of type webhook.test.
func (s *Service) TestWebhook(ctx context.Context, c *Caller, webhookID string) (*webhook.Delivery, error) {
	panic("x")
}

// RecoverWebhook delivers again what failed at or after since and was not
// delivered again; it returns how many.
func (s *Service) RecoverWebhook(ctx context.Context, c *Caller, webhookID string, since time.Time) (int, error) {
	panic("x")
}

// Deliveries lists the account's deliveries, newest first, without Payload.
func (s *Service) Deliveries(ctx context.Context, c *Caller, f DeliveryFilter, p Page) ([]webhook.Delivery, error) {
	panic("x")
}

// Delivery returns one delivery.
func (s *Service) Delivery(ctx context.Context, c *Caller, deliveryID string) (*DeliveryDetail, error) {
	panic("x")
}

// Redeliver makes a new delivery of the same event. One that is pending is
// fault.Conflict.
func (s *Service) Redeliver(ctx context.Context, c *Caller, deliveryID string) (*webhook.Delivery, error) {
	panic("x")
}

// Events lists the account's events, newest first.
func (s *Service) Events(ctx context.Context, c *Caller, f EventFilter, p Page) ([]event.Event, error) {
	panic("x")
}

// Event returns one event.
func (s *Service) Event(ctx context.Context, c *Caller, eventID string) (*event.Event, error) {
	panic("x")
}
