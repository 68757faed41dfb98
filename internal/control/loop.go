package control

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// loop repeats a step on a goroutine that it owns, from Start to Stop. A step
// that fails is logged and tried again a period later.
type loop struct {
	name   string
	period time.Duration
	step   func(ctx context.Context) error
	log    *slog.Logger

	cancel context.CancelFunc
	done   chan struct{}
}

// start begins with a step at once. It must be called once.
func (l *loop) start() {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.done = cancel, make(chan struct{})
	go func() {
		defer close(l.done)
		l.run(ctx)
	}()
}

func (l *loop) run(ctx context.Context) {
	ticker := time.NewTicker(l.period)
	defer ticker.Stop()
	for ctx.Err() == nil { // a tick may be there as well
		if err := l.step(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn(l.name+" failed; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// stop ends the loop and waits for the step that runs. It returns ctx's error
// if that takes too long. Without a start it does nothing.
func (l *loop) stop(ctx context.Context) error {
	if l.cancel == nil {
		return nil
	}
	l.cancel()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New(l.name+" did not stop in time"), ctx.Err())
	}
}

func logOr(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
