package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/cluster/lease"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/snapshot"
)

// ViewStore is the leases of all nodes.
type ViewStore interface {
	// LeaseView reads all leases in one read, and which of the positions the change log does not
	// contain.
	LeaseView(ctx context.Context, about []lease.Position) (*lease.View, error)
	// EndLease ends a lease if the grant is its newest, as Row.End says, and reports whether it was.
	EndLease(ctx context.Context, s lease.Seen) (bool, error)
	// SettleServer records that the time of a lease has passed on the server of a View.
	SettleServer(ctx context.Context, server string) error
}

// The times of the poller.
const (
	fastPoll    = 2 * time.Millisecond // the first wait between two reads while somebody waits
	slowPoll    = 25 * time.Millisecond
	idlePoll    = time.Second // at most, while nobody waits
	viewTimeout = 2 * time.Second
	// failingWithin is how long reads may fail before the waiters get an error.
	failingWithin = 5 * time.Second
)

// WaiterConfig configures a Waiter. All fields are required except Log.
type WaiterConfig struct {
	Store ViewStore
	TTL   time.Duration // of this node's lease
	Clock func() lease.Instant
	Log   *slog.Logger
}

// Waiter tells when a change is in force on every node. One goroutine reads the leases for all who wait.
// It is safe for concurrent use.
type Waiter struct {
	cfg   WaiterConfig
	group service.Group
	wake  service.Signal

	mu      sync.Mutex
	waiting map[*await]struct{}
	view    *lease.View // the last one, for Nodes

	watch *lease.Watch // of the goroutine
}

// await is one call that waits.
type await struct {
	at       lease.Position
	glance   bool // takes the first figures
	done     chan struct{}
	have, of int
	err      error
}

// NewWaiter returns a Waiter.
func NewWaiter(cfg WaiterConfig) *Waiter {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Waiter{cfg: cfg, wake: service.NewSignal(), waiting: map[*await]struct{}{}, watch: lease.NewWatch(cfg.TTL, cfg.Clock)}
}

// Start begins to watch the leases.
func (w *Waiter) Start(context.Context) error {
	if err := w.group.Start(w.run); err != nil {
		return fmt.Errorf("start watching the leases: %w", err)
	}
	return nil
}

// Stop ends what Start began, and every wait.
func (w *Waiter) Stop(ctx context.Context) error {
	if err := w.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop watching the leases: %w", err)
	}
	return nil
}

// Await implements control.Everywhere.
func (w *Waiter) Await(ctx context.Context, p snapshot.Position) error {
	_, err := w.await(ctx, &await{at: lease.Position(p)})
	return err
}

// Acknowledged implements control.Everywhere.
func (w *Waiter) Acknowledged(ctx context.Context, p snapshot.Position) (have, of int, err error) {
	a, err := w.await(ctx, &await{at: lease.Position(p), glance: true})
	return a.have, a.of, err
}

func (w *Waiter) await(ctx context.Context, a *await) (*await, error) {
	a.done = make(chan struct{})
	w.mu.Lock()
	w.waiting[a] = struct{}{}
	w.mu.Unlock()
	w.wake.Notify()
	select {
	case <-a.done:
		return a, a.err
	case <-ctx.Done():
		w.mu.Lock()
		delete(w.waiting, a)
		w.mu.Unlock()
		return &await{}, ctx.Err()
	}
}

// Nodes returns the number of nodes in each state, as of the last read.
func (w *Waiter) Nodes() map[lease.State]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := map[lease.State]int{lease.Live: 0, lease.Expired: 0, lease.Stopped: 0}
	if w.view != nil {
		for i := range w.view.Rows {
			n[w.view.Rows[i].State]++
		}
	}
	return n
}

func (w *Waiter) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var p poller
	for {
		select {
		case <-ctx.Done():
			w.finishAll(fault.New(fault.Unavailable, "the server is shutting down"))
			return
		case <-timer.C:
		case <-w.wake:
			p.pause = 0
		}
		w.poll(ctx, &p)
		timer.Reset(w.pause(&p))
	}
}

// poller is the state of the goroutine between two reads.
type poller struct {
	pause   time.Duration
	failing time.Time // since when reads fail; zero if they do not
}

// pause returns the time until the next read. It grows while somebody waits.
func (w *Waiter) pause(p *poller) time.Duration {
	w.mu.Lock()
	idle := len(w.waiting) == 0
	w.mu.Unlock()
	if idle {
		p.pause = 0
		return jittered(min(w.cfg.TTL/10, idlePoll))
	}
	p.pause = min(max(p.pause*3/2, fastPoll), slowPoll)
	return jittered(p.pause)
}

// jittered returns between half of d and one and a half.
func jittered(d time.Duration) time.Duration { return d/2 + time.Duration(rand.Int64N(int64(d)+1)) }

// poll reads the leases, ends leases that ran out, and answers the waiters.
func (w *Waiter) poll(ctx context.Context, p *poller) {
	w.mu.Lock()
	waiting := make([]*await, 0, len(w.waiting))
	about := make([]lease.Position, 0, len(w.waiting))
	for a := range w.waiting {
		waiting = append(waiting, a)
		about = append(about, a.at)
	}
	w.mu.Unlock()
	reading, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	v, err := w.cfg.Store.LeaseView(reading, about)
	if err != nil {
		w.failed(ctx, p, err)
		return
	}
	if !p.failing.IsZero() {
		w.cfg.Log.Info("the leases can be read again")
		p.failing = time.Time{}
	}
	w.watch.Saw(v)
	w.mu.Lock()
	w.view = v
	w.mu.Unlock()
	for _, a := range waiting {
		have, of, ok := w.watch.Confirmed(a.at)
		switch {
		case slices.Contains(v.Unknown, a.at):
			w.finish(a, control.ErrChangeLost)
		case ok || a.glance:
			a.have, a.of = have, of
			w.finish(a, nil)
		}
	}
	w.write(ctx, v)
}

// write ends the leases that ran out, and records the server once the time of a lease has passed on it.
func (w *Waiter) write(ctx context.Context, v *lease.View) {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	var errs []error
	for _, s := range w.watch.RanOut() {
		ended, err := w.cfg.Store.EndLease(ctx, s)
		errs = append(errs, err)
		if ended {
			w.cfg.Log.Warn("a lease has run out: changes no longer wait for the node", "node", s.Node)
		}
	}
	if w.watch.Settled() {
		errs = append(errs, w.cfg.Store.SettleServer(ctx, v.Server))
	}
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		w.cfg.Log.Warn("a lease that ran out could not be ended; trying again", "error", err)
	}
}

// failed notes that the leases could not be read. No waiter gets an answer before they are.
func (w *Waiter) failed(ctx context.Context, p *poller, err error) {
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	if p.failing.IsZero() {
		w.cfg.Log.Warn("the leases of the nodes cannot be read; trying again", "error", err)
		p.failing = now
	}
	if now.Sub(p.failing) >= failingWithin {
		w.finishAll(fmt.Errorf("read the leases of the nodes: %w", err))
	}
}

func (w *Waiter) finishAll(err error) {
	w.mu.Lock()
	all := make([]*await, 0, len(w.waiting))
	for a := range w.waiting {
		all = append(all, a)
	}
	w.mu.Unlock()
	for _, a := range all {
		w.finish(a, err)
	}
}

// finish answers a, unless its caller has given up.
func (w *Waiter) finish(a *await, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, still := w.waiting[a]; still {
		delete(w.waiting, a)
		a.err = err
		close(a.done)
	}
}
