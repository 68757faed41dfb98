// Package detect creates the events of the data plane from the access records of requests
// (contract, section 6), and from the transitions of targets (targets.md, section 3).
//
//	records ──Take──────────► breaches: every 100th of a count ──► queue ──┐
//	                          errors: a group for each route and status ───┼──► Store, in batches
//	transitions ──NoteTarget──► targets that are down, or were lately ─────┘
//
// Take only counts. A goroutine creates and writes the events: of breaches at once, of the
// first error of a group at once, and of its further errors together, at most once a
// second. While the store fails, errors wait in the counts of their groups, and a bounded
// number of breaches in the queue.
//
// The counts of breaches, and with them the sampling, restart with the process: the first
// breach after a start makes an event.
package detect

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/service"
)

// Store stores events, and creates their deliveries in the same transaction. The error is
// fault.Conflict if events with these identifiers are stored already.
type Store interface {
	AppendEvents(ctx context.Context, events []event.Event) error
}

// Routes looks up routes by their identifiers. It does no I/O.
type Routes interface {
	// RoutePath returns the path that was configured for a route at a time (microseconds
	// since 1970), also for some seconds after its removal, or "" if it does not exist.
	RoutePath(gatewayID, routeID string, micros int64) string
}

// Bounds of the memory, and of a transaction.
const (
	maxQueue  = 4096
	maxCounts = 1 << 17
	maxGroups = 1 << 15
	maxBatch  = 100
)

// minInterval is the least time between two events of one route and status.
const minInterval = time.Second

// forgetEvery is the least time between two checks for deleted routes.
const forgetEvery = time.Minute

// retryAfter is the wait after a failure of the store.
const retryAfter = time.Second

// Config configures a Detector. Store and Routes are required.
type Config struct {
	Store  Store
	Routes Routes
	Wake   func() // called after events were written; nil does nothing
	// Full reports whether no more events of an account may be raised, because too many wait for their deliveries
	// to be written. Nil means that more always may.
	Full func(accountID string) bool
	// Node is the name of the node, for the events of targets; "" if there are no others.
	Node string
	// Healths calls each for every check of a target that there is, until it returns false; see balance.Fleet. Nil means that
	// there is none.
	Healths func(each func(*balance.Health, balance.Check) bool)
	Now     func() time.Time // nil is time.Now
	Log     *slog.Logger     // nil discards
}

// Detector is an accesslog.Sink that creates events. It is safe for concurrent use.
type Detector struct {
	cfg  Config
	lost atomic.Uint64

	mu       sync.Mutex
	counts   map[limit]int64
	groups   map[outage]*group
	queue    []breach
	fresh    []*group  // that had no event yet, the oldest first
	notified []*group  // that had an event, the earliest first
	forgetAt time.Time // earliest time of the next check for deleted routes

	targets   targets
	work      service.Signal     // holds a token if there may be something to write
	syncs     chan chan struct{} // each is closed when everything due is written
	group     service.Group
	unwritten []event.Event // created and not yet stored; used by the goroutine only, as the budget
	budget    budget
}

// breach is a breach that makes an event.
type breach struct {
	account string
	data    event.Breach
}

// limit names a count of breaches.
type limit struct {
	gateway, route [16]byte
	scope          uint8
}

// outage names a group of errors.
type outage struct {
	gateway, route [16]byte
	status         uint16
}

// group is the errors of one route and status.
type group struct {
	name    outage
	account string
	data    event.UpstreamError // without RequestID and Reason; Occurrences since the last event
	last    [16]byte            // request of the last error
	reason  string              // of the last error
	next    time.Time           // earliest time of the next event
}

// New returns a Detector that counts at once and writes events after Start.
func New(cfg Config) (*Detector, error) {
	if cfg.Store == nil || cfg.Routes == nil {
		return nil, errors.New("event/detect: Config.Store and Config.Routes are required")
	}
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	if cfg.Full == nil {
		cfg.Full = func(string) bool { return false }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Detector{
		cfg: cfg, counts: map[limit]int64{}, groups: map[outage]*group{}, targets: newTargets(),
		work: service.NewSignal(), syncs: make(chan chan struct{}),
	}, nil
}

// AddLost counts events that the store had kept to add them later, and has lost.
func (d *Detector) AddLost(events int) { d.lost.Add(uint64(events)) }

// Lost returns the number of breaches, errors and transitions of targets without an event, because there was no memory for
// them, or because their account had raised too many, or too many of its events waited.
func (d *Detector) Lost() uint64 { return d.lost.Load() }
