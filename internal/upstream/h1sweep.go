package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// tickTime is the unit of time of pools of plain connections.
const tickTime = 500 * time.Millisecond

// h1State is the part of Pools that concerns pools of plain connections.
type h1State struct {
	pools  sync.Map     // Origin to *H1Pool
	tick   atomic.Int64 // ticks since the start
	shards int          // number of shards of each pool, a power of two

	local sync.Pool     // of *int, a shard's index; roughly one for each core
	next  atomic.Uint32 // index of the next shard to assign

	sweeper service.Group
}

func (p *h1State) init() {
	p.shards = 1 << bits.Len(uint(runtime.GOMAXPROCS(0)-1))
}

// shard returns the index of the shard of the current core. Only a sync.Pool knows the current core
// and returns its content at the cost of a few instructions.
func (p *h1State) shard() int {
	n, ok := p.local.Get().(*int)
	if !ok {
		n = new(int)
		*n = int(p.next.Add(1)) & (p.shards - 1)
	}
	i := *n
	p.local.Put(n)
	return i
}

// Plain returns the pool of plain connections of o and creates it on first use. It fails
// unless o's scheme is http. The caller may keep the pool.
func (p *Pools) Plain(o Origin) (*H1Pool, error) {
	if found, ok := p.h1State.pools.Load(o); ok {
		return found.(*H1Pool), nil
	}
	p.making.Lock()
	defer p.making.Unlock()
	if found, ok := p.h1State.pools.Load(o); ok {
		return found.(*H1Pool), nil
	}
	if o.Scheme != "http" {
		return nil, fmt.Errorf("connect to %s: plain connections need scheme http, not %q", o.Host, o.Scheme)
	}
	if err := p.makeRoom(&o); err != nil {
		return nil, err
	}
	pool := newH1Pool(p, o, "80")
	if !p.startSweeping() {
		pool.draining.Store(true)
	}
	p.h1State.pools.Store(o, pool)
	p.drainPreviousOrigin(o)
	return pool, nil
}

// startSweeping starts the sweeper, unless it is running, and reports false after Close.
// The caller holds p.making.
func (p *Pools) startSweeping() bool {
	return !errors.Is(p.sweeper.Start(p.sweepAll), service.ErrStopped)
}

// sweepAll sweeps at every tick until Close. If sweeps are late, the clock catches up.
func (p *Pools) sweepAll(ctx context.Context) {
	start, first := time.Now(), p.tick.Load()
	service.Every(ctx, tickTime, func(context.Context) {
		if missed := first + int64(time.Since(start)/tickTime) - p.tick.Load() - 1; missed > 0 {
			p.tick.Add(missed)
		}
		p.sweep()
	})
}

// sweep advances the clock of the pools by one tick, closes connections that were idle for
// too long, and forgets unused pools.
func (p *Pools) sweep() {
	now := p.tick.Add(1)
	p.h1State.pools.Range(func(_, value any) bool {
		pool := value.(*H1Pool)
		pool.sweep(now)
		if pool.queue.waiting() {
			pool.reclaimIdle()
		}
		if pool.open.Load() == 0 && now-pool.used.Load() > int64(p.cfg.Retain/tickTime) {
			p.making.Lock()
			p.forget(pool)
			p.making.Unlock()
		}
		return true
	})
	p.sweepMultiplexed(now)
	p.making.Lock()
	defer p.making.Unlock()
	p.weights.sweep()
}

// forget removes a pool from p and drains it. The caller holds p.making.
func (p *Pools) forget(pool *H1Pool) {
	known := p.h1State.pools.CompareAndDelete(pool.origin, pool)
	pool.forgotten.Store(true)
	pool.draining.Store(true)
	pool.CloseIdle()
	if known {
		p.weights.leave(&pool.origin, func() bool { return pool.open.Load() == 0 })
	}
}

// closePlain stops the sweeper and closes idle connections, now and as they become idle.
func (p *Pools) closePlain() {
	// A pool that is created after this point closes its connections instead of keeping them idle.
	_ = p.sweeper.Stop(context.Background()) // without a bound there is no error
	p.making.Lock()
	defer p.making.Unlock()
	p.h1State.pools.Range(func(_, value any) bool {
		pool := value.(*H1Pool)
		pool.draining.Store(true)
		pool.CloseIdle()
		return true
	})
}

// sweep closes idle connections that were idle for too long, are too old, or exceed idleConns.
func (p *H1Pool) sweep(now int64) {
	spare := idleConns
	p.eachIdle(func(c *H1Conn) bool {
		if spare--; spare >= 0 && now-c.last < p.idle && !c.old() {
			return false
		}
		return true
	})
}

// CloseIdle closes every idle connection.
func (p *H1Pool) CloseIdle() { p.eachIdle(func(*H1Conn) bool { return true }) }

// eachIdle calls end with each idle connection and closes those for which it returns true.
func (p *H1Pool) eachIdle(end func(*H1Conn) bool) {
	for i := range p.shards {
		p.shards[i].filter(end)
	}
	p.serveWaiters()
}

func (s *shard) filter(end func(*H1Conn) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.conns[:0]
	for _, c := range s.conns {
		switch {
		case c.state.CompareAndSwap(connIdle, connBusy): // now its fields may be read
			if end(c) {
				c.part()
				c.close()
				continue
			}
			c.state.Store(connIdle)
		case c.state.Load() == connClosed:
			continue
		}
		kept = append(kept, c)
	}
	clear(s.conns[len(kept):])
	s.conns = kept
	s.n.Store(int32(len(kept)))
}

// H1Stats is the statistics of an H1Pool.
type H1Stats struct {
	Open     int   // connections, including dials
	Idle     int   // of Open
	Waiting  int   // requests that wait for a connection
	Dials    int64 // attempts to connect so far
	Failures int64 // of Dials
}

// Stats returns the pool's statistics.
func (p *H1Pool) Stats() H1Stats {
	s := H1Stats{
		Open: int(p.open.Load()), Waiting: int(p.queue.n.Load()),
		Dials: p.dials.Load(), Failures: p.failures.Load(),
	}
	for i := range p.shards {
		sh := &p.shards[i]
		sh.mu.Lock()
		for _, c := range sh.conns {
			if c.state.Load() == connIdle {
				s.Idle++
			}
		}
		sh.mu.Unlock()
	}
	return s
}

// EachPlain calls f with the origin and statistics of every pool of plain connections.
func (p *Pools) EachPlain(f func(Origin, H1Stats)) {
	p.h1State.pools.Range(func(_, value any) bool {
		pool := value.(*H1Pool)
		f(pool.origin, pool.Stats())
		return true
	})
}
