package h1

import (
	"context"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/service"
)

// Engine serves HTTP/1.1 connections. It is safe for concurrent use.
type Engine struct {
	cfg       Config
	buffers   message.Buffers
	exchanges sync.Pool // of *exchange
	clock     proxy.Clock
	conns     registry
	drain     proxy.Drain
	pipes     atomic.Int64 // in use, at most cfg.MaxPipes

	wake    chan struct{} // makes the sweeper visit all connections at once
	sweeper service.Group
}

// New returns an Engine, which runs until Shutdown.
func New(cfg Config) (*Engine, error) {
	if err := cfg.SetDefaults(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MaxPipes == 0 {
		cfg.MaxPipes = DefaultMaxPipes
	}
	e := &Engine{cfg: cfg, wake: make(chan struct{}, 1)}
	e.clock.Start(cfg.Now())
	return e, e.sweeper.Start(e.sweepAll)
}

// Via returns the pseudonym that the engine adds to Via.
func (e *Engine) Via() string { return e.cfg.Via }

// ServeConn serves c until it ends, then closes it and returns. The pump serves a
// *net.TCPConn, and a *tls.Conn above a *tlspump.Conn. A connection that wraps a TCP connection
// must return it from a method NetConn. The caller has completed the TLS handshake.
func (e *Engine) ServeConn(c net.Conn, info ConnInfo) {
	if !e.drain.Enter() {
		_ = c.Close()
		return
	}
	defer e.drain.Leave()
	if info.Entered != nil {
		info.Entered()
	}
	client := newConn(e, c, info)
	e.conns.add(client)
	defer e.conns.remove(client)
	defer client.closeAll()
	client.serve(info.Prefix)
}

// Connections returns the number of connections being served.
func (e *Engine) Connections() int { return int(e.conns.count.Load()) }

// Announce says that Shutdown will follow: from now on each response says "Connection: close".
func (e *Engine) Announce() { e.drain.Announce() }

// Shutdown drains the engine. It closes connections that wait for a request, unless one has arrived; connections that
// wait for their first request, after proxy.FirstRequestGrace; and connections that arrive later. It sends "Connection:
// close" with every response, and returns when all connections have ended, upgraded ones last. When ctx ends, it cuts
// off the remaining exchanges, which is logged and is not an error.
func (e *Engine) Shutdown(ctx context.Context) error {
	// The connections need the sweeper to the end. It never waits, so its own end has no bound.
	defer func() { _ = e.sweeper.Stop(context.WithoutCancel(ctx)) }()
	e.drain.Run(ctx, func() {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}, func(first bool) {
		if first {
			e.cfg.Log.Warn("shutdown cut off connections", "connections", e.Connections())
		}
		e.conns.each((*conn).cutAll)
	})
	return nil
}

// recoverIn recovers from a panic in a goroutine of a connection, which ends only that
// connection.
func (e *Engine) recoverIn(what string) {
	if p := recover(); p != nil {
		e.cfg.Log.Error(what+" panicked", "panic", p, "stack", string(debug.Stack()))
	}
}

// unmapped returns an IPv4-mapped address as IPv4, and an address without its zone.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
