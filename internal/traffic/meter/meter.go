// Package meter counts the requests that end, and writes the counts to the store
// (contract, section 7, traffic).
//
//	outcome ──Take──► window ──every 5 s──► Store: fresh chunks of minutes
//	                                          │ merged, a minute after their end
//	                                          ▼
//	                                        hours ──► days
//
// Every request stands in the store once in each part (traffic.Part), and once
// in each tier or below: what moves up is marked in the same transaction.
package meter

import (
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

// The defaults of Config, and the bounds of what is in memory. A cell with what
// belongs to it takes about 200 bytes.
const (
	DefaultPeriod = 5 * time.Second

	flushCells    = 1 << 17 // a flush begins early
	flushArrivals = 1 << 20
	mostCells     = 1 << 20   // beyond, records are lost
	mostPending   = 256 << 20 // bytes of bodies that the store does not take
)

// Config is what a Meter is made of. Store is required.
type Config struct {
	Store  traffic.Store
	Now    func() time.Time // nil is time.Now
	Period time.Duration    // between two flushes: what a crash may lose; 0 is DefaultPeriod
	Log    *slog.Logger     // nil discards
}

// Meter is an outcome.Sink. It is safe for concurrent use.
type Meter struct {
	cfg Config

	mu     sync.Mutex // held shortly: Take waits for it
	active *window
	spare  *window // nil while its content is made into chunks

	// flushing is held by whoever writes. It is a channel so that waiting for it
	// ends with a context.
	flushing chan struct{}
	pending  []traffic.Chunk // not stored yet; under flushing
	size     int             // of their bodies

	lost atomic.Uint64

	// Who reads much takes a place, so that other readers of the store never wait for
	// all of them. A simulation may take one core for seconds.
	reporting  chan struct{}
	simulating chan struct{}

	wake  chan struct{} // holds a token if a flush is to begin early
	group service.Group
}

var _ accesslog.Sink = (*Meter)(nil)

// New returns a Meter that counts at once and writes from Start on.
func New(cfg Config) (*Meter, error) {
	if cfg.Store == nil {
		return nil, errors.New("make the meter: Store is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Period == 0 {
		cfg.Period = DefaultPeriod
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Meter{cfg: cfg, active: newWindow(), spare: newWindow(), flushing: make(chan struct{}, 1), reporting: make(chan struct{}, 2), simulating: make(chan struct{}, 1), wake: make(chan struct{}, 1)}, nil
}

// Take implements outcome.Sink.
func (m *Meter) Take(batch []accesslog.Entry) {
	m.mu.Lock()
	w := m.active
	for i := range batch {
		r := &batch[i].Record
		if r.Part == accesslog.Started || r.Account == [16]byte{} {
			continue
		}
		if len(w.cells) >= mostCells {
			m.lost.Add(1)
			continue
		}
		w.add(r)
	}
	full := len(w.cells) >= flushCells || len(w.arrivals) >= flushArrivals
	m.mu.Unlock()
	if full {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
}

// Lost returns the number of requests that no report has, because the store did
// not take them in time.
func (m *Meter) Lost() uint64 { return m.lost.Load() }

// Start begins to write, until Stop.
func (m *Meter) Start(context.Context) error {
	err := m.group.Start(m.run, func(ctx context.Context) {
		service.Every(ctx, upkeepPeriod, func(ctx context.Context) { m.try(ctx, "merging traffic counts", m.Upkeep) })
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

// upkeepPeriod is the time between two runs of the upkeep.
const upkeepPeriod = 20 * time.Second

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
	if err := f(ctx); err != nil && ctx.Err() == nil {
		m.cfg.Log.Warn(what+" failed; it is tried again", "error", err)
	}
}

// Report answers a query of an account from what is stored: call Sync before. Two reports
// run at a time.
func (m *Meter) Report(ctx context.Context, accountID string, q traffic.Query) ([]traffic.Row, error) {
	leave, err := enter(ctx, m.reporting)
	if err != nil {
		return nil, err
	}
	defer leave()
	return traffic.Report(ctx, m.cfg.Store, accountID, q, m.cfg.Now())
}

// enter waits for a place until ctx ends.
func enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Simulate replays what came to the limits of an account's gateway within the last 24
// hours, as it is stored: call Sync before. One simulation runs at a time.
func (m *Meter) Simulate(ctx context.Context, accountID string, w traffic.What) (*traffic.Simulated, error) {
	leave, err := enter(ctx, m.simulating)
	if err != nil {
		return nil, err
	}
	defer leave()
	return traffic.Simulate(ctx, m.cfg.Store, accountID, w, m.cfg.Now())
}
