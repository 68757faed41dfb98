package upstream

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// waitQueue holds those who wait for a connection of a pool at its limit, the first
// to come first.
type waitQueue struct {
	n       atomic.Int32 // of waiters, for who does not hold mu
	mu      sync.Mutex
	waiters []chan *H1Conn // each has room for one
}

func (q *waitQueue) waiting() bool { return q.n.Load() > 0 }

// waitForSlot returns a connection, or nil if the caller may make one: it is counted.
func (p *H1Pool) waitForSlot(ctx context.Context, deadline time.Time) (*H1Conn, error) {
	got := make(chan *H1Conn, 1)
	p.queue.mu.Lock()
	p.queue.waiters = append(p.queue.waiters, got)
	p.queue.n.Add(1)
	p.queue.mu.Unlock()
	p.serveWaiters() // something may have come free while nobody waited
	p.reclaimIdle()

	var late <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case c := <-got:
		return c, nil
	case <-ctx.Done():
		p.stopWaiting(got)
		return nil, ctx.Err()
	case <-late:
		p.stopWaiting(got)
		return nil, &fault.Error{Code: fault.UpstreamTimeout, Message: "all connections that this gateway may have to its upstream service were in use until the time was up"}
	}
}

// stopWaiting takes a waiter out of the queue. What it has been given meanwhile goes
// to the next.
func (p *H1Pool) stopWaiting(got chan *H1Conn) {
	p.queue.mu.Lock()
	i := slices.Index(p.queue.waiters, got)
	if i >= 0 {
		p.queue.waiters = slices.Delete(p.queue.waiters, i, i+1)
		p.queue.n.Add(-1)
	}
	p.queue.mu.Unlock()
	if i >= 0 {
		return
	}
	if c := <-got; c != nil {
		c.Release()
		return
	}
	p.open.Add(-1)
	p.serveWaiters()
}

// serveWaiters gives what is free to those who wait. It is called after anything has
// become free.
func (p *H1Pool) serveWaiters() {
	if !p.queue.waiting() {
		return
	}
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	for len(p.queue.waiters) > 0 {
		c := p.pop()
		if c == nil && !p.takeSlot() {
			return
		}
		p.queue.waiters[0] <- c
		p.queue.waiters[0] = nil
		p.queue.waiters = p.queue.waiters[1:]
		p.queue.n.Add(-1)
	}
}
