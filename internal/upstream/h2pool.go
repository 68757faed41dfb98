package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/certificate/servercert"
	"github.com/keygate/keygate/internal/tlspump"
)

// Results of H2Pool.Open that are not faults.
var (
	// ErrNoHTTP2 means that the server has chosen HTTP/1.1 in the TLS handshake. Nothing
	// was sent.
	ErrNoHTTP2 = errors.New("upstream: the server chose HTTP/1.1")
	// ErrNoConnect means that the server does not support extended CONNECT (RFC 8441). Nothing
	// was sent.
	ErrNoConnect = errors.New("upstream: the server does not support extended CONNECT")
)

// maxH2Conns is how many connections of a pool take new requests. Each is made only when the others
// are full, so it takes thousands of long requests to reach this bound.
const maxH2Conns = 64

// H2Pool holds the HTTP/2 connections of one origin of scheme https or h2c, and shares each of them
// among many exchanges. It is safe for concurrent use. A caller may keep it: if
// Pools has forgotten the pool because it was unused, it passes requests on to its successor.
//
// A request opens a stream on the connection with the fewest streams. If each has as many as its
// server allows, the request waits in a FIFO queue, and the pool connects again unless it has
// maxH2Conns connections, or Origin.MaxConns. A waiting request is not bound to the new connection:
// whichever stream becomes free first serves the first in the queue.
//
//	        connect, handshake, the server's settings        GOAWAY, too old
//	┌──────┐         ┌─────────┐         ┌──────┐                          ┌─────────┐
//	│ none ├────────►│ dialing ├────────►│ live ├─────────────────────────►│ retired │
//	└──────┘         └────┬────┘         └───┬──┘                          └────┬────┘
//	    ▲                 │ fails            │ broken, silent, idle             │ no exchange
//	    └─────────────────┴──────────────────┴──────────────────────────────────┘ left
//
// Only live connections take new streams and count towards these numbers. Every connection
// holds a slot of own.
//
// A server of scheme https is asked in the TLS handshake for HTTP/2 and HTTP/1.1. If it chooses
// HTTP/1.1, the connection goes to own, and Open returns ErrNoHTTP2 for the maximum age of a
// connection. Then the server is asked again.
//
// Locks: mu comes before the lock of a connection.
type H2Pool struct {
	owner   *Pools
	origin  Origin
	tls     *tls.Config   // nil for h2c
	session *session      // of tls
	own     *H1Pool       // makes the TCP connections, and keeps those over which the server speaks HTTP/1.1
	most    int           // live connections
	idle    int64         // ticks for which a connection may be idle
	maxAge  time.Duration // of a connection that is used for a new request

	replays *atomic.Int64 // what Replays keep for the account

	sendTimeout time.Duration // h2SendTimeout, except in tests

	used      atomic.Int64 // tick of the last use
	draining  atomic.Bool  // connections close once they have no exchange
	forgotten atomic.Bool  // Pools no longer has it
	http1     atomic.Int64 // until this tick, the server is taken to speak only HTTP/1.1
	greeting  atomic.Bool  // the dial in progress waits for the server's settings
	dials     atomic.Int64
	failures  atomic.Int64

	live    atomic.Pointer[[]*h2Conn] // replaced with mu held
	waiters atomic.Int32              // len(queue), to be read without mu

	mu     sync.Mutex
	conns  []*h2Conn // live and retired
	queue  []*h2Waiter
	cancel context.CancelFunc // of the dial in progress, or nil
}

// Multiplexed returns the pool of HTTP/2 connections of o and creates it on first use. It
// fails unless o's scheme is https or h2c, and if o's CA or client certificate cannot be
// parsed. The caller may keep the pool.
func (p *Pools) Multiplexed(o Origin) (*H2Pool, error) {
	if found, ok := p.h2State.pools.Load(o); ok {
		return found.(*H2Pool), nil
	}
	p.making.Lock()
	defer p.making.Unlock()
	if found, ok := p.h2State.pools.Load(o); ok {
		return found.(*H2Pool), nil
	}
	pool, err := newH2Pool(p, o)
	if err != nil {
		return nil, err
	}
	if err := p.makeRoom(&o); err != nil {
		return nil, err
	}
	if !p.startSweeping() {
		pool.draining.Store(true)
		pool.own.draining.Store(true)
	}
	p.h2State.pools.Store(o, pool)
	p.drainPreviousOrigin(o)
	return pool, nil
}

