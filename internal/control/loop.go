package control

import (
	"context"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// loop repeats a step. A failed step is logged and retried a period later.
type loop struct {
	name   string
	period time.Duration
	step   func(ctx context.Context) error
	log    *slog.Logger
}

// run runs the step immediately, and then again a period after each run, until ctx is canceled.
func (l *loop) run(ctx context.Context) {
	l.try(ctx)
	service.Every(ctx, l.period, l.try)
}

func (l *loop) try(ctx context.Context) {
	if err := l.step(ctx); err != nil && ctx.Err() == nil {
		l.log.Warn("background work failed; retrying", "work", l.name, "error", err)
	}
}

func logOr(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
