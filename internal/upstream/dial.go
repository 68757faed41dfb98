package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
)

// maxDials is how many connections of a Pool without a limit of connections may be in the
// making, TLS handshake included.
const maxDials = 128

// errUnwanted is the result of a dial that no request waits for.
var errUnwanted = errors.New("upstream: no request waits for the connection")

// errHandshakeTimeout is the cause of a TLS handshake that took too long.
var errHandshakeTimeout = fmt.Errorf("TLS handshake: %w", errConnectTimeout)

// demand says whether a request still waits for a connection. net/http goes on to dial when
// the request that it dials for has gone.
//
// A dial that has begun is given up if the request has ended without a response, but not if
// another connection served it: then the connection is kept for others. A dial that waits
// for its turn is given up in both cases.
type demand struct {
	gone chan struct{} // closed when the request has ended without a response

	mu     sync.Mutex
	served chan struct{} // closed when the request has a connection; nil otherwise
}

type demandKey struct{}

func newDemand() *demand { return &demand{gone: make(chan struct{})} }

// ask is called when net/http begins to look for a connection, which may be several times.
func (d *demand) ask() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.served = make(chan struct{})
}

// serve is called when the request has got a connection.
func (d *demand) serve() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.served != nil {
		close(d.served)
		d.served = nil
	}
}

// waiting returns a channel that is closed once the request has a connection.
func (d *demand) waiting() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.served == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return d.served
}

// whileWanted returns a context that ends when the request for which ctx was made has ended
// without a response.
func whileWanted(ctx context.Context) (context.Context, context.CancelFunc, *demand) {
	d, _ := ctx.Value(demandKey{}).(*demand)
	ctx, cancel := context.WithCancelCause(ctx)
	if d == nil {
		return ctx, func() { cancel(nil) }, nil
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-d.gone:
			cancel(errUnwanted)
		case <-over:
		}
	}()
	return ctx, func() { close(over); cancel(nil) }, d
}

// dial connects to the origin. It is a function for http.Transport.DialContext.
func (p *Pool) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return p.dialTurn(ctx, func(ctx context.Context) (net.Conn, error) { return p.connect(ctx, network, address) })
}

// dialTLS returns a function for http.Transport.DialTLSContext, which connects to the origin
// and completes the TLS handshake. protocols are those that it offers.
func (p *Pool) dialTLS(protocols ...string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.dialTurn(ctx, func(ctx context.Context) (net.Conn, error) {
			raw, err := p.connect(ctx, network, address)
			if err != nil {
				return nil, err
			}
			c, err := p.handshake(ctx, raw, address, protocols)
			if err != nil {
				_ = raw.Close()
				return nil, err
			}
			return c, nil
		})
	}
}

// dialTurn calls dial when one of the pool's turns is free, and ends it when it is not wanted
// any more.
func (p *Pool) dialTurn(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel, d := whileWanted(ctx)
	defer cancel()
	if p.limiter == nil { // otherwise the slots are the turns
		var served <-chan struct{}
		if d != nil {
			served = d.waiting()
		}
		select {
		case p.turns <- struct{}{}:
		default:
			select {
			case p.turns <- struct{}{}:
			case <-served:
				return nil, errUnwanted
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		defer func() { <-p.turns }()
	}
	c, err := dial(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errUnwanted) {
		return nil, errUnwanted
	}
	return c, err
}

// connect makes a TCP connection, which counts until it is closed.
func (p *Pool) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if p.limiter != nil {
		return p.limiter.dial(ctx, network, address)
	}
	if err := p.owner.takeForDial(&p.spends); err != nil {
		return nil, err
	}
	c, err := p.dialer.DialContext(ctx, network, address)
	if err != nil {
		p.owner.budget.give(&p.spends, dialCost)
		return nil, err
	}
	p.owner.budget.give(&p.spends, dialCost-1)
	return p.watched(&countedConn{TCPConn: c.(*net.TCPConn), pool: p})
}

// watched makes a new connection one of the pool's transports, or closes it.
func (p *Pool) watched(s socket) (net.Conn, error) {
	w, err := watch(s)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	w.records, w.multiplexed = p.tls != nil, p.origin.Scheme == "h2c"
	return newConn(w), nil
}

// handshake speaks TLS over a new connection.
func (p *Pool) handshake(ctx context.Context, raw net.Conn, address string, protocols []string) (*tls.Conn, error) {
	cfg := p.tls.Clone()
	cfg.NextProtos = protocols
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(p.origin.ConnectTimeout, handshakeTimeout), errHandshakeTimeout)
	defer cancel()
	c, err := handshake(ctx, raw, address, cfg)
	if err != nil {
		return nil, err
	}
	if _, w := watchedOf(c); w != nil {
		w.multiplexed = c.ConnectionState().NegotiatedProtocol == "h2"
	}
	return c, nil
}

// handshake speaks TLS over a new connection to address. It gives up with the cause of ctx.
func handshake(ctx context.Context, raw net.Conn, address string, cfg *tls.Config) (*tls.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cfg = cfg.Clone()
	cfg.ServerName = host
	c := tls.Client(raw, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	return c, nil
}

// countedConn is a connection that gives its descriptor back when it is closed.
type countedConn struct {
	*net.TCPConn
	pool *Pool
	once sync.Once
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		err = c.TCPConn.Close()
		c.pool.owner.budget.give(&c.pool.spends, 1)
	})
	return err
}
