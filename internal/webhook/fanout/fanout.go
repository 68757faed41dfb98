// Package fanout writes the deliveries of events that have more deliveries than the transaction of the event may
// write.
//
// With each such event the store records which endpoints were subscribed to it at that moment. A Service writes the
// deliveries later, in batches, so that other changes wait for at most one batch. The position within the event moves
// on in the transaction that writes a batch, so each endpoint gets exactly one delivery, whatever crashes and however
// many nodes work on it.
package fanout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// Store is a store with events to fan out.
type Store interface {
	// FanOut writes up to limit rows in one transaction: deliveries of the oldest events of the first account behind
	// after that has events to fan out. It returns that account, "" if there is none, and the number of rows. The
	// deliveries are created, and due, at now, or when their event was created if that is later.
	FanOut(ctx context.Context, after string, now time.Time, limit int) (accountID string, written int, err error)
}

const (
	// Batch is the most rows of a transaction. A delivery is in eight indexes of the store.
	Batch = 200
	// mostRest is the longest pause after a transaction. It is as long as the transaction took, so that other
	// changes have half of the time of the store.
	mostRest = 50 * time.Millisecond
	// retryStore is how long it waits after the store failed.
	retryStore = time.Second
	// DefaultPoll is the default of Config.Poll.
	DefaultPoll = time.Second
)

// Config configures a Service. Store is required.
type Config struct {
	Store Store
	// Wake is called when there are new deliveries. It must not block. Nil does nothing.
	Wake func()
	// Poll is how often the Service checks for events that other processes have recorded or left unfinished. Zero
	// means DefaultPoll.
	Poll time.Duration
	Now  func() time.Time // nil means time.Now
	Log  *slog.Logger     // nil discards
}

// Service fans out events, one account after the other. It is safe for concurrent use.
type Service struct {
	cfg   Config
	wake  service.Signal
	group service.Group
}

// New returns a Service that does nothing until Start.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil {
		return nil, errors.New("webhook/fanout: Config.Store is required")
	}
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	cfg.Poll = cmp.Or(cfg.Poll, DefaultPoll)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Service{cfg: cfg, wake: service.NewSignal()}, nil
}

// Start starts the Service, which runs until Stop.
func (s *Service) Start(context.Context) error {
	if err := s.group.Start(s.run); err != nil {
		return fmt.Errorf("start fanning out events: %w", err)
	}
	return nil
}

// Stop waits for a running transaction. It returns an error if ctx ends first. Another node, or the next start, fans
// out the rest.
func (s *Service) Stop(ctx context.Context) error {
	if err := s.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop fanning out events: %w", err)
	}
	return nil
}

// Wake makes the Service look for events now, and the sender for deliveries that are written already. It never
// blocks.
func (s *Service) Wake() {
	s.cfg.Wake()
	s.wake.Notify()
}

func (s *Service) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var r round
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		wait, err := s.step(ctx, &r)
		if err != nil && ctx.Err() == nil && !failing {
			s.cfg.Log.Warn("cannot write webhook deliveries; trying again", "error", err)
		}
		failing = err != nil
		timer.Reset(wait)
	}
}

// round is one transaction for each account that has events to fan out.
type round struct {
	after string // the account of the last transaction; "" at the beginning
	wrote bool   // a transaction of the round has written something
}

// step carries out one transaction of a round. It returns how long to wait before the next.
func (s *Service) step(ctx context.Context, r *round) (wait time.Duration, err error) {
	begun := s.cfg.Now()
	account, written, err := s.cfg.Store.FanOut(ctx, r.after, begun, Batch)
	switch {
	case err != nil:
		return retryStore, err
	case account == "":
		if !r.wrote { // there is nothing to do, or other nodes do it
			wait = s.cfg.Poll
		}
		*r = round{}
		return wait, nil
	}
	r.after = account
	if written == 0 {
		return 0, nil
	}
	r.wrote = true
	s.cfg.Wake()
	return min(s.cfg.Now().Sub(begun), mostRest), nil
}
