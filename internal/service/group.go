package service

import (
	"context"
	"errors"
	"sync"
	"time"
)

var (
	// ErrStarted is returned by the second call of Group.Start.
	ErrStarted = errors.New("service was already started")
	// ErrStopped is returned by Group.Start after Stop.
	ErrStopped = errors.New("service was already stopped")
)

// Group owns the goroutines of one service. The zero value is ready to use. It is
// safe for concurrent use and must not be copied.
type Group struct {
	mu      sync.Mutex
	started bool
	stopped bool
	running int           // goroutines
	ended   chan struct{} // closed when stopped is set and running is 0
	ctx     context.Context
	stop    context.CancelFunc
	grace   context.Context
	cut     context.CancelFunc
}

// Start runs each of fs in a goroutine, as Go does. It returns ErrStarted if it
// was called before and ErrStopped after Stop; then it runs none of them.
func (g *Group) Start(fs ...func(ctx context.Context)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.stopped:
		return ErrStopped
	case g.started:
		return ErrStarted
	}
	g.started = true
	for _, f := range fs {
		g.goLocked(f)
	}
	return nil
}

// Go runs f in a goroutine that Stop waits for. It may be called before Start. After
// Stop it does not run f and returns false. f's context ends when Stop is called; f
// must return soon after.
func (g *Group) Go(f func(ctx context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.goLocked(f)
	return true
}

func (g *Group) goLocked(f func(ctx context.Context)) {
	g.initLocked()
	g.running++
	go func() {
		defer g.exit()
		f(g.ctx)
	}()
}

func (g *Group) exit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.checkLocked()
}

// checkLocked ends the wait of Stop when the last goroutine has ended.
func (g *Group) checkLocked() {
	if g.stopped && g.running == 0 {
		close(g.ended)
		g.cut()
	}
}

func (g *Group) initLocked() {
	if g.ended == nil {
		g.ended = make(chan struct{})
		g.grace, g.cut = context.WithCancel(context.Background())
		g.ctx, g.stop = context.WithCancel(g.grace)
	}
}

// Grace returns the context of work that Stop lets finish. It ends when the context
// of a call of Stop ends, or after Stop when every goroutine has ended.
func (g *Group) Grace() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.initLocked()
	return g.grace
}

// Stop ends the context of the goroutines and returns nil when all of them have
// ended. If ctx ends first, it ends Grace too and returns ctx.Err() at once. It may be called
// several times, also at the same time, and without Start; a further call waits for goroutines that
// still run.
func (g *Group) Stop(ctx context.Context) error {
	g.mu.Lock()
	g.initLocked()
	if !g.stopped {
		g.stopped = true
		g.stop()
		g.checkLocked()
	}
	g.mu.Unlock()

	select {
	case <-g.ended:
		return nil
	default:
	}
	select {
	case <-g.ended:
		return nil
	case <-ctx.Done():
		g.cut()
		return ctx.Err()
	}
}

// Every calls f periodically until ctx ends. The first call comes one period from
// now, each further call comes a period after the previous one has returned, so calls never
// overlap.
func Every(ctx context.Context, period time.Duration, f func(ctx context.Context)) {
	timer := time.NewTimer(period)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if ctx.Err() != nil { // both were ready
			return
		}
		f(ctx)
		timer.Reset(period)
	}
}
