package h1

import (
	"context"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/service"
)

// Engine serves HTTP/1.1 connections. It is safe for concurrent use.
type Engine struct {
	cfg      Config
	pools    pools
	adapters adapterBuffers
	clock    clock
	conns    registry
	draining atomic.Bool
	pipes    atomic.Int64 // in use, at most cfg.MaxPipes

	wake    chan struct{} // makes the sweeper visit all connections at once
	sweeper service.Group

	mu     sync.Mutex // guards active and idle
	active int
	idle   chan struct{} // closed when the last connection has ended; made by Shutdown
}

// New returns an Engine, which runs until Shutdown.
func New(cfg Config) (*Engine, error) {
	if err := cfg.SetDefaults(); err != nil {
		return nil, err
	}
	if cfg.Forward == nil {
		return nil, errConfig
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MaxPipes == 0 {
		cfg.MaxPipes = DefaultMaxPipes
	}
	e := &Engine{cfg: cfg, wake: make(chan struct{}, 1)}
	now := cfg.Now()
	e.clock.started = now
	e.clock.tick(now)
	return e, e.sweeper.Start(e.sweepAll)
}

// Via returns the pseudonym that the engine adds to Via.
func (e *Engine) Via() string { return e.cfg.Via }

// ServeConn serves c until it ends, then closes it and returns. The pump serves a
// *net.TCPConn. A connection that wraps one, such as a *tls.Conn, must return it from a
// method NetConn. The caller has completed the TLS handshake.
func (e *Engine) ServeConn(c net.Conn, info ConnInfo) {
	if !e.enter() {
		_ = c.Close()
		return
	}
	defer e.leave()
	client := newConn(e, c, info)
	e.conns.add(client)
	defer e.conns.remove(client)
	defer client.closeAll()
	client.serve(info.Prefix)
}

// Connections returns the number of connections being served.
func (e *Engine) Connections() int { return int(e.conns.count.Load()) }

// enter counts a connection. It reports false if the engine is shutting down.
func (e *Engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.draining.Load() {
		return false
	}
	e.active++
	return true
}

func (e *Engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active--; e.active == 0 && e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
}

// Shutdown drains the engine. It closes connections that wait for a request and connections
// that arrive later, sends "Connection: close" with every response, and returns when all
// connections have ended, upgraded ones last. When ctx ends, it cuts off the remaining
// exchanges, which is logged and is not an error.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	e.draining.Store(true)
	idle := e.idle
	if e.active > 0 && idle == nil {
		idle = make(chan struct{})
		e.idle = idle
	}
	e.mu.Unlock()
	// The connections need the sweeper to the end. It never waits, so its own end has no bound.
	defer func() { _ = e.sweeper.Stop(context.WithoutCancel(ctx)) }()
	if idle == nil {
		return nil
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	e.cfg.Log.Warn("shutdown cut off connections", "connections", e.Connections())
	again := time.NewTicker(tickTime)
	defer again.Stop()
	for { // repeated, for connections that were between two phases
		e.conns.each((*conn).cutAll)
		select {
		case <-idle:
			return nil
		case <-again.C:
		}
	}
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
