package sender

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/webhook"
)

// Queue is the store's queue of deliveries. Several senders, on one node or on several,
// may share a queue: a delivery is leased to one of them at a time, and a result without
// a valid lease changes nothing.
//
// If several nodes share a queue, their clocks may differ. Such a queue goes by its own clock: of
// the times that it is given, it takes only the differences to now, or to the end of an attempt,
// and it returns times of the caller's clock, except in a Mark.
type Queue interface {
	// NewlyDue returns the endpoints with deliveries that were created, or became due, after
	// mark and not after now: by their NextAttemptAt or by the end of a lease. It reads a
	// bounded number of them, and returns the mark for the next call; more is set if the
	// next call would find others. The zero mark stands for no delivery: then NewlyDue
	// returns only the mark.
	NewlyDue(ctx context.Context, mark Mark, now time.Time) (found []Due, next Mark, more bool, err error)

	// AllDue returns endpoints with due deliveries in the order of their identifiers, beginning
	// behind after, which is "" at first. It steps over at most n endpoints with undelivered
	// deliveries, and returns the identifier of the last of these, or "" at the end.
	AllDue(ctx context.Context, after string, n int, now time.Time) (found []Due, last string, err error)

	// ClaimDeliveries leases deliveries that are due and returns them with everything
	// that is needed to send them. A delivery is due if it is Pending or
	// RetryScheduled, its NextAttemptAt is not after c.Now, it has no lease that ends
	// after c.Now, its endpoint is Active, and its account is not suspended.
	//
	// For each endpoint in c.Wants it leases the deliveries that have been due longest, at most as
	// many as wanted. It leases none of other endpoints. The jobs have no particular order.
	ClaimDeliveries(ctx context.Context, c Claim) ([]Job, error)

	// FinishDeliveries records the results of attempts in one transaction: the attempt,
	// the delivery's State and NextAttemptAt, the end of the lease, and the endpoint's
	// health (webhook.Webhook.Observe and Pause, in the order of the results; disabling an endpoint
	// writes an audit record). It skips results whose lease has passed to another claim
	// or whose delivery was deleted, and returns their number.
	FinishDeliveries(ctx context.Context, results []Result) (late int, err error)

	// ReleaseDeliveries ends leases without an attempt: the deliveries are due again at
	// once. It skips leases that have ended.
	ReleaseDeliveries(ctx context.Context, leases []Lease) error

	// NextDelivery returns the earliest time after now at which a delivery becomes due,
	// by its NextAttemptAt or by the end of its lease. It returns the zero time if there
	// is none. Deliveries that are due already do not count.
	NextDelivery(ctx context.Context, now time.Time) (time.Time, error)
}

// Exclusive ends the leases that a process which has died left in a queue, so that its
// deliveries are due at once, not when their leases expire.
type Exclusive interface {
	// ReleaseAllDeliveries ends the leases of all claims of the sender with the given name
	// (see TokenOf), and of no other.
	ReleaseAllDeliveries(ctx context.Context, name string) (released int, err error)
}

// TokenOf returns the token of a claim of the sender with the given name. It begins with
// TokenPrefix, by which a queue knows to whom a lease belongs. unique is different for each claim.
func TokenOf(name, unique string) string { return TokenPrefix(name) + unique }

// TokenPrefix returns the beginning of all tokens of a sender. No token of another sender begins
// with it, because no name has a slash.
func TokenPrefix(name string) string { return name + "/" }

// Mark is what a sender has seen of a queue.
type Mark struct {
	Created int64     // the store's number of the newest delivery; 0 for none
	DueAt   time.Time // latest time at which a delivery that was already seen became due
	DueFor  string    // its endpoint
}

// Due is an endpoint that is Active, of an account that is not suspended, and that may have due
// deliveries without a lease.
type Due struct {
	WebhookID string
	AccountID string
	Failing   bool // its last attempt failed
	// PausedUntil is the end of its latest pause; zero if there was none.
	PausedUntil time.Time
	// New and Begun say which deliveries may be due. Begun stands for deliveries with an attempt,
	// and for deliveries that were requested one by one (webhook.ByHand and webhook.ByTest).
	New, Begun bool
}

// Claim asks a queue for deliveries.
type Claim struct {
	Now   time.Time
	Token string    // identifies the leases; different for each claim (TokenOf)
	Until time.Time // when the leases end
	Wants []Want    // of different endpoints
}

// Want is what a claim may take of one endpoint.
type Want struct {
	WebhookID string
	Limit     int // most deliveries, at least 1
	// SkipNew leaves out deliveries without an attempt, except deliveries that were requested one
	// by one.
	SkipNew bool
}

// Lease is the right to send one delivery.
type Lease struct {
	DeliveryID string
	Token      string
}

// Job is a leased delivery.
type Job struct {
	Lease
	EventID   string
	EventType event.Type
	Trigger   webhook.Trigger
	Attempt   int       // number of the attempt to make, from 1
	DueAt     time.Time // the delivery's NextAttemptAt
	Payload   []byte    // the event's; read-only
	Endpoint  Endpoint
}

// Endpoint is where a job is sent, as configured at the time of the claim.
type Endpoint struct {
	WebhookID string
	URL       string
	// Secret and OldSecret are encrypted. OldSecret is nil unless a rotation overlaps
	// until OldUntil.
	Secret    []byte
	OldSecret []byte
	OldUntil  time.Time
}

// Result is the result of a job's attempt.
type Result struct {
	Lease
	Attempt       webhook.Attempt
	State         webhook.DeliveryState // Delivered, RetryScheduled or Failed
	NextAttemptAt time.Time             // zero unless RetryScheduled
	PausedUntil   time.Time             // the end of the pause that this failure began; zero if it began none
}
