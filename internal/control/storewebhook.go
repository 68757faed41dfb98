package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/webhook"
)

// WebhookReader finds webhook endpoints.
type WebhookReader interface {
	Webhook(ctx context.Context, accountID, webhookID string) (*webhook.Webhook, error)
	Webhooks(ctx context.Context, accountID string, p Page) ([]webhook.Webhook, error)
	// HasWebhooks reports whether the account has at least n endpoints, whatever their state.
	HasWebhooks(ctx context.Context, accountID string, n int) (bool, error)
	// WebhookAt returns an endpoint of the account that has the URL, other than exceptID; "" if none has.
	WebhookAt(ctx context.Context, accountID, url, exceptID string) (webhookID string, err error)
}

// WebhookStore finds and changes webhook endpoints. A URL that another endpoint of the account has is
// fault.Conflict with the field "url", if neither has SharesURL set. The caller sets Version.
type WebhookStore interface {
	WebhookReader
	InsertWebhook(ctx context.Context, w *webhook.Webhook) error
	// UpdateWebhook writes all fields but ID, AccountID and CreatedAt.
	UpdateWebhook(ctx context.Context, w *webhook.Webhook) error
	DeleteWebhook(ctx context.Context, accountID, webhookID string) error
}

// EventFilter selects events for a list, as DeliveryFilter does deliveries.
type EventFilter struct {
	Type         event.Type
	Since, Until time.Time
}

// HasTime reports whether the filter has a bound of time.
func (f *EventFilter) HasTime() bool { return !f.Since.IsZero() || !f.Until.IsZero() }

// EventReader finds events. Filters by time compare with the time in the identifiers
// (id.NewAt), which is CreatedAt.
type EventReader interface {
	Event(ctx context.Context, accountID, eventID string) (*event.Event, error)
	// Events returns a page of the list of events, newest first. The list is in the order in which
	// the events were committed, whatever CreatedAt says: a new event appears above all events that
	// were there before. With a bound of time the list is in the order of the identifiers. The
	// event that p.After names may have been removed since.
	Events(ctx context.Context, accountID string, f EventFilter, p Page) ([]event.Event, error)
}

// EventStore finds and adds events.
type EventStore interface {
	EventReader
	// AppendEvent stores e and adds a delivery of it, pending from its CreatedAt, for
	// each active endpoint of the account that lists its type. No endpoint lists the type
	// webhook.Test, so it adds no delivery.
	AppendEvent(ctx context.Context, e *event.Event) error
}

// DeliveryFilter selects deliveries for a list. Fields that are zero select every
// delivery. Since is inclusive and Until exclusive; both compare with CreatedAt.
type DeliveryFilter struct {
	WebhookID    string
	EventID      string
	State        webhook.DeliveryState
	EventType    event.Type
	Since, Until time.Time
}

// DeliveryReader finds deliveries. Filters by time work as in EventReader.
type DeliveryReader interface {
	// Delivery returns one delivery with its Payload.
	Delivery(ctx context.Context, accountID, deliveryID string) (*webhook.Delivery, error)
	Deliveries(ctx context.Context, accountID string, f DeliveryFilter, p Page) ([]webhook.Delivery, error)
	// DeliveriesToRecover returns up to limit deliveries to the endpoint that failed at
	// or after since and whose event was not delivered to it again since then, the
	// earliest failure first.
	DeliveriesToRecover(ctx context.Context, webhookID string, since time.Time, limit int) ([]webhook.Delivery, error)
	// StrandingWebhooks returns the endpoints of all accounts that are disabled or
	// deleted and have undelivered deliveries.
	StrandingWebhooks(ctx context.Context) ([]string, error)
}

// DeliveryStore finds, adds and ends deliveries. The queue writes their attempts
// (webhook/sender.Queue).
type DeliveryStore interface {
	DeliveryReader
	// InsertDelivery adds a delivery of a stored event. Failed deliveries of the same
	// event to the same endpoint then count as delivered again, but only a few of them: there
	// may be very many.
	InsertDelivery(ctx context.Context, d *webhook.Delivery) error
	// MarkRedelivered makes those of the deliveries that failed count as delivered again.
	MarkRedelivered(ctx context.Context, deliveryIDs []string) error
	// BringForward makes a delivery that is RetryScheduled due at now. It changes no delivery that is
	// due already, or whose attempt runs.
	BringForward(ctx context.Context, deliveryID string, now time.Time) error
	// FailStranded fails up to limit deliveries that wait for an endpoint that is
	// disabled or deleted and are not leased at now. Their logs get an entry that says
	// why no attempt was made. more reports whether there may be others.
	FailStranded(ctx context.Context, webhookID string, now time.Time, limit int) (more bool, err error)
	// Strand does the same for an endpoint that the transaction disables or deletes. w is the disabled
	// endpoint, or nil for a deleted one.
	Strand(ctx context.Context, webhookID string, w *webhook.Webhook, now time.Time, limit int) error
}