func newH2Pool(owner *Pools, o Origin) (*H2Pool, error) {
	p := &H2Pool{
		owner:  owner,
		origin: o,
		most:   maxH2Conns,
		idle:   max(2, int64(cmp.Or(o.IdleTimeout, owner.cfg.IdleTimeout)/tickTime)),
		maxAge: cmp.Or(o.MaxConnAge, owner.cfg.MaxConnAge),

		replays:     owner.replays.of(o.Account),
		sendTimeout: h2SendTimeout,
	}
	port := "80"
	switch o.Scheme {
	case "h2c":
	case "https":
		port = "443"
		var err error
		if p.tls, err = newTLSConfig(o); err != nil {
			return nil, err
		}
		p.session = &session{room: &owner.sessions, account: o.Account}
		p.tls.ClientSessionCache = p.session
		p.tls.NextProtos = []string{"h2", "http/1.1"}
		p.tls.DynamicRecordSizingDisabled = true
	default:
		return nil, fmt.Errorf("connect to %s: HTTP/2 connections need scheme https or h2c, not %q", o.Host, o.Scheme)
	}
	p.own = newSecurePool(p, port)
	if p.own.limit > 0 {
		p.most = int(min(int64(p.most), p.own.limit))
	}
	p.live.Store(&[]*h2Conn{})
	p.used.Store(owner.tick.Load())
	return p, nil
}

// Confirmer says whether a request may still be sent.
type Confirmer interface {
	// Confirm returns an error if the request must not be sent. It does not block, and may be called
	// with locks held.
	Confirm() error
}

// H2Request is a request that opens a stream.
type H2Request struct {
	Exchange H2Exchange
	// Confirm is called directly before the stream is opened. Open returns its error. Nil means
	// that the request may be sent.
	Confirm Confirmer
	Head    bool // the method is HEAD, so the response has no body
	// Body is the beginning of the body. As much of it as http2.MaxFrame and the server's windows
	// allow is sent with the head; H2Stream.First returns how much that was. Body must not change
	// until Open has returned.
	Body []byte
	// End means that nothing follows Body: neither data nor trailers. If not all of Body was
	// sent, the stream is still open for the rest.
	End     bool
	Connect bool // an extended CONNECT: fails with ErrNoConnect if the server does not support it
}

// TryOpen opens a stream for a request as s, or reports false if that is not possible
// without waiting. It does not block.
//
// The memory of s belongs to the caller. It must be the zero value, or a stream whose exchange is
// over. Callbacks of the exchange may begin before TryOpen or Open returns.
func (p *H2Pool) TryOpen(s *H2Stream, r H2Request) bool {
	later := p.TryOpenLater(s, r)
	if later == nil {
		return false
	}
	later.Flush()
	return true
}

// TryOpenLater does the same as TryOpen but does not send the request: the caller sends it by Flush
// of the result, so that several requests can be sent together. It returns nil instead of false.
func (p *H2Pool) TryOpenLater(s *H2Stream, r H2Request) Flusher {
	p.touch()
	if p.waiting() {
		return nil // waiters come first
	}
	c, err := p.open(s, &r)
	if c == nil || err != nil {
		return nil
	}
	return c
}

// Open opens a stream for a request as s, like TryOpen. If the connections have no room for
// it, it waits in the FIFO queue until there is room or a new connection. It gives up at the
// deadline, unless that is zero, and when ctx ends.
//
// The error is ErrNoHTTP2, ErrNoConnect, ctx.Err(), the error of H2Request.Confirm, or a *fault.Error with
// the code UpstreamUnreachable if the connection failed, or UpstreamTimeout if it was neither established nor
// refused by the deadline, or no stream became free by then. Nothing of the request was sent then.
func (p *H2Pool) Open(ctx context.Context, deadline time.Time, s *H2Stream, r H2Request) error {
	if p.TryOpen(s, r) {
		return nil
	}
	if p.forgotten.Load() {
		next, err := p.owner.Multiplexed(p.origin)
		if err != nil {
			return err
		}
		if next != p {
			return next.Open(ctx, deadline, s, r)
		}
	}
	if p.OnlyHTTP1() {
		return ErrNoHTTP2
	}
	return p.wait(ctx, deadline, s, r)
}

