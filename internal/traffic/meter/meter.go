// Package meter counts completed requests and writes the counts to the store (contract,
// section 7, traffic).
//
//	records ──Take──► window ───100 ms────► Store: fresh chunks of minutes
//	                                          │ merged, a minute after their end
//	                                          ▼
//	                                        hours ──► days
//
// The store counts every request once in each part (traffic.Part), and for each tier once in it or
// in the tiers below it: chunks are marked in the transaction that adds them to the next tier.
package meter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/service"
	"github.com/keygate/keygate/internal/traffic"
)

// The defaults of Config, and the bounds of the memory. A cell takes about 200 bytes in
// all.
const (
	DefaultPeriod = 100 * time.Millisecond

	flushCells    = 1 << 17 // starts an early flush
	flushArrivals = 1 << 20
	flushCharges  = 1 << 18
	maxCells      = 1 << 20 // further records are lost; accounts share them, as the next two, by the rule of fairslots.Shares
	maxCharges    = 1 << 21 // further records are lost; one takes 40 bytes
	flushSent     = 1 << 15
	maxSent       = 1 << 16   // further destinations are counted together; one takes about 1.5 KB
	maxSubjects   = 1 << 16   // further subjects of tokens are counted together; one takes at most 1 KB
	maxUses       = 1 << 18   // requests of further identities are missing from usage records; one takes about 500 bytes
	maxPending    = 256 << 20 // bytes of bodies that the store has not taken
)

// Config configures a Meter. Store is required.
type Config struct {
	Store traffic.Store
	Now   func() time.Time // nil means time.Now
	// Retention returns the time by which records are past their retention, or the zero time
	// if that is not known yet; see retention.Clock. Nil means Now.
	Retention func() time.Time
	// Settle is called before each write: it returns when quotas have what the requests until now have used. Nil means that
	// there are none.
	Settle func(ctx context.Context) error
	Period time.Duration // between two flushes: a crash may lose the requests of this time; 0 means DefaultPeriod
	Log    *slog.Logger  // nil discards
}

// Meter is an accesslog.Sink. It is safe for concurrent use.
type Meter struct {
	cfg Config

	mu     sync.Mutex // held only briefly, since Take waits for it
	active *window
	spare  *window // nil while it is encoded

	// flushing is a mutex for writing, as a channel so that a wait for it can end
	// with a context.
	flushing chan struct{}
	pending  []traffic.Chunk   // not stored yet; guarded by flushing, like the next three
	size     int               // size of their bodies in bytes
	batches  accesslog.Batches // of what is written
	sending  int               // number of the first pending chunks in the open batch

	lost       atomic.Uint64
	unbilled   atomic.Uint64 // requests that usage records lack, although reports have them
	complained atomic.Int64  // Unix nanoseconds of the last log line about a failure

	// Semaphores of the expensive reads, so that these never use all readers of the
	// store. A simulation may use one core for seconds.
	reporting  chan struct{}
	simulating chan struct{}

	wake  service.Signal // holds a token if a flush is to begin early
	group service.Group
}

var _ accesslog.Sink = (*Meter)(nil)

// New returns a Meter that counts at once and writes after Start.
func New(cfg Config) (*Meter, error) {
	if cfg.Store == nil {
		return nil, errors.New("traffic/meter: Config.Store is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Retention == nil {
		cfg.Retention = cfg.Now
	}
	cfg.Period = cmp.Or(cfg.Period, DefaultPeriod)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Meter{
		cfg: cfg, active: newWindow(), spare: newWindow(), flushing: make(chan struct{}, 1), batches: accesslog.NewBatches(),
		reporting: make(chan struct{}, 2), simulating: make(chan struct{}, 1), wake: service.NewSignal(),
	}, nil
}

// Take implements accesslog.Sink.
func (m *Meter) Take(batch []accesslog.Entry) {
	m.mu.Lock()
	w := m.active
	for i := range batch {
		r := &batch[i].Record
		if r.Part == accesslog.Started || r.Account == [16]byte{} {
			continue
		}
		if !w.cellShares.MayTake(r.Account, 1) || !w.chargeShares.MayTake(r.Account, 1) {
			m.lost.Add(1)
			continue
		}
		if !w.add(&batch[i]) {
			m.unbilled.Add(1)
		}
	}
	full := len(w.cells) >= flushCells || w.useShares.Taken() >= flushCells || len(w.sent) >= flushSent || len(w.subjects) >= flushSent || len(w.arrivals) >= flushArrivals || len(w.charges) >= flushCharges
	m.mu.Unlock()
	if full {
		m.wake.Notify()
	}
}

// Lost returns the number of requests that are missing from reports because the store did
// not take them in time.
func (m *Meter) Lost() uint64 { return m.lost.Load() }

// LostUsage returns the number of requests, at most, that are missing from usage records because the store did not take
// them in time.
func (m *Meter) LostUsage() uint64 { return m.lost.Load() + m.unbilled.Load() }

// AddLost counts requests that the store had kept to add them later, and has lost.
func (m *Meter) AddLost(requests int) { m.lost.Add(uint64(requests)) }

// Unwritten returns the number of requests that are in memory and not in the store. If a write
// hangs, it does not wait, and returns 0.
func (m *Meter) Unwritten() (n int64) {
	select {
	case m.flushing <- struct{}{}:
	default:
		return 0
	}
	defer m.unlock()
	m.collect()
	for i := range m.pending {
		if c := &m.pending[i]; c.Part == traffic.Keys { // this part has every request once
			n += c.Requests()
		}
	}
	return n
}

// Start begins to write, until Stop.
func (m *Meter) Start(context.Context) error {
	err := m.group.Start(m.run, func(ctx context.Context) {
		service.Every(ctx, maintenancePeriod, func(ctx context.Context) { m.try(ctx, "merging traffic counts", m.Maintain) })
	})
	if err != nil {
		return fmt.Errorf("start the traffic meter: %w", err)
	}
	return nil
}

// Stop writes what was taken and ends. No record may be taken after it. It returns
// an error if the store fails or ctx ends first.
func (m *Meter) Stop(ctx context.Context) error {
	if err := m.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the traffic meter: %w", err)
	}
	return m.Sync(ctx)
}

