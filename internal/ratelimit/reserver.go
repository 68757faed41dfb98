package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// DailyCount is how much of a daily cap is given out: Used requests of the UTC
// day Day (days since 1970) count against the limit that LimitID and KeyID name.
type DailyCount struct {
	LimitID string // the route
	KeyID   string // the bucket identity of the key for a limit with per: key, else ""
	Day     int64
	Used    int64
}

// DailyStore keeps daily counts.
type DailyStore interface {
	LoadDailyCounts(ctx context.Context, day int64) ([]DailyCount, error)
	SaveDailyCounts(ctx context.Context, counts []DailyCount) error
}

// ReserverConfig configures a Reserver.
type ReserverConfig struct {
	Store DailyStore       // required
	Now   func() time.Time // the wall clock; default time.Now
	Log   *slog.Logger     // default: none
}

// Reserver owns every daily cap of the node.
//
// It reserves ranges of a cap in the store ahead of use: the store always has a
// count that is at least what has passed, and at most a hundredth of the cap (at
// least one request) more. So a crash never lets more than the cap pass, and loses
// no more than that. One goroutine does all the reserving, in rounds: each writes for
// keepAll cap that asked since the last one began, in one call of the store.
type Reserver struct {
	store DailyStore
	now   func() time.Time
	log   *slog.Logger

	queue atomic.Pointer[Daily] // the caps that asked, linked by next
	wake  chan struct{}         // holds a token if there is something to do

	mu                         sync.Mutex
	limits                     map[limitKey]*dailyLimit
	resized                    []*dailyLimit // whose cap has changed
	dropped                    []*dailyLimit
	round                      *round // that what asks now is served in
	started, stopped, released bool   // what was reserved and not used is released after Stop

	group service.Group

	// Of the goroutine alone.
	day     int64 // isOf which the counts are known; -1 for none
	stale   bool  // some limit's counts are not known yet
	pending []*Daily
}

type limitKey struct {
	id     string
	perKey bool
}

// round is one pass of the ledger's goroutine.
type round struct {
	done chan struct{}
	err  error // set before done is closed
}

// NewReserver returns a ledger that is not started.
func NewReserver(cfg ReserverConfig) (*Reserver, error) {
	if cfg.Store == nil {
		return nil, errors.New("ledger: no store")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reserver{
		store: cfg.Store, now: cfg.Now, log: cfg.Log,
		wake:   make(chan struct{}, 1),
		limits: make(map[limitKey]*dailyLimit),
		round:  &round{done: make(chan struct{})},
		day:    -1,
	}, nil
}

// Daily returns the daily cap that all callers of the limit limitID (a route) share,
// made at the first call. A later call sets the cap and keeps the day's count.
func (l *Reserver) Daily(limitID string, limit Rate) *Daily {
	return l.limit(limitKey{limitID, false}, limit.Count).one
}

// Dailies returns the daily caps of the keys of the limit limitID, as Daily does.
func (l *Reserver) Dailies(limitID string, limit Rate) *Dailies {
	return l.limit(limitKey{limitID, true}, limit.Count).keys
}

func (l *Reserver) limit(k limitKey, capacity int64) *dailyLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.limits[k]
	if limit == nil {
		limit = newDailyLimit(l, k.id, k.perKey)
		l.limits[k] = limit
	}
	if limit.capacity.Swap(capacity) != capacity {
		l.resized = append(l.resized, limit)
		l.signal()
	}
	return limit
}

// Drop forgets limitID, whose count stays in the store. Whoever still decides by it
// gets Stale: publish a configuration without it first.
func (l *Reserver) Drop(limitID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range []limitKey{{limitID, false}, {limitID, true}} {
		if limit := l.limits[k]; limit != nil {
			delete(l.limits, k)
			l.dropped = append(l.dropped, limit)
			l.signal()
		}
	}
}

// Wait returns once d, of which a decision was NeedsReservation, can tell, so that the
// caller may decide again. The error is that of the store or of ctx, or that the
// reserver has stopped: fault.Unavailable.
func (l *Reserver) Wait(ctx context.Context, d *Daily) error {
	for !d.canDecide(dayOf(l.now().UnixNano())) {
		l.enqueue(d)
		l.mu.Lock()
		r, stopped := l.round, l.stopped
		l.mu.Unlock()
		if stopped {
			return errStopped()
		}
		l.signal()
		select {
		case <-r.done:
			if r.err != nil {
				return r.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// canDecide reports whether d can decide about a request of today, or is closed.
func (d *Daily) canDecide(today int64) bool {
	w := d.load()
	return w == closedDaily || w.isOf(today) && (w.left() > 0 || w.used() >= d.limit.capacity.Load())
}

// enqueue puts d into the queue. It neither blocks nor allocates.
func (l *Reserver) enqueue(d *Daily) {
	if d.queued.Swap(true) {
		return
	}
	for {
		head := l.queue.Load()
		d.next = head
		if l.queue.CompareAndSwap(head, d) {
			break
		}
	}
	l.signal()
}

func (l *Reserver) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// takeQueue empties the queue.
func (l *Reserver) takeQueue(into []*Daily) []*Daily {
	for d := l.queue.Swap(nil); d != nil; {
		next := d.next
		d.queued.Store(false)
		into = append(into, d)
		d = next
	}
	return into
}
