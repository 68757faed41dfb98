package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// Notifications are what the store notifies of.
type Notifications interface {
	// Wait returns when there may be a change. If ctx ends first, the error is ctx.Err().
	Wait(ctx context.Context) error
	// Probe reports whether notifications arrive at all.
	Probe(ctx context.Context) (bool, error)
}

// The times of Hints.
const (
	hintPoll  = 50 * time.Millisecond // without notifications
	hintRetry = time.Second
)

// Hints says when the change log may have a new entry. Whoever takes them must also poll: a hint may be
// lost.
type Hints struct {
	from  Notifications
	log   *slog.Logger
	hints service.Signal
	group service.Group
}

// NewHints returns Hints of what from notifies of. A nil log discards.
func NewHints(from Notifications, log *slog.Logger) *Hints {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Hints{from: from, log: log, hints: service.NewSignal()}
}

// C returns the channel of hints.
func (h *Hints) C() <-chan struct{} { return h.hints }

// Start finds out whether notifications arrive, and begins to wait for them. If they do not, Hints
// gives a hint many times a second instead, and the log says so.
func (h *Hints) Start(ctx context.Context) error {
	work, err := h.from.Probe(ctx)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("find out whether the database notifies of changes: %w", ctx.Err())
	case err != nil:
		h.log.Warn("could not find out whether the database notifies of changes", "error", err)
		work = true // and a connection that works again gives a hint
	case !work:
		h.log.Warn("the database's notifications do not arrive, as behind a pooler in transaction mode: the change log is polled instead; a --database-listen-url past the pooler makes changes arrive sooner")
	}
	run := h.listen
	if !work {
		run = h.tick
	}
	if err := h.group.Start(run); err != nil {
		return fmt.Errorf("start waiting for changes: %w", err)
	}
	return nil
}

// Stop ends what Start began.
func (h *Hints) Stop(ctx context.Context) error {
	if err := h.group.Stop(ctx); err != nil {
		return fmt.Errorf("stop waiting for changes: %w", err)
	}
	return nil
}

func (h *Hints) listen(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		err := h.from.Wait(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			if failing {
				h.log.Info("the database notifies of changes again")
			}
			failing = false
			h.hints.Notify()
		default:
			if !failing {
				h.log.Warn("the database does not notify of changes; trying again", "error", err)
			}
			failing = true
			service.Wait(ctx, jittered(hintRetry))
		}
	}
}

func (h *Hints) tick(ctx context.Context) {
	for ctx.Err() == nil {
		service.Wait(ctx, jittered(hintPoll))
		h.hints.Notify()
	}
}
