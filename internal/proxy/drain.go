package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Drain counts the connections of an engine and ends them in a shutdown. The zero value is ready
// for use. It is safe for concurrent use.
type Drain struct {
	announced, begun atomic.Bool

	mu     sync.Mutex
	active int
	idle   chan struct{} // closed when the last connection has ended; made by Run
}

// Announce says that a shutdown is going to begin: from now on each response asks the client to use
// another connection for its next request. New connections are still accepted.
func (d *Drain) Announce() { d.announced.Store(true) }

// Announced reports whether a shutdown was announced, or has begun.
func (d *Drain) Announced() bool { return d.announced.Load() }

// Begun reports whether the shutdown has begun.
func (d *Drain) Begun() bool { return d.begun.Load() }

// Enter counts a connection. It reports false if the shutdown has begun.
func (d *Drain) Enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begun.Load() {
		return false
	}
	d.active++
	return true
}

// Leave ends what Enter began.
func (d *Drain) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.active--; d.active == 0 && d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
}

// Run begins the shutdown and waits until all connections have ended. It calls announce once,
// to make them end by themselves. When ctx ends it calls cut, again at each tick, because a
// connection may be between two phases; first is set for the first call.
func (d *Drain) Run(ctx context.Context, announce func(), cut func(first bool)) {
	d.mu.Lock()
	d.announced.Store(true)
	d.begun.Store(true)
	if d.active > 0 && d.idle == nil {
		d.idle = make(chan struct{})
	}
	idle := d.idle
	d.mu.Unlock()
	if idle == nil {
		return
	}
	announce()
	select {
	case <-idle:
		return
	case <-ctx.Done():
	}
	again := time.NewTicker(Tick)
	defer again.Stop()
	for first := true; ; first = false {
		cut(first)
		select {
		case <-idle:
			return
		case <-again.C:
		}
	}
}
