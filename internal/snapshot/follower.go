package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/service"
)

// Config is what a Follower is made of.
type Config struct {
	// Source is the store. Required.
	Source Source
	// Reserver keeps the daily caps. Required.
	Reserver *ratelimit.Reserver
	// OpenSealed opens the sealed value of an upstream header or of a client's key.
	// Required if a gateway has one.
	OpenSealed func(sealed []byte) ([]byte, error)
	// GatewayDomain is the base domain of the hostnames given to gateways.
	// Empty is localhost.
	GatewayDomain string
	// DefaultGlobalLimit is the global limit of gateways that set none. Zero is
	// 1000000/s.
	DefaultGlobalLimit ratelimit.Rate
	// Now reads the clocks by which limits are decided; the Admitter must share
	// it. Required.
	Now func() ratelimit.Instant
	// PollInterval is the wait between two looks at the change log in Run.
	// Zero is 250 ms.
	PollInterval time.Duration
	// Log receives what Run cannot return. Nil discards.
	Log *slog.Logger
}

// sweepInterval is the time between two sweeps of the per-key buckets.
const sweepInterval = time.Minute

// Follower is the data plane's view of the store, kept up to date. It is safe for
// concurrent use.
type Follower struct {
	cfg           Config
	defaultGlobal ratelimit.Params
	current       atomic.Pointer[Snapshot]
	caughtUp      atomic.Int64 // when the store was last read without failure, in nanoseconds of the monotonic clock
	used          *usedList

	// writing is held by whoever reads the store and publishes. It is a
	// channel so that waiting for it ends with a context.
	writing chan struct{}
	// The rest is under writing.
	loaded  bool
	seq     int64 // the last entry of the change log that is in force
	classes map[holderName]*keyClass
	rates   map[ratelimit.Params]*ratelimit.Params // shared by limits of the same rate
	failed  map[string]bool                        // gateways that did not compile

	group service.Group
}

// New returns a Follower that knows nothing until Load.
func New(cfg Config) (*Follower, error) {
	if cfg.Source == nil || cfg.Reserver == nil || cfg.Now == nil {
		return nil, errors.New("make the snapshot: Source, Ledger and Now are required")
	}
	cfg.GatewayDomain = cmp.Or(cfg.GatewayDomain, "localhost")
	cfg.PollInterval = cmp.Or(cfg.PollInterval, 250*time.Millisecond)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.DefaultGlobalLimit.IsZero() {
		cfg.DefaultGlobalLimit = ratelimit.Rate{Count: 1_000_000, Per: time.Second}
	}
	l := &Follower{
		cfg:           cfg,
		defaultGlobal: ratelimit.CompileRate(cfg.DefaultGlobalLimit),
		used:          newUsedList(),
		writing:       make(chan struct{}, 1),
		classes:       map[holderName]*keyClass{},
		rates:         map[ratelimit.Params]*ratelimit.Params{},
		failed:        map[string]bool{},
	}
	l.current.Store((&Snapshot{keys: &keyTable{}}).publishable(map[string]*account.Account{}, map[string]*Gateway{}))
	return l, nil
}

// Current returns what is in force now: one atomic load. Before Load it is
// empty. It is never nil.
func (f *Follower) Current() *Snapshot { return f.current.Load() }

// Start begins to catch up at every PollInterval, so that what another process wrote
// is in force soon, and to drop idle per-key buckets. Failures are logged and tried
// again.
func (f *Follower) Start(context.Context) error {
	if err := f.group.Start(f.run); err != nil {
		return fmt.Errorf("start following the store: %w", err)
	}
	return nil
}

// Stop ends what Start began. The Follower stays usable.
func (f *Follower) Stop(ctx context.Context) error {
	if err := f.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop following the store: %w", err)
	}
	return nil
}

func (f *Follower) run(ctx context.Context) {
	poll, sweep := time.NewTicker(f.cfg.PollInterval), time.NewTicker(sweepInterval)
	defer poll.Stop()
	defer sweep.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			f.Current().sweep(f.cfg.Now())
		case <-poll.C:
			err := f.CatchUp(ctx)
			if ctx.Err() != nil {
				return
			}
			switch {
			case err != nil && !failing:
				f.cfg.Log.Error("the data plane cannot follow the store; it keeps what it has and tries again", "error", err)
			case err == nil && failing:
				f.cfg.Log.Info("the data plane follows the store again")
			}
			failing = err != nil
		}
	}
}

// Age returns the time since the store was last read to its end, whether there was
// something new or not: what is in force is no older. It is below PollInterval
// or little more while all is well.
func (f *Follower) Age() time.Duration {
	return time.Duration(f.cfg.Now().Mono - f.caughtUp.Load())
}

// DrainUsed calls f for each key that authenticated a request since the last
// call, with the time of its last use. Calls must not overlap.
func (f *Follower) DrainUsed(yield func(keyID string, at time.Time)) { f.used.drain(yield) }

// lock waits for the right to write.
func (f *Follower) lock(ctx context.Context) error {
	select {
	case f.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Follower) unlock() { <-f.writing }
