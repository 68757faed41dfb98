// Package retention tells the time by which old records are removed (contract, section 7).
//
// A wall clock that is wrong for a moment must not cause anything to be removed, because that
// cannot be undone. So retention does not go by the wall clock alone, nor by the times of records,
// since records that are written meanwhile have the wrong time too. It goes by what the wall clock
// has said throughout the last hour in which the server ran:
//
//	wall clock   ─────────────┐ 800 days ahead for 4 s ┌──────────
//	                          └────────────────────────┘
//	Clock.Now    the least that any reading of the last hour says about the present
//
// A reading of an hour ago says that it is an hour later now, by the monotonic clock. If no period in which the
// wall clock is ahead lasts an hour, one of the readings that span an hour was not ahead, so the least of them
// is not ahead either. (Readings are a minute apart: a clock that is right for less than a minute, between two
// such periods, counts as ahead.) The readings, and how long the server has run, are stored, so that this holds
// across restarts: time in which the server does not run does not count.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/service"
)

const (
	// Confirm is how long the server must have run since a reading before the reading counts: if
	// the wall clock is ahead for less than this, nothing is removed.
	Confirm = time.Hour
	// tick is the time between two readings, which are also stored then.
	tick = time.Minute
	// settledWithin is how far the wall clock may be ahead of the last reading at a start.
	settledWithin = time.Hour
)

// Reading is the time that the wall clock showed when the server had run for Run altogether.
type Reading struct {
	Run  time.Duration `json:"run"`
	Wall int64         `json:"wall"` // microseconds since 1970
}

// State is the readings of the last hour in which the server ran, the oldest first.
type State struct {
	Readings []Reading `json:"readings"`
}

// Store keeps the state across restarts.
type Store interface {
	// LoadRetention returns the state that was saved last, or an empty one.
	LoadRetention(ctx context.Context) (State, error)
	SaveRetention(ctx context.Context, s State) error
}

// Config configures a Clock. Store is required.
type Config struct {
	Store Store
	Now   func() time.Time // the wall clock; nil means time.Now
	// Running returns the monotonic time since any fixed point. Nil means the time since New.
	Running func() time.Duration
	Log     *slog.Logger // nil discards
}

// Clock tells the time by which retention goes. It is safe for concurrent use.
type Clock struct {
	cfg Config

	mu    sync.Mutex
	state State
	began time.Duration // of Config.Running, when the server had run for base
	base  time.Duration
	late  bool // the wall clock was far ahead of the last reading when the server started

	group service.Group
}

// New returns a Clock that knows no time until Start.
func New(cfg Config) (*Clock, error) {
	if cfg.Store == nil {
		return nil, errors.New("retention: Config.Store is required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Running == nil {
		start := time.Now()
		cfg.Running = func() time.Duration { return time.Since(start) }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Clock{cfg: cfg}, nil
}

// Start loads the readings and takes one each minute until Stop.
func (c *Clock) Start(ctx context.Context) error {
	if err := c.load(ctx); err != nil {
		return fmt.Errorf("start the clock of retention: %w", err)
	}
	err := c.group.Start(func(ctx context.Context) {
		service.Every(ctx, tick, func(ctx context.Context) {
			if err := c.Tick(ctx); err != nil && ctx.Err() == nil {
				c.cfg.Log.Warn("the clock of retention could not be stored; it is retried, and old records stay meanwhile if the server restarts", "error", err)
			}
		})
	})
	if err != nil {
		return fmt.Errorf("start the clock of retention: %w", err)
	}
	return nil
}

// Stop ends the readings and stores the last one. A failure of the store is not an error: it loses
// less than a minute, which only delays retention.
func (c *Clock) Stop(ctx context.Context) error {
	if err := c.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop the clock of retention: %w", err)
	}
	if err := c.Tick(ctx); err != nil {
		c.cfg.Log.Debug("the last reading of the clock of retention was not stored", "error", err)
	}
	return nil
}

func (c *Clock) load(ctx context.Context) error {
	s, err := c.cfg.Store.LoadRetention(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.began, c.base = s, c.cfg.Running(), 0
	if n := len(s.Readings); n > 0 {
		c.base = s.Readings[n-1].Run
		c.late = c.cfg.Now().Sub(time.UnixMicro(s.Readings[n-1].Wall)) > settledWithin
	}
	c.read()
	return nil
}

// Settled reports whether something that has expired by the wall clock may be treated as expired. If the
// wall clock is far ahead at a start of the last time at which the server ran, then either the server was
// away for long, or the clock is not right yet; Settled then reports true only after the server has run for
// a minute.
func (c *Clock) Settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.late || c.cfg.Running()-c.began >= tick
}

// Tick takes a reading and stores it.
func (c *Clock) Tick(ctx context.Context) error {
	c.mu.Lock()
	c.read()
	s := State{Readings: append([]Reading(nil), c.state.Readings...)}
	c.mu.Unlock()
	return c.cfg.Store.SaveRetention(ctx, s)
}

// running returns how long the server has run altogether, less what was not stored at a crash.
func (c *Clock) running() time.Duration { return c.base + c.cfg.Running() - c.began }

// read adds a reading, and drops those that are not needed to span an hour.
func (c *Clock) read() {
	now := Reading{Run: c.running(), Wall: c.cfg.Now().UnixMicro()}
	c.state.Readings = append(c.state.Readings, now)
	all, first := c.state.Readings, 0
	for first+1 < len(all) && now.Run-all[first+1].Run >= Confirm {
		first++
	}
	c.state.Readings = slices.Delete(all, 0, first)
}

// Now returns the time by which records are past their retention. It is never after the true time
// if no period in which the wall clock is ahead of it lasts an hour. Until the server has run for
// an hour altogether, it is the zero time, and nothing is past its retention. With a correct wall
// clock it is the time of that clock; it lags behind while the last hour has readings from before a
// time in which the server did not run.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, run := c.state.Readings, c.running()
	if len(all) == 0 || run-all[0].Run < Confirm {
		return time.Time{}
	}
	least := c.cfg.Now().UnixMicro()
	for _, r := range all {
		least = min(least, r.Wall+(run-r.Run).Microseconds())
	}
	return time.UnixMicro(least).UTC()
}
