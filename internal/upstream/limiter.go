package upstream

import (
	"cmp"
	"context"
	"net"
	"sync/atomic"
	"time"
)

// limiter bounds the connections of a Pool: each holds a slot of an H1Pool. For scheme
// http that is the pool of the HTTP/1.1 engine, so that the engine and the Pool share
// one limit; for other schemes it is an H1Pool that only lends its slots.
//
// Waiters are served in FIFO order across the engine and both transports of the Pool. A
// transport would keep its connections for as long as it has work, so while anyone
// waits, a connection closes at the end of its exchange. An HTTP/2 connection closes
// once all its exchanges have ended. (http.HTTP2Config.StrictMaxConcurrentRequests
// would let requests wait for single streams instead, but in Go 1.26 such requests
// block each other forever.)
//
// The methods that accept a nil limiter treat it as no limit.
type limiter struct {
	owner *Pools
	pool  *Pool
	own   *H1Pool                // lends the slots; nil for scheme http
	last  atomic.Pointer[H1Pool] // for scheme http: lent the last slot
}

// newLimiter returns the limiter of p, or nil if its connections are not limited.
func newLimiter(owner *Pools, p *Pool) *limiter {
	if cmp.Or(p.origin.MaxConns, owner.cfg.MaxConns) == 0 {
		return nil
	}
	l := &limiter{owner: owner, pool: p}
	switch p.origin.Scheme {
	case "https":
		l.own = newH1Pool(owner, p.origin, "443")
	case "h2c":
		l.own = newH1Pool(owner, p.origin, "80")
	}
	if l.own != nil {
		l.own.sharedBy.Store(p)
	}
	return l
}

// slots returns the H1Pool that lends the slots.
func (l *limiter) slots() (*H1Pool, error) {
	if l.own != nil {
		return l.own, nil
	}
	if last := l.last.Load(); last != nil && l.pool.draining.Load() {
		return last, nil // a new H1Pool would drain the gateway's current origin
	}
	slots, err := l.owner.Plain(l.pool.origin)
	if err != nil {
		return nil, err
	}
	if l.last.Load() != slots {
		l.last.Store(slots)
	}
	if slots.sharedBy.Load() != l.pool {
		slots.sharedBy.Store(l.pool)
	}
	return slots, nil
}

// dial takes a slot and connects. It is a function for http.Transport.DialContext.
func (l *limiter) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	for {
		slots, err := l.slots()
		if err != nil {
			return nil, err
		}
		slots.used.Store(l.owner.tick.Load())
		c, err := slots.Connect(ctx, time.Time{})
		if err != nil {
			return nil, err
		}
		if !slots.forgotten.Load() || l.pool.draining.Load() {
			return l.pool.watched(&slotConn{c.conn, c})
		}
		c.Discard()
	}
}

// contended reports whether connections must close at the end of their exchange: a
// request waits for a slot, or the gateway now has another origin.
func (l *limiter) contended() bool {
	if l == nil {
		return false
	}
	if l.pool.draining.Load() {
		return true
	}
	slots := l.own
	if slots == nil {
		found, ok := l.owner.h1State.pools.Load(l.pool.origin)
		if !ok {
			return false
		}
		slots = found.(*H1Pool)
	}
	return slots.queue.waiting()
}

// yieldIdle frees slots for waiters: if there are any, it closes the pool's idle
// connections and stops dials that no request needs any more.
func (l *limiter) yieldIdle() {
	if l.contended() {
		l.pool.closeIdle()
	}
}

// inUse reports whether connections hold slots that only l knows of, so that l must be
// kept.
func (l *limiter) inUse() bool { return l != nil && l.own != nil && l.own.open.Load() > 0 }

// reclaimIdle closes the idle connections of the Pool and the H2Pool that take slots from p,
// if any.
func (p *H1Pool) reclaimIdle() {
	if pool := p.sharedBy.Load(); pool != nil {
		pool.closeIdle()
	}
	if pool := p.multiplexed.Load(); pool != nil {
		pool.closeIdle()
	}
}

// slotConn is a connection that frees its slot when it is closed.
type slotConn struct {
	*net.TCPConn
	slot *H1Conn
}

// Close implements net.Conn.
func (c *slotConn) Close() error {
	c.slot.Discard()
	return nil
}
