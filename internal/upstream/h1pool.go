package upstream

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/netguard"
)

// H1Pool holds the plain connections of one origin of scheme http for the
// HTTP/1.1 engine, which does its own reading and writing. It is safe for
// concurrent use, and may be kept: after a long time without use it lets its
// slot to another pool and passes requests on to that.
//
// An idle connection stands in one of several stacks, the most recently pushed
// on top. A connection taken through a hint stays where it stands, so a client
// that comes back to its last connection touches no lock.
type H1Pool struct {
	owner   *Pools
	origin  Origin
	address string
	dialer  net.Dialer
	limit   int64 // of open connections; 0 is none
	idle    int64 // ticks that a connection may be idle

	used      atomic.Int64 // tick of the last use
	draining  atomic.Bool  // nothing is kept idle any more
	forgotten atomic.Bool  // Pools has forgotten it
	open      atomic.Int64 // connections, those that are being made included
	dials     atomic.Int64
	failures  atomic.Int64

	shards []shard // a power of two
	queue  waitQueue

	sharedBy atomic.Pointer[Pool] // whose connections have places here, too
}

// newH1Pool returns a pool of o; port is that of a Host that names none.
func newH1Pool(owner *Pools, o Origin, port string) *H1Pool {
	p := &H1Pool{
		owner:   owner,
		origin:  o,
		address: withPort(o.Host, port),
		limit:   int64(cmp.Or(o.MaxConns, owner.cfg.MaxConns)),
		idle:    max(2, int64(cmp.Or(o.IdleTimeout, owner.cfg.IdleTimeout)/tickTime)),
		shards:  make([]shard, owner.shards),
	}
	p.dialer = net.Dialer{
		Timeout:        cmp.Or(o.ConnectTimeout, owner.cfg.ConnectTimeout),
		ControlContext: owner.cfg.Guard.Control(netguard.Policy{PublicOnly: o.PublicOnly, Allow: owner.cfg.Allow}),
	}
	p.used.Store(owner.tick.Load())
	return p
}

// Take returns an idle connection, or nil if there is none. It does not block.
// hint is tried first; it may be nil, any connection the caller had before, and
// of another pool.
//
// uses is not 0 only if the request is of the caller for whom hint was given back
// last, when it had been given out so often (H1Conn.Uses), and if the request may
// be sent once more. Then hint is not looked at if that was a moment ago, which
// saves a system call: nobody else can be harmed by what the upstream may have
// sent since, and if it has closed the connection the request is sent again.
func (p *H1Pool) Take(hint *H1Conn, uses int) *H1Conn {
	now := p.owner.tick.Load()
	if p.used.Load() != now {
		p.used.Store(now)
	}
	if p.queue.waiting() {
		return nil // they come first
	}
	if hint != nil && hint.pool == p && hint.take(uses) {
		return hint
	}
	return p.pop()
}

// Acquire returns an idle connection as Take does, or a new one. If the limit of
// connections is reached, it waits its turn. It gives up at the deadline, unless
// that is zero, and when ctx ends.
//
// The error is that of ctx, or a *fault.Error with the code UpstreamUnreachable
// (no connection could be made) or UpstreamTimeout (nor refused until the
// deadline, or the limit was reached so long).
func (p *H1Pool) Acquire(ctx context.Context, deadline time.Time, hint *H1Conn) (*H1Conn, error) {
	if c := p.Take(hint, 0); c != nil {
		return c, nil
	}
	if p.forgotten.Load() {
		next, err := p.owner.Plain(p.origin)
		if err != nil {
			return nil, err
		}
		if next != p {
			return next.Acquire(ctx, deadline, hint)
		}
	}
	if p.queue.waiting() || !p.takeSlot() {
		c, err := p.waitForSlot(ctx, deadline)
		if c != nil || err != nil {
			return c, err
		}
	}
	return p.connect(ctx, deadline)
}

// Connect returns a new connection, as Acquire does where none is idle: for
// trying once more what failed on a reused one.
func (p *H1Pool) Connect(ctx context.Context, deadline time.Time) (*H1Conn, error) {
	if p.queue.waiting() || !p.takeSlot() {
		c, err := p.waitForSlot(ctx, deadline)
		if err != nil {
			return nil, err
		}
		if c != nil {
			c.close() // its place stays ours, or is found again
			if !p.takeSlot() {
				return p.Connect(ctx, deadline)
			}
		}
	}
	return p.connect(ctx, deadline)
}

// takeSlot counts a connection that is about to be made, if the limit allows.
func (p *H1Pool) takeSlot() bool {
	for {
		n := p.open.Load()
		if p.limit > 0 && n >= p.limit {
			return false
		}
		if p.open.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// connect makes a connection that reserve has counted.
func (p *H1Pool) connect(ctx context.Context, deadline time.Time) (*H1Conn, error) {
	p.dials.Add(1)
	c, err := p.dial(ctx, deadline)
	if err == nil {
		return c, nil
	}
	p.failures.Add(1)
	p.open.Add(-1)
	p.serveWaiters()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded) && !deadline.IsZero() && !time.Now().Before(deadline):
		return nil, TimedOut(err)
	default:
		return nil, Unreachable(err)
	}
}

func (p *H1Pool) dial(ctx context.Context, deadline time.Time) (*H1Conn, error) {
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	conn, err := p.dialer.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	c, err := newH1Conn(p, conn.(*net.TCPConn), p.owner.shard())
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// shard is one of a pool's stacks.
type shard struct {
	n     atomic.Int32 // of conns, for who does not hold mu
	mu    sync.Mutex
	conns []*H1Conn
	_     [24]byte // shards do not share a cache line
}

// push puts a connection that is marked as listed on the stack of the core that
// took it, which has most likely used it.
func (p *H1Pool) push(c *H1Conn) {
	s := &p.shards[c.home.Load()]
	s.mu.Lock()
	s.conns = append(s.conns, c)
	s.n.Store(int32(len(s.conns)))
	s.mu.Unlock()
}

// pop takes an idle connection from this core's stack, else from another's.
func (p *H1Pool) pop() *H1Conn {
	first := p.owner.shard()
	for i := range p.shards {
		s := &p.shards[(first+i)&(len(p.shards)-1)]
		for s.n.Load() > 0 {
			c := s.top()
			if c == nil {
				break
			}
			if c.take(0) {
				if i != 0 {
					c.home.Store(int32(first))
				}
				return c
			}
		}
	}
	return nil
}

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
	// Before the caller looks at its state, so that a Release that comes
	// between either finds it unlisted or leaves it idle for the caller.
	c.listed.Store(false)
	s.mu.Unlock()
	return c
}

func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	return net.JoinHostPort(host, port)
}