// complainEvery is the least time between two log lines about failures of the store.
const complainEvery = time.Minute

// maintenancePeriod is the time between two calls of Maintain.
const maintenancePeriod = 20 * time.Second

// run flushes every Period, and early when it is woken.
func (m *Meter) run(ctx context.Context) {
	flush := time.NewTicker(m.cfg.Period)
	defer flush.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-flush.C:
			m.try(ctx, "writing traffic counts", m.Sync)
		case <-m.wake:
			m.try(ctx, "writing traffic counts", m.Sync)
		}
	}
}

func (m *Meter) try(ctx context.Context, what string, f func(context.Context) error) {
	err := f(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	now := time.Now().UnixNano()
	if last := m.complained.Load(); now-last >= int64(complainEvery) && m.complained.CompareAndSwap(last, now) {
		m.cfg.Log.Warn(what+" failed; it is retried", "error", err, "lost", m.Lost())
	}
}

// Report returns the report of an account for q from the stored counts. Call Sync before.
// At most two reports run at a time; others wait.
func (m *Meter) Report(ctx context.Context, accountID string, q traffic.Query) ([]traffic.Row, error) {
	return inSlot(ctx, m.reporting, func() ([]traffic.Row, error) {
		return traffic.Report(ctx, m.cfg.Store, accountID, q, m.cfg.Now())
	})
}

// Top returns the groups of q with the greatest numbers, as Report does for all of them.
func (m *Meter) Top(ctx context.Context, accountID string, q traffic.Query, by traffic.Order, limit int) ([]traffic.Total, error) {
	return inSlot(ctx, m.reporting, func() ([]traffic.Total, error) {
		return traffic.Top(ctx, m.cfg.Store, accountID, q, by, limit, m.cfg.Now())
	})
}

// inSlot runs f while it holds one of the slots, for which it waits until ctx ends.
func inSlot[T any](ctx context.Context, slots chan struct{}, f func() (T, error)) (result T, err error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		return f()
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// Simulate simulates a limit on the stored requests of an account's gateway of the last 24
// hours. Call Sync before. One simulation runs at a time; others wait.
func (m *Meter) Simulate(ctx context.Context, accountID string, w traffic.What) (*traffic.Simulated, error) {
	return inSlot(ctx, m.simulating, func() (*traffic.Simulated, error) {
		return traffic.Simulate(ctx, m.cfg.Store, accountID, w, m.cfg.Now())
	})
}

// SimulatePlan simulates the limits of a plan as Simulate does one limit, in its turn.
func (m *Meter) SimulatePlan(ctx context.Context, accountID string, w traffic.PlanWhat) (*traffic.SimulatedPlan, error) {
	return inSlot(ctx, m.simulating, func() (*traffic.SimulatedPlan, error) {
		return traffic.SimulatePlan(ctx, m.cfg.Store, accountID, w, m.cfg.Now())
	})
}

// Effect replays what a change of a gateway of an account would have done to the stored requests
// of the last 24 hours. Call Sync before. It shares the turn of Simulate.
func (m *Meter) Effect(ctx context.Context, accountID string, c traffic.Change) (*traffic.Effect, error) {
	return inSlot(ctx, m.simulating, func() (*traffic.Effect, error) {
		return traffic.ReplayEffect(ctx, m.cfg.Store, accountID, c, m.cfg.Now())
	})
}
