package h1

import (
	"context"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Engine serves connections of HTTP/1.1. It is safe for concurrent use.
type Engine struct {
	cfg      Config
	pools    pools
	adapters adapterBuffers
	clock    clock
	conns    registry
	draining atomic.Bool

	wake    chan struct{} // lets the sweeper look at once
	stop    context.CancelFunc
	sweeper sync.WaitGroup

	mu     sync.Mutex // of running and idle
	active int
	idle   chan struct{} // closed when the last connection has ended; made by Shutdown
}

// New returns an Engine. Shutdown ends what it starts.
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
	e := &Engine{cfg: cfg, wake: make(chan struct{}, 1)}
	now := cfg.Now()
	e.clock.started = now
	e.clock.tick(now)
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.sweeper.Go(func() { e.sweepAll(ctx) })
	return e, nil
}

// Via returns the pseudonym that the engine adds to Via.
func (e *Engine) Via() string { return e.cfg.Via }

// ServeConn serves c and returns when it has ended, closed. c is a *net.TCPConn,
// which is served by the pump, or any other connection; one that wraps another
// has the method NetConn, as *tls.Conn does, so that the engine finds the socket
// below. The handshake of a TLS connection is the caller's.
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

// Connections returns the number of connections that are served.
func (e *Engine) Connections() int { return int(e.conns.count.Load()) }

// enter counts a connection, unless the engine shuts down.
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

// Shutdown closes connections that wait for a request, says "Connection: close"
// on answers from now on, and returns when every connection has ended, upgraded
// ones last. What remains when ctx ends is cut off, which is logged and no error.
// A connection that comes later is closed.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	e.draining.Store(true)
	idle := e.idle
	if e.active > 0 && idle == nil {
		idle = make(chan struct{})
		e.idle = idle
	}
	e.mu.Unlock()
	defer func() {
		e.stop()
		e.sweeper.Wait()
	}()
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
	e.cfg.Log.Warn("connections were cut off by the end of the drain", "connections", e.Connections())
	again := time.NewTicker(tickTime)
	defer again.Stop()
	for { // what was between two phases the first time is not the next
		e.conns.each((*conn).cutAll)
		select {
		case <-idle:
			return nil
		case <-again.C:
		}
	}
}

// recoverIn keeps a defect in a goroutine of a connection from ending more than
// that.
func (e *Engine) recoverIn(what string) {
	if p := recover(); p != nil {
		e.cfg.Log.Error(what+" met a defect", "panic", p, "stack", string(debug.Stack()))
	}
}

// unmapped returns the address of an IPv4 client as such.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
