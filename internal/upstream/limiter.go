package upstream

import (
	"cmp"
	"context"
	"net"
	"sync/atomic"
	"time"
)

// limiter bounds the connections of a Pool. Each has a place among those of an H1Pool:
// for scheme http that of the engine of HTTP/1.1, so that both together keep to
// the bound; for others one that holds nothing else.
//
// Who waits for a place gets it in his turn, whichever transport he came by. A
// transport would keep its places while it has work, so as long as somebody waits
// connections end with their exchange. Over HTTP/2 that is with all of theirs:
// http.HTTP2Config.StrictMaxConcurrentRequests would let requests wait for single
// streams, but those that wait block each other for good (Go 1.26).
type limiter struct {
	owner *Pools
	pool  *Pool
	own   *H1Pool                // nil for scheme http
	last  atomic.Pointer[H1Pool] // for scheme http where places were last
}

// newLimiter returns the gate of p, or nil if nothing bounds its connections.
func newLimiter(owner *Pools, p *Pool) *limiter {
	if cmp.Or(p.origin.MaxConns, owner.cfg.MaxConns) == 0 {
		return nil
	}
	g := &limiter{owner: owner, pool: p}
	switch p.origin.Scheme {
	case "https":
		g.own = newH1Pool(owner, p.origin, "443")
	case "h2c":
		g.own = newH1Pool(owner, p.origin, "80")
	}
	if g.own != nil {
		g.own.sharedBy.Store(p)
	}
	return g
}

func (g *limiter) slots() (*H1Pool, error) {
	if g.own != nil {
		return g.own, nil
	}
	if last := g.last.Load(); last != nil && g.pool.draining.Load() {
		return last, nil // another would take the gateway back to this origin
	}
	places, err := g.owner.Plain(g.pool.origin)
	if err != nil {
		return nil, err
	}
	if g.last.Load() != places {
		g.last.Store(places)
	}
	if places.sharedBy.Load() != g.pool {
		places.sharedBy.Store(g.pool)
	}
	return places, nil
}

// dial is a function for http.Transport.DialContext.
func (g *limiter) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	for {
		places, err := g.slots()
		if err != nil {
			return nil, err
		}
		places.used.Store(g.owner.tick.Load())
		c, err := places.Connect(ctx, time.Time{})
		if err != nil {
			return nil, err
		}
		if !places.forgotten.Load() || g.pool.draining.Load() {
			return newConn(&slotConn{c.conn, c}), nil
		}
		c.Discard()
	}
}

// contended reports whether connections are to end with their exchanges: somebody
// waits for a place, or the gateway has another origin.
func (g *limiter) contended() bool {
	if g == nil {
		return false
	}
	if g.pool.draining.Load() {
		return true
	}
	places := g.own
	if places == nil {
		found, ok := g.owner.h1State.pools.Load(g.pool.origin)
		if !ok {
			return false
		}
		places = found.(*H1Pool)
	}
	return places.queue.waiting()
}

// yieldIdle gives places to those who wait for one: what is idle is closed, and
// what is being made for nobody is given up.
func (g *limiter) yieldIdle() {
	if g.contended() {
		g.pool.closeIdle()
	}
}

// inUse reports whether connections have places that would be forgotten with g.
func (g *limiter) inUse() bool { return g != nil && g.own != nil && g.own.open.Load() > 0 }

// reclaimIdle closes what is idle of a Pool whose connections have places in p.
func (p *H1Pool) reclaimIdle() {
	if l := p.sharedBy.Load(); l != nil {
		l.closeIdle()
	}
}

// slotConn is a connection that gives its place back when it is closed.
type slotConn struct {
	*net.TCPConn
	slot *H1Conn
}

// Close implements net.Conn.
func (l *slotConn) Close() error {
	l.slot.Discard()
	return nil
}
