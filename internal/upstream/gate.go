package upstream

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// gate bounds the connections of a Pool. Each has a place among those of an H1Pool:
// for scheme http that of the engine of HTTP/1.1, so that both together keep to
// the bound; for others one that holds nothing else.
//
// Who waits for a place gets it in his turn, whichever transport he came by. A
// transport would keep its places while it has work, so as long as somebody waits
// connections end with their exchange. Over HTTP/2 that is with all of theirs:
// http.HTTP2Config.StrictMaxConcurrentRequests would let requests wait for single
// streams, but those that wait block each other for good (Go 1.26).
type gate struct {
	owner *Pools
	pool  *Pool
	own   *H1Pool                // nil for scheme http
	last  atomic.Pointer[H1Pool] // for scheme http where places were last
}

// newGate returns the gate of p, or nil if nothing bounds its connections.
func newGate(owner *Pools, p *Pool) *gate {
	if or(p.origin.MaxConns, owner.cfg.MaxConns) == 0 {
		return nil
	}
	g := &gate{owner: owner, pool: p}
	switch p.origin.Scheme {
	case "https":
		g.own = newH1Pool(owner, p.origin, "443")
	case "h2c":
		g.own = newH1Pool(owner, p.origin, "80")
	}
	if g.own != nil {
		g.own.lodger.Store(p)
	}
	return g
}

func (g *gate) places() (*H1Pool, error) {
	if g.own != nil {
		return g.own, nil
	}
	if last := g.last.Load(); last != nil && g.pool.over.Load() {
		return last, nil // another would take the gateway back to this origin
	}
	places, err := g.owner.Plain(g.pool.origin)
	if err != nil {
		return nil, err
	}
	if g.last.Load() != places {
		g.last.Store(places)
	}
	if places.lodger.Load() != g.pool {
		places.lodger.Store(g.pool)
	}
	return places, nil
}

// dial is a function for http.Transport.DialContext.
func (g *gate) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	for {
		places, err := g.places()
		if err != nil {
			return nil, err
		}
		places.used.Store(g.owner.tick.Load())
		c, err := places.Connect(ctx, time.Time{})
		if err != nil {
			return nil, err
		}
		if !places.retired.Load() || g.pool.over.Load() {
			return newConn(&lodging{c.conn, c}), nil
		}
		c.Discard()
	}
}

// crowded reports whether connections are to end with their exchanges: somebody
// waits for a place, or the gateway has another origin.
func (g *gate) crowded() bool {
	if g == nil {
		return false
	}
	if g.pool.over.Load() {
		return true
	}
	places := g.own
	if places == nil {
		found, ok := g.owner.plain.pools.Load(g.pool.origin)
		if !ok {
			return false
		}
		places = found.(*H1Pool)
	}
	return places.queue.waiting()
}

// relieve gives places to those who wait for one: what is idle is closed, and
// what is being made for nobody is given up.
func (g *gate) relieve() {
	if g.crowded() {
		g.pool.closeIdle()
	}
}

// busy reports whether connections have places that would be forgotten with g.
func (g *gate) busy() bool { return g != nil && g.own != nil && g.own.open.Load() > 0 }

// reclaim closes what is idle of a Pool whose connections have places in p.
func (p *H1Pool) reclaim() {
	if l := p.lodger.Load(); l != nil {
		l.closeIdle()
	}
}

// lodging is a connection that gives its place back when it is closed.
type lodging struct {
	*net.TCPConn
	place *H1Conn
}

// Close implements net.Conn.
func (l *lodging) Close() error {
	l.place.Discard()
	return nil
}
