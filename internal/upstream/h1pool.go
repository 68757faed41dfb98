package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
)

// H1Pool holds the connections of one origin over which it speaks HTTP/1.1, for callers that do
// their own reading and writing: plain connections for scheme http, and connections over TLS for
// scheme https, where it is part of an H2Pool. It is safe for concurrent use. A caller may keep it:
// if Pools has forgotten the pool because it was unused, it passes requests on to its successor.
//
// Every H2Pool has an H1Pool that makes its TCP connections. Each holds a slot of it.
//
// Idle connections are kept in LIFO stacks, one for each shard. A connection taken by a
// hint stays in its stack, so a client that returns to its last connection takes no lock.
//
// The field open counts connections, dials included. If limit is not zero, it bounds open:
// each connection then holds one of limit slots. Otherwise maxDials bounds dialing.
//
//	         takeSlot             dial succeeds
//	┌──────┐           ┌─────────┐             ┌──────┐  Release  ┌──────┐
//	│ free ├──────────►│ dialing ├────────────►│      ├──────────►│      │
//	│      │           └────┬────┘             │ busy │           │ idle │
//	│      │◄───────────────┘ dial fails       │      │◄──────────┤      │
//	│      │◄──────────────────────────────────┤      │   take    │      │
//	│      │  Discard                          └──────┘           │      │
//	│      │◄─────────────────────────────────────────────────────┤      │
//	└──────┘  idle for too long, too old, stale, or draining      └──────┘
//
// A request takes a slot or an idle connection for itself, or serveWaiters takes it for the
// first waiter. Every transition to free or idle is followed by serveWaiters. See waitQueue
// for the states of a waiter.
type H1Pool struct {
	owner   *Pools
	origin  Origin
	address string
	dialer  *net.Dialer
	tls     *tls.Config   // nil unless the scheme is https
	limit   int64         // of open; 0 means no limit
	idle    int64         // ticks for which a connection may be idle
	maxAge  time.Duration // of a connection that is used for a new request

	used      atomic.Int64 // tick of the last use
	spends    spender
	draining  atomic.Bool  // connections close instead of becoming idle
	forgotten atomic.Bool  // Pools no longer has it
	open      atomic.Int64 // connections, including dials: the slots that are taken
	dialing   atomic.Int64 // slots whose connections are in the making
	dials     atomic.Int64
	failures  atomic.Int64

	shards []shard // a power of two
	queue  waitQueue

	multiplexed *H2Pool // whose connections also hold slots of this pool, or nil
}

// newH1Pool returns a pool of o. port is the port to use if o.Host has none.
func newH1Pool(owner *Pools, o Origin, port string) *H1Pool {
	p := &H1Pool{
		owner:   owner,
		origin:  o,
		address: withPort(o.Host, port),
		limit:   int64(cmp.Or(o.MaxConns, owner.cfg.MaxConns)),
		idle:    max(2, int64(cmp.Or(o.IdleTimeout, owner.cfg.IdleTimeout)/tickTime)),
		maxAge:  cmp.Or(o.MaxConnAge, owner.cfg.MaxConnAge),
		dialer:  owner.cfg.dialer(&o),
		shards:  make([]shard, owner.shards),
	}
	p.spends.account = o.Account
	p.used.Store(owner.tick.Load())
	return p
}

// Take returns an idle connection, or nil if there is none or if requests wait for one. It
// does not block. It tries hint first, which may be nil, any connection that the caller owned
// before, or a connection of another pool.
func (p *H1Pool) Take(hint *H1Conn) *H1Conn {
	now := p.owner.tick.Load()
	if p.used.Load() != now {
		p.used.Store(now)
	}
	if p.queue.waiting() {
		return nil // waiters come first
	}
	if hint != nil && hint.pool == p && hint.take() {
		return hint
	}
	return p.pop()
}

// Acquire returns an idle connection as Take does, or a new one. If the limit of
// connections is reached, it waits in the FIFO queue. It gives up at the deadline, unless
// that is zero, and when ctx ends.
//
// The error is ctx.Err(), or a *fault.Error with the code UpstreamUnreachable if the
// connection failed, or UpstreamTimeout if it was neither established nor refused by the
// deadline, or no slot became free by then.
func (p *H1Pool) Acquire(ctx context.Context, deadline time.Time, hint *H1Conn) (*H1Conn, error) {
	if c := p.Take(hint); c != nil {
		return c, nil
	}
	if p.forgotten.Load() {
		next, err := p.successor()
		if err != nil {
			return nil, err
		}
		if next != p {
			return next.Acquire(ctx, deadline, hint)
		}
	}
	if p.queue.waiting() || !p.takeSlot() {
		c, err := p.waitForSlot(ctx, deadline)
		switch {
		case err != nil:
			return nil, err
		case c != nil:
			return p.given(ctx, deadline, c)
		}
	}
	return p.connect(ctx, deadline, p.tls != nil)
}

// successor returns the pool that Pools has for the origin now.
func (p *H1Pool) successor() (*H1Pool, error) {
	if p.tls == nil {
		return p.owner.Plain(p.origin)
	}
	next, err := p.owner.Multiplexed(p.origin)
	if err != nil {
		return nil, err
	}
	return next.own, nil
}

// given returns c, a connection that the caller has got from the queue. The caller may run long
// after it was given c, so if c has become stale or too old since, given returns a new connection
// instead.
func (p *H1Pool) given(ctx context.Context, deadline time.Time, c *H1Conn) (*H1Conn, error) {
	if !c.old() && !c.Stale() {
		return c, nil
	}
	return p.replace(ctx, deadline, c, p.tls != nil)
}

