// Package detect makes the events of the data plane (contract, section 6): it looks
// at the record of each request and decides whether it makes one.
//
//	records ──Take──► breaches: every 100th of a count ──► queue ──┐
//	                  errors: a group for each route and status ───┴──► Store, in batches
//
// Take only counts and remembers. A goroutine writes: a breach as soon as it can;
// of the errors of a group the first as soon as it can, and what came after it
// together, at most once a second. What the store cannot take now waits: the
// errors in the counts of their groups, a bounded number of breaches in the queue.
//
// The counts of breaches begin again with the process, and so does the sampling:
// the first breach after a start makes an event.
package detect

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/service"
)

// Store keeps events and makes the deliveries of each in the same transaction. A
// call that ended with fault.Conflict wrote events with these identifiers before.
type Store interface {
	AppendEvents(ctx context.Context, events []event.Event) error
}

// Routes knows the routes by their identifiers. It does no I/O.
type Routes interface {
	// RoutePath returns the path of a route, as it is stored; "" if it is gone.
	RoutePath(gatewayID, routeID string) string
}

// Bounds of the memory, and of a transaction.
const (
	maxQueue  = 4096
	maxCounts = 1 << 17
	maxGroups = 1 << 15
	maxBatch  = 100
)

// interval is the least time between two events of one route and status.
const interval = time.Second

// forgetEvery is the least time between two looks for routes that are gone.
const forgetEvery = time.Minute

// retryAfter is the wait after a failure of the store.
const retryAfter = time.Second

// Config is what a Detector is made of. Store and Routes are required.
type Config struct {
	Store  Store
	Routes Routes
	Wake   func()           // called after events were written; nil does nothing
	Now    func() time.Time // nil is time.Now
	Log    *slog.Logger     // nil discards
}

// Detector is a sink that makes events. It is safe for concurrent use.
type Detector struct {
	cfg  Config
	lost atomic.Uint64

	mu       sync.Mutex
	counts   map[limit]int64
	groups   map[outage]*group
	queue    []breach
	fresh    []*group  // that had no event yet, the first first
	told     []*group  // that had one, the earliest first
	forgetAt time.Time // no look for routes that are gone before

	work   chan struct{}      // of one place: something may be to do
	syncs  chan chan struct{} // closed by the writer when all that was due is written
	group  service.Group
	unsent []event.Event // that were made and are not yet written; the writer's
}

// breach is one that makes an event.
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

// group is the errors of one route and status that no event has told yet.
type group struct {
	name    outage
	account string
	data    event.UpstreamError // RequestID and Reason aside; Occurrences are those not yet told
	last    [16]byte            // request of the last error
	reason  string              // of the last error
	next    time.Time           // no event before
}

// New returns a Detector that stands still until Start.
func New(cfg Config) (*Detector, error) {
	if cfg.Store == nil || cfg.Routes == nil {
		return nil, errors.New("watch: Store and Routes are required")
	}
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Detector{
		cfg: cfg, counts: map[limit]int64{}, groups: map[outage]*group{},
		work: make(chan struct{}, 1), syncs: make(chan chan struct{}),
	}, nil
}

// Lost returns how many breaches and errors could not be remembered.
func (w *Detector) Lost() uint64 { return w.lost.Load() }
