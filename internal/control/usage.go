package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// DefaultUsagePeriod is how often the times of last use are written.
const DefaultUsagePeriod = time.Second

// usageBatch is how many keys one transaction writes. Other changes wait only for one such
// transaction.
const usageBatch = 500

// UsageConfig configures a Usage. Store and Drain are required.
type UsageConfig struct {
	Store Store
	// Drain calls f for each key that authenticated a request since the last call, with the
	// time of its last request.
	Drain  func(f func(keyID string, at time.Time))
	Period time.Duration // 0 means DefaultUsagePeriod
	Log    *slog.Logger
}

// Usage writes the times at which keys were last used to the store, in batches.
type Usage struct {
	cfg      UsageConfig
	flushing periodic
	group    service.Group
	pending  map[string]time.Time // drained but not yet written
}

// NewUsage returns a Usage, which does nothing until Start.
func NewUsage(cfg UsageConfig) (*Usage, error) {
	if cfg.Store == nil {
		return nil, errors.New("control: UsageConfig.Store is required")
	}
	if cfg.Drain == nil {
		return nil, errors.New("control: UsageConfig.Drain is required")
	}
	cfg.Period = cmp.Or(cfg.Period, DefaultUsagePeriod)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	u := &Usage{cfg: cfg, pending: map[string]time.Time{}}
	u.flushing = periodic{name: "writing times of last use", period: cfg.Period, step: u.flush, log: cfg.Log}
	return u, nil
}

// Start starts writing, until Stop.
func (u *Usage) Start(context.Context) error {
	if err := u.group.Start(u.flushing.run); err != nil {
		return fmt.Errorf("start writing the last use of keys: %w", err)
	}
	return nil
}

// Stop writes everything that was used until now, and stops. It returns an error if that fails,
// or if ctx ends first.
func (u *Usage) Stop(ctx context.Context) error {
	if err := u.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop writing the last use of keys: %w", err)
	}
	return u.flush(ctx)
}

// flush writes the drained times. What it cannot write stays for the next call.
func (u *Usage) flush(ctx context.Context) error {
	u.cfg.Drain(func(keyID string, at time.Time) {
		at = at.UTC().Truncate(time.Microsecond)
		if at.After(u.pending[keyID]) {
			u.pending[keyID] = at
		}
	})
	for ids := range slices.Chunk(slices.Collect(maps.Keys(u.pending)), usageBatch) {
		batch := make(map[string]time.Time, len(ids))
		for _, id := range ids {
			batch[id] = u.pending[id]
		}
		err := u.cfg.Store.Update(ctx, func(tx Tx) error { return tx.TouchKeys(ctx, batch) })
		if err != nil {
			return fmt.Errorf("write the last use of %d keys: %w", len(u.pending), err)
		}
		for _, id := range ids {
			delete(u.pending, id)
		}
	}
	return nil
}
