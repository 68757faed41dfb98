package ratelimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/service"
)

// ReserverConfig configures a Reserver.
type ReserverConfig struct {
	Store DailyStore                              // where counts are kept; required
	Node  string                                  // names this process among all processes, also earlier ones; "" means a random name
	Now   func() time.Time                        // the wall clock; nil means time.Now
	Steer func(now time.Time, took time.Duration) // receives the time by the store's clock, if the store has one, and the duration of the call that returned it; nil ignores it
	Nodes func() int                              // returns the number of nodes that live; nil means 1
	Log   *slog.Logger                            // receives failures; nil discards them
}

// Reserver owns every daily cap of the node.
//
// It reserves ranges of a cap in the store ahead of use, so the count in the store is never less than the number of
// requests that have passed. So no crash, and no number of nodes, lets more than the cap pass. A crash loses what is
// left of the range. The next range is half of what all crashes of the day may still lose: together they may lose a
// hundredth of the cap, or one request. When this is used up, requests are reserved one by one, as they wait; a crash
// at such a moment still loses that one request. One goroutine does all reserving, in rounds: a round saves, in one
// call of the store, for every cap that has asked since the previous round began.
type Reserver struct {
	store DailyStore
	node  string
	now   func() time.Time
	steer func(now time.Time, took time.Duration)
	nodes func() int
	log   *slog.Logger

	queue atomic.Pointer[Daily] // the caps that have asked for a range, linked by next
	wake  service.Signal        // there is work to do

	mu                         sync.Mutex
	limits                     map[limitKey]*dailyLimit
	resized                    []*dailyLimit // limits whose cap has changed
	dropped                    []*dailyLimit
	round                      *round // the round that will serve new requests
	failing                    error  // of the last round, until a round succeeds
	started, stopped, released bool   // released: the unused part of the ranges was given back, after Stop

	group service.Group

	// Used only by the goroutine.
	day     int64 // day for which the counts are known; -1 for none
	stale   bool  // some limit's counts are not known yet
	pending []*Daily
	within  bool // serveWaiting runs
	atOnce  int  // claimsAtOnce, unless a test sets it
}

type limitKey struct {
	id     string
	perKey bool
}

// round is one pass of the Reserver's goroutine.
type round struct {
	done chan struct{}
	err  error // set before done is closed
}

// NewReserver returns a Reserver that is not started. The only error is a missing
// ReserverConfig.Store.
func NewReserver(cfg ReserverConfig) (*Reserver, error) {
	if cfg.Store == nil {
		return nil, errors.New("ratelimit: ReserverConfig.Store is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Steer == nil {
		cfg.Steer = func(time.Time, time.Duration) {}
	}
	if cfg.Nodes == nil {
		cfg.Nodes = func() int { return 1 }
	}
	cfg.Node = cmp.Or(cfg.Node, rand.Text())
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reserver{
		store: cfg.Store, node: cfg.Node, now: cfg.Now, steer: cfg.Steer, nodes: cfg.Nodes, log: cfg.Log,
		wake:   service.NewSignal(),
		limits: make(map[limitKey]*dailyLimit),
		round:  &round{done: make(chan struct{})},
		day:    -1,
		atOnce: claimsAtOnce,
	}, nil
}

// Daily returns the daily cap of the limit limitID (a route) that all callers share. It is
// created by the first call; a later call sets the cap and keeps the day's count.
func (r *Reserver) Daily(limitID string, limit Rate) *Daily {
	return r.limit(limitKey{limitID, false}, limit.Count).one
}

// Dailies returns the daily caps of the limit limitID for each key, as Daily does.
func (r *Reserver) Dailies(limitID string, limit Rate) *Dailies {
	return r.limit(limitKey{limitID, true}, limit.Count).keys
}

func (r *Reserver) limit(k limitKey, capacity int64) *dailyLimit {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := r.limits[k]
	if limit == nil {
		limit = newDailyLimit(r, k.id, k.perKey)
		r.limits[k] = limit
	}
	if limit.capacity.Swap(capacity) != capacity {
		r.resized = append(r.resized, limit)
		r.wake.Notify()
	}
	return limit
}

// Drop removes limitID; its count stays in the store. Decisions that still use it return
// Stale, so publish a configuration without it first.
func (r *Reserver) Drop(limitID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range []limitKey{{limitID, false}, {limitID, true}} {
		if limit := r.limits[k]; limit != nil {
			delete(r.limits, k)
			r.dropped = append(r.dropped, limit)
			r.wake.Notify()
		}
	}
}

// Wait returns when d, for which a decision returned NeedsReservation, can decide, so that
// the caller may decide again. The error is ctx.Err(), or has the code fault.Unavailable
// if the store fails, does not answer within a second, or the Reserver has stopped. While the store fails,
// Wait does not wait for the next attempt.
func (r *Reserver) Wait(ctx context.Context, d *Daily) (err error) {
	d.waiting.Add(1)
	defer func() {
		if d.waiting.Add(-1); err != nil {
			r.enqueue(d) // gives up what was reserved for this call
		}
	}()
	if d.canDecide(dayOf(r.now().UnixNano())) {
		return nil
	}
	late := time.NewTimer(dailyTimeout)
	defer late.Stop()
	for !d.canDecide(dayOf(r.now().UnixNano())) {
		r.enqueue(d)
		r.mu.Lock()
		current, stopped, failing := r.round, r.stopped, r.failing
		r.mu.Unlock()
		if stopped {
			return errStopped()
		}
		if failing != nil {
			return failing
		}
		r.wake.Notify()
		select {
		case <-current.done:
			if current.err != nil {
				return current.err
			}
		case <-late.C:
			return fault.New(fault.Unavailable, notCounted)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// dailyTimeout is how long a request waits for the store of daily caps, as while a database hangs.
const dailyTimeout = time.Second

const notCounted = "the daily limit cannot be counted at the moment: try again"

// canDecide reports whether d can decide a request of today, or is closed.
func (d *Daily) canDecide(today int64) bool {
	w := d.load()
	return w == closedDaily || w.isOf(today) && (w.left() > 0 || w.used() >= d.cap())
}

// enqueue adds d to the queue of caps that ask for a range. It neither blocks nor
// allocates.
func (r *Reserver) enqueue(d *Daily) {
	if d.queued.Swap(true) {
		return
	}
	for {
		head := r.queue.Load()
		d.next = head
		if r.queue.CompareAndSwap(head, d) {
			break
		}
	}
	r.wake.Notify()
}

// takeQueue empties the queue and appends its caps to into.
func (r *Reserver) takeQueue(into []*Daily) []*Daily {
	for d := r.queue.Swap(nil); d != nil; {
		next := d.next
		d.queued.Store(false)
		into = append(into, d)
		d = next
	}
	return into
}
