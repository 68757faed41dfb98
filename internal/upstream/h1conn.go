package upstream

import (
	"math"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keygate/keygate/internal/nowait"
)

// The states of an H1Conn.
const (
	connBusy   int32 = iota // owned by one caller
	connIdle                // owned by the pool; a caller that changes it to connBusy becomes the owner
	connClosed              // final
)

// H1Conn is a connection to an upstream that speaks HTTP/1.1, plain or over TLS. A caller that
// gets it from Acquire, Connect or Take owns it until Release or Discard. After that, the caller
// may only pass the pointer to Take or Acquire as a hint.
type H1Conn struct {
	pool *H1Pool
	conn *net.TCPConn
	raw  syscall.RawConn
	h1Secure
	last int64         // tick of the last Release
	end  time.Duration // the time, by Pools.now, from which it is not used for new requests

	reset       atomic.Bool  // a write has found that the server had reset the connection
	interrupted atomic.Bool  // see Interrupt
	reused      bool         // it has carried a request
	unused      bool         // it became idle without one
	watched     atomic.Bool  // see Watch
	carries     atomic.Bool  // see Carry
	heldAt      atomic.Int64 // tick of the last Hold

	state  atomic.Int32
	listed atomic.Bool  // is in a stack, or is about to be pushed
	home   atomic.Int32 // index of the shard for its next Release

	// peekFunc is peek, and lookFunc look, bound once: a closure for each call would be an allocation.
	peekFunc func(fd uintptr)
	lookFunc func(fd uintptr)
	stale    bool // result of peek
	unasked  bool // result of look
	wrote    int  // for look

	resting *time.Timer // of Rest; nil before the first
}

func newH1Conn(p *H1Pool, conn *net.TCPConn, home int) (*H1Conn, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &H1Conn{pool: p, conn: conn, raw: raw, end: p.owner.now() + lifetime(p.maxAge)}
	c.peekFunc, c.lookFunc = c.peek, c.look
	c.home.Store(int32(home))
	return c, nil
}

// HalfCloser is a connection whose sending side can be closed.
type HalfCloser interface {
	net.Conn
	CloseWrite() error
}

// NetConn returns the connection for ordinary reads, and for writes while nobody calls Receive.
func (c *H1Conn) NetConn() HalfCloser {
	if c.tls != nil {
		return c.tls
	}
	return c.conn
}

// Plain returns the socket of a connection without TLS, and nil for others.
func (c *H1Conn) Plain() *net.TCPConn {
	if c.tls != nil {
		return nil
	}
	return c.conn
}

// Address returns the network address of the server.
func (c *H1Conn) Address() string { return c.conn.RemoteAddr().String() }

// Interrupt makes all calls fail that wait for the server, and also Receive, which never has to wait if the server
// sends without a pause. The connection cannot be used any more.
func (c *H1Conn) Interrupt() {
	c.interrupted.Store(true)
	_ = c.conn.SetDeadline(time.Unix(1, 0))
}

// Raw returns the connection for the caller's own system calls.
func (c *H1Conn) Raw() syscall.RawConn { return c.raw }

// Reused reports whether the connection has carried a request before. If so, a failure
// before the first byte of a response may only mean that the upstream had closed it.
func (c *H1Conn) Reused() bool { return c.reused }

// Stale reports whether an idle connection is unusable: the upstream has closed or reset
// it, or sent bytes that no request asked for. It does not block. Messages of TLS itself, such as
// session tickets, do not count.
func (c *H1Conn) Stale() bool {
	c.stale = true
	_ = c.raw.Control(c.peekFunc) // leaves stale set if the descriptor is closed
	return c.stale || c.tls != nil && !c.isSettled()
}

// old reports whether the connection has reached the age after which it is not used for new
// requests.
func (c *H1Conn) old() bool { return c.pool.owner.now() >= c.end }

func (c *H1Conn) peek(fd uintptr) {
	if c.stale = !isQuiet(fd); c.pump != nil && (c.stale || c.more) {
		c.stale = !c.settle(fd)
	}
}

// isQuiet reports whether a connection has nothing to read, not even its end.
func isQuiet(fd uintptr) bool {
	var b [1]byte
	_, errno := nowait.Peek(int(fd), b[:])
	return errno == nowait.Again
}

// Unasked reports whether bytes have arrived that cannot be a response to the n bytes that were just
// written, because the server sent them before it had received any of these. It does not block. It
// returns false over TLS, whose own messages look the same from outside, and on systems that do not
// show the difference.
func (c *H1Conn) Unasked(n int) bool {
	if c.tls != nil {
		return false
	}
	c.wrote, c.unasked = n, false
	_ = c.raw.Control(c.lookFunc) // if it is closed, the next read fails
	return c.unasked
}

func (c *H1Conn) look(fd uintptr) { c.unasked = hasUnasked(fd, c.wrote) }

// Rest takes the place of Release after a response that has no body because of its method or status.
// Some upstreams send a body anyway, which would be taken for the next response. So the connection
// becomes idle only if nothing has arrived for Config.RestTime. Until then no request gets it, not even a
// waiting one.
func (c *H1Conn) Rest() {
	if c.resting == nil { // another request may have the connection as soon as the timer fires
		c.resting = time.AfterFunc(math.MaxInt64, c.rested)
	}
	c.resting.Reset(c.pool.owner.cfg.RestTime)
}

// rested ends a rest.
func (c *H1Conn) rested() {
	if c.Stale() {
		c.Discard()
		return
	}
	c.Release()
}

// Release makes the connection idle, gives it to a waiter, or closes it if it has become too
// old. The caller must have read the last response to its end and must not leave a deadline
// set.
func (c *H1Conn) Release() {
	if c.old() {
		c.Discard()
		return
	}
	p := c.pool
	c.unwatch()
	c.last = p.owner.tick.Load()
	c.state.Store(connIdle) // from here on another caller may own it
	if !c.listed.Load() && c.listed.CompareAndSwap(false, true) {
		p.push(c)
	}
	// These checks must follow the push: setting draining, and joining the queue, are
	// each followed by a search for idle connections.
	if p.draining.Load() {
		p.CloseIdle()
	}
	p.serveWaiters()
}

// Discard closes the connection and frees its slot. It may be called more than once.
func (c *H1Conn) Discard() {
	c.close()
	c.pool.serveWaiters()
}

// close closes the connection and frees its slot, but does not serve waiters.
func (c *H1Conn) close() {
	if c.state.Swap(connClosed) == connClosed {
		return
	}
	_ = c.conn.Close()
	c.pool.owner.budget.give(&c.pool.spends, 1)
	c.pool.open.Add(-1)
}

// take makes the caller the owner of an idle connection. It returns false if the connection
// is not idle, is too old, or is stale. In the last two cases it closes the connection, and
// the caller must serve the waiters.
//
// take checks for staleness before every use, also by the same client. Otherwise bytes that the
// upstream has sent since its last response would be taken for the response to the next request,
// and everything behind them for the responses to later requests.
func (c *H1Conn) take() bool {
	if !c.state.CompareAndSwap(connIdle, connBusy) {
		return false
	}
	if c.old() || c.Stale() {
		c.close()
		return false
	}
	c.reused, c.unused = !c.unused, false
	return true
}
