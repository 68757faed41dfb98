// Package webhook defines webhook endpoints and deliveries, and the rules for signing,
// retrying and disabling (specification, Events; contract, sections 3.3 and 6).
package webhook

import (
	"time"

	"github.com/keygate/keygate/internal/event"
)

// State is the state of an endpoint.
type State string

// The states of endpoints.
const (
	Active   State = "active"
	Disabled State = "disabled"
)

// Webhook is an endpoint.
type Webhook struct {
	ID             string
	AccountID      string
	URL            string
	SharesURL      bool         // another endpoint of the account may have the URL
	Events         []event.Type // not empty
	State          State
	DisabledReason string // "" unless Disabled
	// Secret and OldSecret are encrypted. OldSecret is nil unless a rotation overlaps
	// until OldUntil.
	Secret       []byte
	SecretSince  time.Time
	OldSecret    []byte
	OldUntil     time.Time
	FailingSince time.Time // start of the first failed attempt since the last success; zero if there is none
	PausedUntil  time.Time // end of the latest pause, past or to come; zero if there was none
	CreatedAt    time.Time
	Version      int64 // incremented by every change that a management call can make
}

// DeliveryState is the state of a delivery.
type DeliveryState string

// The states of deliveries.
const (
	Pending        DeliveryState = "pending"
	RetryScheduled DeliveryState = "retry_scheduled"
	Delivered      DeliveryState = "delivered"
	Failed         DeliveryState = "failed"
)

// Trigger is the reason for which a delivery was created.
type Trigger string

// The triggers.
const (
	ByEvent   Trigger = "event"
	ByHand    Trigger = "manual"
	ByRecover Trigger = "recover"
	ByTest    Trigger = "test"
)

// MaxAttempts is the number of failed attempts after which a delivery is Failed
// (specification, Limits).
const MaxAttempts = 5

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	ID            string
	AccountID     string
	WebhookID     string
	EventID       string
	EventType     event.Type // or Test
	State         DeliveryState
	Trigger       Trigger
	Attempts      []Attempt
	NextAttemptAt time.Time // zero once Delivered or Failed; at the end of the endpoint's pause or later, if that postpones it
	CreatedAt     time.Time
	Payload       []byte // the event's; set only when a single delivery is read
}

// Test is the type of the event that a test call delivers.
const Test event.Type = "webhook.test"

// Attempt is one request to an endpoint.
type Attempt struct {
	Number    int // from 1
	StartedAt time.Time
	Duration  time.Duration
	Status    int    // 0 if there was no response
	Error     string // public message; "" if there was a complete response
	Response  []byte // the first KeptResponse bytes of the response body
}

// KeptResponse is how many bytes of a response body the delivery log keeps.
const KeptResponse = 8 << 10
