package sender

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/webhook"
)

// Queue is the deliveries that wait, as the store keeps them. Several senders,
// on one node or on many, may use one queue: a delivery is leased to one of them
// at a time, and a sender that comes back after its lease ended changes nothing.
type Queue interface {
	// ClaimDeliveries leases deliveries that are due and returns them with all
	// that is needed to send them. A delivery is due if it is Pending or
	// RetryScheduled, its NextAttemptAt is not after c.Now, no lease on it lasts
	// beyond c.Now, and its endpoint is Active.
	//
	// Of each endpoint it takes those due longest, and no more than c allows. It
	// takes in turn from all endpoints: while one has nothing in the answer
	// yet, none has a second delivery there, whatever waits for the others. The
	// order of the answer is free.
	ClaimDeliveries(ctx context.Context, c Claim) ([]Job, error)

	// FinishDeliveries records one attempt for each result, in one transaction:
	// the attempt, the delivery's State and NextAttemptAt, the end of the lease
	// and the endpoint's health (webhook.Webhook.Observe, in the order of the
	// results; disabling has its audit record). Results whose lease is no longer
	// theirs, because it ended and another claim took the delivery, or whose
	// delivery is gone, are passed over; late is how many.
	FinishDeliveries(ctx context.Context, results []Result) (late int, err error)

	// ReleaseDeliveries ends leases without an attempt, so that the deliveries
	// are due again at once. Leases that ended are passed over.
	ReleaseDeliveries(ctx context.Context, leases []Lease) error

	// NextDelivery returns the earliest time after now at which a delivery
	// becomes due, by its NextAttemptAt or because the lease on it ends; zero if
	// there is none. What is due already does not count.
	NextDelivery(ctx context.Context, now time.Time) (time.Time, error)
}

// Sole ends all leases. A server whose store no other server can be using calls
// it before its sender starts: what a killed process had in flight is due again
// at once, and not when its leases end.
type Sole interface {
	ReleaseAllDeliveries(ctx context.Context) (released int, err error)
}

// Claim is what a sender is ready to take on.
type Claim struct {
	Now   time.Time
	Token string    // of the leases; no two claims have the same
	Until time.Time // the end of the leases
	Limit int       // of deliveries in all
	// Each is how many deliveries of an endpoint may be taken, unless Room has
	// the endpoint's identifier.
	Each int
	Room map[string]Room
}

// Room is what a sender may take of one endpoint.
type Room struct {
	// Any is how many deliveries may be taken; 0 for none.
	Any int
	// Begun leaves out deliveries that had no attempt yet, but for those that
	// somebody asked for one by one (webhook.ByHand and webhook.ByTest).
	Begun bool
}

// Lease is the right to send one delivery.
type Lease struct {
	DeliveryID string
	Token      string
}

// Job is a delivery to send.
type Job struct {
	Lease
	EventID   string
	EventType event.Type
	Trigger   webhook.Trigger
	Attempt   int       // the number of the attempt to make, from 1
	DueAt     time.Time // its NextAttemptAt
	Payload   []byte    // the event's; not to be changed
	Endpoint  Endpoint
}

// Endpoint is where a job goes, as it stood at the claim.
type Endpoint struct {
	WebhookID string
	URL       string
	// Secret and OldSecret are sealed. OldSecret is nil unless a rotation
	// overlaps until OldUntil.
	Secret    []byte
	OldSecret []byte
	OldUntil  time.Time
}

// Result is what came of a job.
type Result struct {
	Lease
	Attempt       webhook.Attempt
	State         webhook.DeliveryState // Delivered, RetryScheduled or Failed
	NextAttemptAt time.Time             // zero unless RetryScheduled
}