// replace closes c, which the caller owns, and returns a new connection.
func (p *H1Pool) replace(ctx context.Context, deadline time.Time, c *H1Conn, secure bool) (*H1Conn, error) {
	c.close() // frees a slot for the new connection
	if !p.takeSlot() {
		return p.connectNew(ctx, deadline, secure)
	}
	return p.connect(ctx, deadline, secure)
}

// Connect returns a new connection, even if others are idle. It waits and fails like
// Acquire. Use it to retry a request that failed on a reused connection.
func (p *H1Pool) Connect(ctx context.Context, deadline time.Time) (*H1Conn, error) {
	return p.connectNew(ctx, deadline, p.tls != nil)
}

// connectNew is Connect, without a TLS handshake unless secure is set.
func (p *H1Pool) connectNew(ctx context.Context, deadline time.Time, secure bool) (*H1Conn, error) {
	if p.queue.waiting() || !p.takeSlot() {
		c, err := p.waitForSlot(ctx, deadline)
		switch {
		case err != nil:
			return nil, err
		case c != nil:
			return p.replace(ctx, deadline, c, secure)
		}
	}
	return p.connect(ctx, deadline, secure)
}

// takeSlot takes a slot for a connection that is about to be dialed. It reports false if
// none is free.
func (p *H1Pool) takeSlot() bool {
	if p.dialing.Add(1) > maxDials && p.limit == 0 {
		p.dialing.Add(-1)
		return false
	}
	for {
		n := p.open.Load()
		if p.limit > 0 && n >= p.limit {
			p.dialing.Add(-1)
			return false
		}
		if p.open.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// freeSlot gives back a slot that was not used.
func (p *H1Pool) freeSlot() {
	p.open.Add(-1)
	p.dialing.Add(-1)
	p.serveWaiters()
}

// connect dials a connection for which the caller has taken a slot. On failure it frees the
// slot.
func (p *H1Pool) connect(ctx context.Context, deadline time.Time, secure bool) (*H1Conn, error) {
	p.dials.Add(1)
	c, err := p.dial(ctx, deadline, secure)
	if err == nil {
		p.dialing.Add(-1)
		p.serveWaiters()
		return c, nil
	}
	p.failures.Add(1)
	p.freeSlot()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case isTimeout(err) && !deadline.IsZero() && !time.Now().Before(deadline):
		if ReasonOf(err) != accesslog.ConnectTimeout { // within the TLS handshake
			err = fmt.Errorf("%w: %w", errConnectTimeout, err)
		}
		return nil, TimedOut(err)
	default:
		return nil, Unreachable(err)
	}
}

// isTimeout reports whether err says that a wait has reached its deadline. The net package's own error comes
// if the socket's deadline is noticed before the context's.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// dial makes a TCP connection, and does the TLS handshake if secure is set.
func (p *H1Pool) dial(ctx context.Context, deadline time.Time, secure bool) (*H1Conn, error) {
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	if err := p.owner.takeForDial(&p.spends); err != nil {
		return nil, err
	}
	conn, err := p.origin.connect(ctx, p.dialer, p.address)
	if err != nil {
		p.owner.budget.give(&p.spends, dialCost)
		return nil, errors.Join(err, ctx.Err())
	}
	c, err := newH1Conn(p, conn.(*net.TCPConn), p.owner.shard())
	if err != nil {
		_ = conn.Close()
		p.owner.budget.give(&p.spends, dialCost)
		return nil, err
	}
	if secure {
		if err := p.secure(ctx, c); err != nil {
			_ = conn.Close()
			p.owner.budget.give(&p.spends, dialCost)
			return nil, At(c.Address(), err)
		}
	}
	p.owner.budget.give(&p.spends, dialCost-1)
	return c, nil
}

// shard is one of a pool's stacks of idle connections.
type shard struct {
	n     atomic.Int32 // len(conns), to be read without mu
	mu    sync.Mutex
	conns []*H1Conn
	_     [24]byte // shards do not share a cache line
}

// push adds a connection that is marked as listed to the stack of the core that last took
// it, which has most likely used it.
func (p *H1Pool) push(c *H1Conn) {
	s := &p.shards[c.home.Load()]
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.n.Store(int32(len(s.conns)))
	s.mu.Unlock()
}

// pop takes an idle connection from the stack of this core, or else from another.
func (p *H1Pool) pop() *H1Conn {
	first := p.owner.shard()
	for i := range p.shards {
		s := &p.shards[(first+i)&(len(p.shards)-1)]
		for s.n.Load() > 0 {
			c := s.top()
			if c == nil {
				break
			}
			if c.take() {
				if i != 0 {
					c.home.Store(int32(first))
				}
				return c
			}
		}
	}
	return nil
}

// top removes and returns the top of the stack, or nil if it is empty.
func (s *shard) top() *H1Conn {
	s.mu.Lock()
	last := len(s.conns) - 1
	if last < 0 {
		s.mu.Unlock()
		return nil
	}
	c := s.conns[last]
	s.conns[last] = nil
	s.conns = s.conns[:last]
	s.n.Store(int32(last))
	// Clear this before the caller reads the state, so that a concurrent Release
	// either finds the connection unlisted or leaves it idle for the caller.
	c.listed.Store(false)
	s.mu.Unlock()
	return c
}

// withPort returns host with the given port, unless host has one.
func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	return net.JoinHostPort(host, port)
}
