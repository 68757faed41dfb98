package resolve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/service"
)

// Bounds of a Resolver. The addresses of a name beside the first count for each target that wants it.
const (
	MaxRunning        = 32      // look-ups at a time
	MaxAccountRunning = 8       // of them, those of one account
	MaxAccountExtra   = 10_000  // addresses of the names of one account, beside the first of each
	MaxExtra          = 100_000 // addresses of all names, beside the first of each
	MaxQueries        = 100     // queries a second of one account, after as many at once
	lookupTimeout     = 5 * time.Second
)

func defaultLimits() limits {
	return limits{
		running: MaxRunning, accountRunning: MaxAccountRunning, extra: MaxExtra, accountExtra: MaxAccountExtra,
		interval: time.Second / MaxQueries, burst: MaxQueries,
	}
}

// Config configures a Resolver.
type Config struct {
	// Lookup looks names up. Nil means net.DefaultResolver.
	Lookup Lookup
	// Now returns the time since an arbitrary start, by a monotonic clock. Required.
	Now func() time.Duration
	// Changed is called with each upstream that wants a name of which something else is known than before. Found says what. It
	// is called by one goroutine at a time, without a lock. Required.
	Changed func(balance.Name)
}

// Resolver looks up names. It is safe for concurrent use.
type Resolver struct {
	cfg          Config
	wake         service.Signal
	group        service.Group
	good, failed atomic.Uint64

	mu       sync.Mutex
	schedule *schedule
}

// New returns a Resolver that has no names, and looks none up before Start. The only error is a missing field of cfg.
func New(cfg Config) (*Resolver, error) {
	if cfg.Now == nil || cfg.Changed == nil {
		return nil, errors.New("resolve: Config.Now and Config.Changed are required")
	}
	if cfg.Lookup == nil {
		cfg.Lookup = net.DefaultResolver
	}
	return &Resolver{cfg: cfg, wake: service.NewSignal(), schedule: newSchedule(defaultLimits())}, nil
}

// Want replaces the names that an upstream wants, each as often as it has targets with it, and how often they are looked up. None
// means that the upstream is gone. It does not block, and does not call Config.Changed.
func (r *Resolver) Want(owner balance.Name, refresh time.Duration, names []Name) {
	r.mu.Lock()
	r.schedule.want(r.cfg.Now(), owner, refresh, names)
	r.mu.Unlock()
	r.wake.Notify()
}

// Found returns what is known of a name of an account.
func (r *Resolver) Found(account string, n Name) Found {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.schedule.found(account, n)
}

// Lookups returns how many look-ups have succeeded and failed.
func (r *Resolver) Lookups() (good, failed uint64) { return r.good.Load(), r.failed.Load() }

// Start begins to look up names, until Stop. It does not wait for any.
func (r *Resolver) Start(context.Context) error {
	if err := r.group.Start(r.run); err != nil {
		return fmt.Errorf("start looking up names: %w", err)
	}
	return nil
}

// Stop ends the look-ups.
func (r *Resolver) Stop(ctx context.Context) error {
	if err := r.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop looking up names: %w", err)
	}
	return nil
}

func (r *Resolver) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		list, changed, wait := r.step()
		for _, e := range list {
			r.group.Go(func(ctx context.Context) { r.lookUp(ctx, e) })
		}
		for owner := range changed {
			r.cfg.Changed(owner)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// step returns the names to look up now, the upstreams to call Changed with, and the time until the next step.
func (r *Resolver) step() (list []*entry, changed map[balance.Name]struct{}, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	list = r.schedule.begin(now)
	if len(r.schedule.changed) > 0 {
		changed, r.schedule.changed = r.schedule.changed, map[balance.Name]struct{}{}
	}
	return list, changed, min(time.Hour, max(0, r.schedule.next()-now))
}

// lookUp looks a name up. One that Stop has ended changes nothing.
func (r *Resolver) lookUp(ctx context.Context, e *entry) {
	within, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	records, queries, err := lookUp(within, r.cfg.Lookup, e.name)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		records = nil
		r.failed.Add(1)
	} else {
		r.good.Add(1)
	}
	r.mu.Lock()
	r.schedule.end(r.cfg.Now(), e, records, queries)
	r.mu.Unlock()
	r.wake.Notify()
}
