package upstream

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// waitQueue is the FIFO queue of the requests that wait for a connection of a pool at its
// limit.
//
//	Acquire, Connect: no slot is free, or others wait
//	     │
//	     ▼
//	┌────────┐  serveWaiters, with an idle connection  ┌──────────────────────┐
//	│        ├────────────────────────────────────────►│ owns the connection  │
//	│ queued │  serveWaiters, with a slot (nil)        ├──────────────────────┤
//	│        ├────────────────────────────────────────►│ dials in the slot    │
//	│        │  deadline, or ctx ends                  ├──────────────────────┤
//	│        ├────────────────────────────────────────►│ gave up: stopWaiting │
//	└────────┘                                         └──────────────────────┘
//
// A waiter is a channel with a buffer of one, so serveWaiters never blocks. If a waiter gives up at
// the same moment, what it was given goes to the next waiter. While requests wait, a newcomer joins
// the queue even if a slot is free.
type waitQueue struct {
	n       atomic.Int32 // len(waiters), to be read without mu
	mu      sync.Mutex
	waiters []chan *H1Conn // each has a buffer of one
}

func (q *waitQueue) waiting() bool { return q.n.Load() > 0 }

// waitForSlot waits in the queue. It returns an idle connection, or nil if the caller has
// been given a slot and must dial.
func (p *H1Pool) waitForSlot(ctx context.Context, deadline time.Time) (*H1Conn, error) {
	got := make(chan *H1Conn, 1)
	p.queue.mu.Lock()
	p.queue.waiters = append(p.queue.waiters, got)
	p.queue.n.Add(1)
	p.queue.mu.Unlock()
	p.serveWaiters() // a slot may have become free before this waiter was queued
	p.reclaimIdle()

	var timeout <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case c := <-got:
		return c, nil
	case <-ctx.Done():
		p.stopWaiting(got)
		return nil, ctx.Err()
	case <-timeout:
		p.stopWaiting(got)
		if p.limit == 0 { // for one of many dials to end
			return nil, TimedOut(At(cmp.Or(p.origin.Address, p.address), errConnectTimeout))
		}
		return nil, noFreeConnection()
	}
}

// stopWaiting removes a waiter from the queue. A connection or slot that it has been given
// meanwhile goes to the next waiter.
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
	p.freeSlot()
}

// reclaimIdle closes the idle connections of the H2Pool that takes slots from p, if any.
func (p *H1Pool) reclaimIdle() {
	if p.multiplexed != nil && p.limit > 0 {
		p.multiplexed.closeIdle()
	}
}

// serveWaiters gives idle connections and free slots to the waiters, in FIFO order. It must
// be called whenever a connection becomes idle or a slot becomes free.
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
