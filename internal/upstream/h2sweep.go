package upstream

import (
	"errors"
	"sync"
	"time"
)

// errSilent is the cause of a connection that ended because its server did not reply to a
// PING.
var errSilent = errors.New("upstream: the server has been silent and does not reply to a PING")

// h2State is the part of Pools that concerns pools of HTTP/2 connections.
type h2State struct {
	pools sync.Map // Origin to *H2Pool
	start time.Time
}

// sweepMultiplexed is the part of sweep for pools of HTTP/2 connections.
func (p *Pools) sweepMultiplexed(now int64) {
	p.h2State.pools.Range(func(_, value any) bool {
		pool := value.(*H2Pool)
		pool.sweep(now)
		if now-pool.used.Load() > int64(p.cfg.Retain/tickTime) && pool.unused() {
			p.making.Lock()
			p.forgetMultiplexed(pool)
			p.making.Unlock()
		}
		return true
	})
}

// forgetMultiplexed removes a pool from p and drains it. The caller holds p.making.
func (p *Pools) forgetMultiplexed(pool *H2Pool) {
	known := p.h2State.pools.CompareAndDelete(pool.origin, pool)
	pool.forgotten.Store(true)
	pool.own.forgotten.Store(true)
	pool.session.end()
	pool.drain()
	if known {
		p.weights.leave(&pool.origin, pool.unused)
	}
}

// closeMultiplexed closes idle connections, now and as they become idle.
func (p *Pools) closeMultiplexed() {
	p.making.Lock()
	defer p.making.Unlock()
	p.h2State.pools.Range(func(_, value any) bool {
		value.(*H2Pool).drain()
		return true
	})
}

// drain closes idle connections now, and others at the end of their exchanges.
func (p *H2Pool) drain() {
	p.draining.Store(true)
	p.own.draining.Store(true)
	p.closeIdle()
}

// unused reports whether there is no connection, not even one in the making.
func (p *H2Pool) unused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) == 0 && p.cancel == nil && len(p.queue) == 0 && p.own.open.Load() == 0
}

// sweep ends connections that are silent, too old or idle for too long, and makes sure that
// waiters are served.
func (p *H2Pool) sweep(now int64) {
	p.own.sweep(now)
	if p.own.queue.waiting() {
		p.own.reclaimIdle()
	}
	for _, c := range p.all() {
		if c.slot.old() {
			p.mu.Lock()
			p.retire(c)
			p.mu.Unlock()
		}
		c.sweep(now)
	}
	if p.waiting() {
		p.serve()
	}
}

// A connection that is in use but silent for pingAfter is pinged, and closed if the reply takes
// longer than pingTimeout.
const (
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second

	pingAfterTicks   = int64(pingAfter / tickTime)
	pingTimeoutTicks = int64(pingTimeout / tickTime)
	// While a server sends nothing of a response, it may treat more PINGs than this as abuse: gRPC
	// servers allow one in five minutes.
	pingAgainTicks = int64((5*time.Minute + 10*time.Second) / tickTime)
)

// stuckTicks is how long the window of a connection may stay used up before new requests go to
// other connections. Uploads that the server does not read can use up the window that all requests
// of a connection share.
const stuckTicks = int64(2 * time.Second / tickTime)

// stuck detects a connection whose window stays used up.
type stuck struct {
	since   int64 // tick; 0 if the window is open
	refills uint64
}

// at records the state of the window, and reports whether the connection is stuck.
func (s *stuck) at(now int64, refills uint64, exhausted bool) bool {
	switch {
	case !exhausted:
		s.since = 0
	case s.since == 0 || s.refills != refills:
		s.since, s.refills = now, refills
	}
	return s.since != 0 && now-s.since >= stuckTicks
}

func (c *h2Conn) sweep(now int64) {
	c.mu.Lock()
	refills, exhausted := c.http.Exhausted()
	isStuck := c.stuck.at(now, refills, exhausted) && !c.retired
	idle := c.first == nil
	unneeded := idle && (c.retired || now-c.idleSince >= c.pool.idle || c.pool.unwanted(c))
	silent := !idle && (c.pinged != 0 && now-c.pinged >= pingTimeoutTicks || c.slot.hasVanished())
	after := pingAfterTicks
	if c.backoff {
		after = pingAgainTicks
	}
	if !idle && c.pinged == 0 && now-c.heard >= after {
		c.pinged, c.backoff = now, true
		c.http.Ping([8]byte{})
		c.flush()
	}
	c.mu.Unlock()
	if isStuck {
		c.pool.mu.Lock()
		c.pool.retire(c)
		c.pool.mu.Unlock()
	}
	switch {
	case unneeded:
		c.closeIdle()
	case silent:
		c.shut(errSilent, true)
	}
}

// H2Stats is the statistics of an H2Pool.
type H2Stats struct {
	Open     int   // connections
	Live     int   // in Open: connections that take new requests
	Streams  int   // exchanges under way
	Waiting  int   // requests that wait for a stream
	Dials    int64 // attempts to connect so far
	Failures int64 // of Dials
}

// Stats returns the pool's statistics.
func (p *H2Pool) Stats() H2Stats {
	s := H2Stats{
		Live: len(*p.live.Load()), Waiting: int(p.waiters.Load()),
		Dials: p.dials.Load(), Failures: p.failures.Load(),
	}
	for _, c := range p.all() {
		s.Open++
		s.Streams += int(c.load.Load())
	}
	return s
}

// EachMultiplexed calls f with the origin and statistics of every pool of HTTP/2 connections.
func (p *Pools) EachMultiplexed(f func(Origin, H2Stats)) {
	p.h2State.pools.Range(func(_, value any) bool {
		pool := value.(*H2Pool)
		f(pool.origin, pool.Stats())
		return true
	})
}
