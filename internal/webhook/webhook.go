// Package webhook defines webhook endpoints, deliveries and the rules by which
// they are made and repeated (specification, Events; contract, sections 3.3 and 6).
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
	Events         []event.Type // not empty
	State          State
	DisabledReason string // "" unless Disabled
	// Secret and OldSecret are sealed. OldSecret is nil unless a rotation
	// overlaps until OldUntil.
	Secret       []byte
	SecretSince  time.Time
	OldSecret    []byte
	OldUntil     time.Time
	FailingSince time.Time // of an unbroken row of failed attempts; zero if there is none
	CreatedAt    time.Time
	Version      int64 // grows with each change that a management call can make
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

// Trigger is why a delivery was made.
type Trigger string

// The triggers.
const (
	ByEvent   Trigger = "event"
	ByHand    Trigger = "manual"
	ByRecover Trigger = "recover"
	ByTest    Trigger = "test"
)

// MaxAttempts is how many failed attempts make a delivery Failed
// (specification, Limits).
const MaxAttempts = 5

// Delivery is the sending of one event to one endpoint.
type Delivery struct {
	ID            string
	AccountID     string
	WebhookID     string
	EventID       string
	EventType     event.Type // or Test
	State         DeliveryState
	Trigger       Trigger
	Attempts      []Attempt
	NextAttemptAt time.Time // zero once Delivered or Failed
	CreatedAt     time.Time
	Payload       []byte // the event's; only a single record has it
}

// Test is the type of the event that a test delivers.
const Test event.Type = "webhook.test"

// Attempt is one request to an endpoint.
type Attempt struct {
	Number    int // from 1
	StartedAt time.Time
	Duration  time.Duration
	Status    int    // 0 if no answer came
	Error     string // public; "" if the answer counts
	Response  []byte // the first KeptResponse bytes of the answer's body
}

// KeptResponse is how much of an answer's body the log keeps.
const KeptResponse = 8 << 10
