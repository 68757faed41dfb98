package upstream

import (
	"context"
	"errors"
	"slices"
	"time"
)

// h2Waiter is a request that waits for a stream. Whoever serves it opens the stream for it, so that
// no newcomer can take the slot.
//
//	  Open: no room, or others wait
//	     │
//	     ▼
//	┌────────┐  serve, when a stream ends or a connection is made  ┌────────────────────┐
//	│        ├────────────────────────────────────────────────────►│ stream open        │
//	│ queued │  the dial failed, and there is no connection        ├────────────────────┤
//	│        ├────────────────────────────────────────────────────►│ failed             │
//	│        │  deadline, or ctx ends                              ├────────────────────┤
//	│        ├────────────────────────────────────────────────────►│ gave up: leave     │
//	└────────┘                                                     └────────────────────┘
type h2Waiter struct {
	stream  *H2Stream
	request H2Request
	done    chan error // has a buffer of one
}

func (p *H2Pool) waiting() bool { return p.waiters.Load() > 0 }

// wait waits in the queue.
func (p *H2Pool) wait(ctx context.Context, deadline time.Time, s *H2Stream, r H2Request) error {
	w := &h2Waiter{stream: s, request: r, done: make(chan error, 1)}
	p.mu.Lock()
	p.queue = append(p.queue, w)
	p.waiters.Add(1)
	p.mu.Unlock()
	p.serve() // a stream may have become free before this waiter was queued

	var timeout <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		if p.leave(w) {
			return ctx.Err()
		}
	case <-timeout:
		connecting, greeting := p.connecting()
		if p.leave(w) {
			switch {
			case connecting && greeting:
				return TimedOut(At(p.origin.Host, errHeadTimeout))
			case connecting:
				return TimedOut(At(p.origin.Host, errConnectTimeout))
			default:
				return noFreeConnection()
			}
		}
	}
	return <-w.done
}

// connecting reports whether the pool is making its only connection, and greeting whether that
// connection waits for the server's settings.
func (p *H2Pool) connecting() (connecting, greeting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cancel != nil && len(p.conns) == 0, p.greeting.Load()
}

// leave removes a waiter from the queue, and reports false if it was served meanwhile. A dial
// that nobody waits for any more is given up.
func (p *H2Pool) leave(w *h2Waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.queue, w)
	if i < 0 {
		return false
	}
	p.queue = slices.Delete(p.queue, i, i+1)
	p.waiters.Add(-1)
	if len(p.queue) == 0 && p.cancel != nil {
		p.cancel()
	}
	return true
}

// serve opens streams for the waiters, in FIFO order, and connects for the rest. It must be
// called whenever a stream may have become free, by a caller that holds no lock of the pool.
func (p *H2Pool) serve() {
	p.mu.Lock()
	p.serveLocked()
	live := *p.live.Load()
	p.mu.Unlock()
	for _, c := range live {
		c.Flush()
	}
}

func (p *H2Pool) serveLocked() {
	for len(p.queue) > 0 {
		w := p.queue[0]
		c, err := p.open(w.stream, &w.request)
		if c == nil && err == nil {
			p.grow()
			return
		}
		p.answer(err)
	}
	// A dial that waits for a slot would make others close their connections.
	if p.cancel != nil && p.own.limit > 0 {
		p.cancel()
	}
}

// answer removes the first waiter. p.mu is held.
func (p *H2Pool) answer(err error) {
	p.queue[0].done <- err
	p.queue[0] = nil
	p.queue = p.queue[1:]
	p.waiters.Add(-1)
}

// grow starts to connect, unless a dial is under way or there are enough connections. p.mu is held.
func (p *H2Pool) grow() {
	for _, c := range *p.live.Load() {
		if c.spent() {
			p.retire(c)
		}
	}
	if p.cancel != nil || len(*p.live.Load()) >= p.most {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go p.dial(ctx)
}

// dial makes a connection and serves the waiters. If it fails and there is no other connection, the waiters fail too.
func (p *H2Pool) dial(ctx context.Context) {
	p.dials.Add(1)
	c, err := p.connect(ctx)
	p.mu.Lock()
	abandoned := ctx.Err() != nil
	p.cancel()
	p.cancel = nil
	p.greeting.Store(false)
	switch {
	case err == nil:
		p.http1.Store(0)
		p.add(c)
		p.serveLocked()
	case abandoned:
		p.serveLocked() // others may wait since
	default:
		p.failures.Add(1)
		none := len(*p.live.Load()) == 0
		if none && errors.Is(err, ErrNoHTTP2) {
			p.http1.Store(p.owner.tick.Load() + max(1, int64(lifetime(p.maxAge)/tickTime)))
		}
		for none && len(p.queue) > 0 {
			p.answer(err)
		}
	}
	p.mu.Unlock()
	if c != nil {
		c.Flush()
		c.ended()
	}
}
