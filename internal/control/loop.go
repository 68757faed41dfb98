package control

import (
	"context"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// loop repeats a step. One that fails is logged and tried again a period later.
type loop struct {
	name   string
	period time.Duration
	step   func(ctx context.Context) error
	log    *slog.Logger
}

// run calls the step at once, and then a period after each call, until ctx ends.
func (l *loop) run(ctx context.Context) {
	l.try(ctx)
	service.Every(ctx, l.period, l.try)
}

func (l *loop) try(ctx context.Context) {
	if err := l.step(ctx); err != nil && ctx.Err() == nil {
		l.log.Warn(l.name+" failed; it is tried again", "error", err)
	}
}

func logOr(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
