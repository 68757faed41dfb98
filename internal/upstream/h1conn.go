package upstream

import (
	"net"
	"sync/atomic"
	"syscall"
)

// The states of an H1Conn.
const (
	connBusy   int32 = iota // somebody's own
	connIdle                // in no hands: whoever makes it busy owns it
	connClosed              // for good
)

// H1Conn is a plain TCP connection to an upstream that speaks HTTP/1.1. From
// Acquire or Take on it belongs to the caller, until Release or Discard; after
// that a pointer to it is good for a hint, and nothing else of it may be used.
type H1Conn struct {
	pool *H1Pool
	conn *net.TCPConn
	raw  syscall.RawConn
	uses int   // how often it was given out
	last int64 // tick of the last Release

	state  atomic.Int32
	listed atomic.Bool  // stands in a stack, or is about to
	home   atomic.Int32 // the number of the stack for its next Release

	// peekFunc is made once, since a closure for each call would be an allocation.
	peekFunc func(fd uintptr)
	stale    bool // what look saw
}

func newH1Conn(p *H1Pool, conn *net.TCPConn, home int) (*H1Conn, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &H1Conn{pool: p, conn: conn, raw: raw, uses: 1}
	c.peekFunc = c.peek
	c.home.Store(int32(home))
	return c, nil
}

// NetConn returns the connection for ordinary reads and writes.
func (c *H1Conn) NetConn() *net.TCPConn { return c.conn }

// Raw returns the connection for system calls of the caller's own.
func (c *H1Conn) Raw() syscall.RawConn { return c.raw }

// Uses tells how often the connection was given out: a caller that gave it back
// and finds the same number knows that nobody had it in between.
func (c *H1Conn) Uses() int { return c.uses }

// Reused reports whether the connection has served a request before, so that
// its failing before any byte of an answer may only mean that it was stale.
func (c *H1Conn) Reused() bool { return c.uses > 1 }

// Stale reports whether an idle connection cannot be used: the upstream has
// closed it, broken it, or sent what nobody asked for. It does not block.
func (c *H1Conn) Stale() bool {
	c.stale = true
	_ = c.raw.Control(c.peekFunc) // leaves it stale if the descriptor is gone
	return c.stale
}

func (c *H1Conn) peek(fd uintptr) { c.stale = !isQuiet(fd) }

// Release makes the connection idle. Its last answer must have been read to its
// endReading, and no deadline may be set.
func (c *H1Conn) Release() {
	p := c.pool
	c.last = p.owner.tick.Load()
	c.state.Store(connIdle) // from here on it may be somebody else's
	if !c.listed.Load() && c.listed.CompareAndSwap(false, true) {
		p.push(c)
	}
	// What follows must come after the push: whoever sets over or waits looks
	// for idle connections afterwards.
	if p.draining.Load() {
		p.CloseIdle()
	}
	p.serveWaiters()
}

// Discard closes the connection. It may be called more than once.
func (c *H1Conn) Discard() {
	c.close()
	c.pool.serveWaiters()
}

func (c *H1Conn) close() {
	if c.state.Swap(connClosed) == connClosed {
		return
	}
	_ = c.conn.Close()
	c.pool.open.Add(-1)
}

// take makes an idle connection the caller's own. It closes it instead if it
// turns out to be stale, which may serve a waiter (H1Pool.serveWaiters). It looks unless
// the caller itself had the connection last, as its known number of uses, not 0,
// tells, and within the last tick: what an upstream has sent since its last answer
// would be taken for the answer to the next request, which must not be somebody
// else's.
func (c *H1Conn) take(known int) bool {
	if !c.state.CompareAndSwap(connIdle, connBusy) {
		return false
	}
	own := known != 0 && known == c.uses && c.pool.owner.tick.Load()-c.last <= 1
	if !own && c.Stale() {
		c.close()
		return false
	}
	c.uses++
	return true
}