// OnlyHTTP1 reports that the server chose HTTP/1.1 when the pool connected last, so that Open
// returns ErrNoHTTP2.
func (p *H2Pool) OnlyHTTP1() bool { return p.owner.tick.Load() < p.http1.Load() }

func (p *H2Pool) touch() {
	if now := p.owner.tick.Load(); p.used.Load() != now {
		p.used.Store(now)
	}
}

// open opens a stream on the live connection with the fewest streams, and returns that connection,
// which the caller flushes. It returns nil if no connection has room.
func (p *H2Pool) open(s *H2Stream, r *H2Request) (*h2Conn, error) {
	live := *p.live.Load()
	for range live {
		var best *h2Conn
		for _, c := range live {
			if n := c.load.Load(); n < c.capacity.Load() && (best == nil || n < best.load.Load()) {
				best = c
			}
		}
		if best == nil {
			return nil, nil
		}
		if ok, err := best.open(s, r); ok || err != nil {
			return best, err
		}
	}
	return nil, nil
}

// connect makes a connection that has got the server's settings. If the server chooses HTTP/1.1,
// the connection is left in p.own.
func (p *H2Pool) connect(ctx context.Context) (*h2Conn, error) {
	slot, err := p.own.connectNew(ctx, time.Time{}, false)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(p.origin.ConnectTimeout, handshakeTimeout), errHandshakeTimeout)
	defer cancel()
	c, err := p.greet(ctx, slot)
	switch {
	case errors.Is(err, ErrNoHTTP2):
		slot.unused = true
		slot.Release()
		return nil, err
	case err != nil:
		address := slot.Address()
		slot.Discard()
		return nil, Unreachable(At(address, err))
	}
	return c, nil
}

// greet does the TLS handshake of a new connection, exchanges settings, and starts its reader.
func (p *H2Pool) greet(ctx context.Context, slot *H1Conn) (*h2Conn, error) {
	c := newH2Conn(p, slot)
	if p.tls != nil {
		c.seal = &sealer{TCPConn: slot.conn}
		bounded := servercert.Below(c.seal)
		below := tlspump.Wrap(slot.conn, bounded)
		secure, err := handshake(ctx, below, bounded, p.own.address, p.tls)
		if err != nil {
			return nil, err
		}
		if secure.ConnectionState().NegotiatedProtocol != "h2" {
			slot.begin(secure, below)
			return nil, ErrNoHTTP2
		}
		c.tls = secure
		c.seal.collect()
	}
	slot.probe(probeIdle, probeEvery, 0) // always: there are few connections over HTTP/2
	p.greeting.Store(true)               // until dial has ended
	c.Flush()
	go c.read()
	select {
	case <-c.ready:
		return c, nil
	case <-c.over:
		return nil, c.err
	case <-ctx.Done():
		c.shut(context.Cause(ctx), true)
		<-c.over
		return nil, context.Cause(ctx)
	}
}

// add makes a new connection live, unless it is dead already. p.mu is held.
func (p *H2Pool) add(c *h2Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	p.conns = append(p.conns, c)
	p.setLive(append(slices.Clone(*p.live.Load()), c))
}

func (p *H2Pool) setLive(conns []*h2Conn) { p.live.Store(&conns) }

// retire keeps a connection from taking new streams. p.mu is held.
func (p *H2Pool) retire(c *h2Conn) {
	if live := *p.live.Load(); slices.Contains(live, c) {
		p.setLive(slices.DeleteFunc(slices.Clone(live), func(x *h2Conn) bool { return x == c }))
	}
	c.mu.Lock()
	c.retired = true
	c.mu.Unlock()
}

// remove forgets a connection that is dead.
func (p *H2Pool) remove(c *h2Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retire(c)
	p.conns = slices.DeleteFunc(p.conns, func(x *h2Conn) bool { return x == c })
}

// all returns the connections.
func (p *H2Pool) all() []*h2Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.conns)
}

// unwanted reports whether a connection without an exchange must be closed: the pool is
// draining, or others wait for the slot.
func (p *H2Pool) unwanted(c *h2Conn) bool {
	return p.draining.Load() || c.slot.pool.queue.waiting()
}

// closeIdle closes the connections without an exchange.
func (p *H2Pool) closeIdle() {
	p.own.CloseIdle()
	for _, c := range p.all() {
		c.closeIdle()
	}
}
