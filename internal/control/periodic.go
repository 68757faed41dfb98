package control

import (
	"context"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// periodic repeats a step. A failed step is logged and retried a period later.
type periodic struct {
	name   string
	period time.Duration
	step   func(ctx context.Context) error
	log    *slog.Logger
}

// run runs the step immediately, and then again a period after each run, until ctx is canceled.
func (p *periodic) run(ctx context.Context) {
	p.try(ctx)
	service.Every(ctx, p.period, p.try)
}

func (p *periodic) try(ctx context.Context) {
	if err := p.step(ctx); err != nil && ctx.Err() == nil {
		p.log.Warn("background work failed; retrying", "work", p.name, "error", err)
	}
}
