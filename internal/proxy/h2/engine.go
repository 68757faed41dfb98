package h2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/service"
)

// Config is the configuration of an Engine.
type Config struct {
	proxy.Config
	// Trusted reports whether the peer of a connection is a trusted proxy, whose
	// X-Forwarded-* fields are accepted. It is called once for each connection. Nil trusts
	// none.
	Trusted func(net.Conn) bool
	// Now reads the clock for timeouts and the Date field, once in each tick. Nil means
	// time.Now.
	Now func() time.Time
}

// Engine serves HTTP/2 connections. It is safe for concurrent use.
type Engine struct {
	cfg      Config
	streams  sync.Pool // of *stream
	buffers  sync.Pool // of *[readSize]byte
	messages message.Buffers
	workers  workers
	clock    proxy.Clock
	drain    proxy.Drain
	bodies   proxy.Bodies
	sweeper  service.Group
	flushes  sync.WaitGroup // flushes that the sweeper has begun
	serving  sync.WaitGroup // connections
	wake     chan struct{}  // makes the sweeper visit all connections at once

	// exchange, unless it is nil, exchanges requests in place of the upstream: in tests whose time is
	// virtual, and which therefore have no sockets.
	exchange func(*stream) error

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// New returns an Engine, which runs until Shutdown.
func New(cfg Config) (*Engine, error) {
	if err := cfg.SetDefaults(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	e := &Engine{cfg: cfg, conns: map[*conn]struct{}{}, wake: make(chan struct{}, 1)}
	e.workers.init()
	e.clock.Start(e.cfg.Now())
	return e, e.sweeper.Start(e.sweepAll)
}

// Via returns the pseudonym that the engine adds to Via.
func (e *Engine) Via() string { return e.cfg.Via }

// Connections returns the number of connections being served.
func (e *Engine) Connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// Serve serves the connections that l accepts, until l or the engine is closed, and returns
// nil. Their clients speak HTTP/2; on a *tls.Conn the handshake is complete. RemoteAddr is the
// address of the peer, or the source address in the PROXY header of a trusted proxy. When Serve asks
// l for the next connection, the engine has the previous one: a Shutdown that begins then waits for
// it.
func (e *Engine) Serve(l net.Listener) error {
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			if !e.drain.Enter() {
				_ = nc.Close()
				continue
			}
			e.serving.Go(func() { e.serveConn(nc) })
		case errors.Is(err, net.ErrClosed):
			return nil
		default:
			return fmt.Errorf("accept HTTP/2 connections: %w", err)
		}
	}
}

// serveConn serves nc, which has entered, until it ends, then closes it and returns.
func (e *Engine) serveConn(nc net.Conn) {
	defer e.drain.Leave()
	c := newConn(e, nc)
	e.mu.Lock()
	e.conns[c] = struct{}{}
	e.mu.Unlock()
	defer e.remove(c)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies.Done()
	}()
	c.serve()
}

func (e *Engine) remove(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, c)
}

// each calls f with each connection.
func (e *Engine) each(f func(*conn)) {
	e.mu.Lock()
	all := make([]*conn, 0, len(e.conns))
	for c := range e.conns {
		all = append(all, c)
	}
	e.mu.Unlock()
	for _, c := range all {
		f(c)
	}
}

// Announce says that Shutdown will follow: from now on a client that has opened a stream is asked, before
// its next response, to open no more on that connection.
func (e *Engine) Announce() {
	e.drain.Announce()
	e.wakeSweeper()
}

// wakeSweeper makes the sweeper visit all connections at once.
func (e *Engine) wakeSweeper() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Shutdown drains the engine. It asks every client to open no more streams, and returns when
// all of them have ended. When ctx ends, it cuts off the rest, which is logged and is not an
// error.
func (e *Engine) Shutdown(ctx context.Context) error {
	// The connections need the sweeper to the end. It never waits, so its own end has no bound.
	defer func() {
		_ = e.sweeper.Stop(context.WithoutCancel(ctx))
		e.flushes.Wait()
		e.serving.Wait()
		e.workers.end()
	}()
	e.drain.Run(ctx, e.wakeSweeper, func(first bool) {
		if first {
			e.cfg.Log.Warn("shutdown cut off HTTP/2 connections", "connections", e.Connections())
		}
		e.each(func(c *conn) { c.end(cutShutdown) })
	})
	return nil
}

// recoverIn recovers from a panic in a goroutine of a connection, which ends only that
// connection.
func (c *conn) recoverIn(what string) {
	if p := recover(); p != nil {
		c.engine.cfg.Log.Error(what+" panicked", "panic", p, "stack", string(debug.Stack()))
		c.end(cutClientClosed)
	}
}
