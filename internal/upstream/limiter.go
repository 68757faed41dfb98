package upstream

import (
	"cmp"
	"context"
	"net"
	"sync/atomic"
	"time"
)

// limiter bounds the connections of a Pool: each holds a slot of the H1Pool of the same origin, so
// that the engines and the Pool share one limit.
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
	last  atomic.Pointer[H1Pool] // lent the last slot
}

// newLimiter returns the limiter of p, or nil if its connections are not limited.
func newLimiter(owner *Pools, p *Pool) *limiter {
	if cmp.Or(p.origin.MaxConns, owner.cfg.MaxConns) == 0 {
		return nil
	}
	return &limiter{owner: owner, pool: p}
}

// slots returns the H1Pool that lends the slots.
func (l *limiter) slots() (*H1Pool, error) {
	if last := l.last.Load(); last != nil && l.pool.draining.Load() {
		return last, nil // a new H1Pool would drain the gateway's current origin
	}
	slots, err := l.owner.slotsOf(l.pool.origin)
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

// slotsOf returns the H1Pool of an origin of any scheme.
func (p *Pools) slotsOf(o Origin) (*H1Pool, error) {
	if o.Scheme == "http" {
		return p.Plain(o)
	}
	pool, err := p.Multiplexed(o)
	if err != nil {
		return nil, err
	}
	return pool.own, nil
}

// dial takes a slot and connects. It is a function for http.Transport.DialContext.
func (l *limiter) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	for {
		slots, err := l.slots()
		if err != nil {
			return nil, err
		}
		slots.used.Store(l.owner.tick.Load())
		c, err := slots.connectNew(ctx, time.Time{}, false)
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
	slots := l.last.Load()
	return slots != nil && slots.queue.waiting()
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
func (l *limiter) inUse() bool { return false }

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
