package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/h1"
)

// Defaults of Config (contract, 4.5).
const (
	DefaultMaxConnections           = 65536
	DefaultMaxConnectionsPerAddress = 4096
	DefaultHeadTimeout              = 10 * time.Second
)

// HTTP1 serves HTTP/1.1 connections. h1.Engine implements it.
type HTTP1 interface {
	ServeConn(c net.Conn, info h1.ConnInfo)
	Announce()
	Shutdown(ctx context.Context) error
}

// HTTP2 serves the HTTP/2 connections that a listener accepts. h2.Engine
// implements it.
type HTTP2 interface {
	Serve(l net.Listener) error
	Announce()
	Shutdown(ctx context.Context) error
}

// Config configures a Server.
type Config struct {
	// HTTP1 and HTTP2 are the engines. Both are required.
	HTTP1 HTTP1
	HTTP2 HTTP2
	// Trust holds the networks of the trusted proxies: only from them are PROXY
	// headers and X-Forwarded-* fields accepted. Nil trusts no peer.
	Trust *clientip.Trust
	// TLS makes the listeners speak TLS, with ALPN choosing between h2 and
	// http/1.1. Nil means plain TCP.
	TLS *tls.Config
	// MaxConnections limits the open connections in total. 0 means
	// DefaultMaxConnections.
	MaxConnections int
	// MaxConnectionsPerAddress limits the open connections of one client
	// address, or of one /64 network for IPv6. It does not apply to the address of
	// a trusted proxy. 0 means DefaultMaxConnectionsPerAddress.
	MaxConnectionsPerAddress int
	// HeadTimeout bounds the time from accepting a connection to its first bytes
	// of HTTP, including the PROXY header and the TLS handshake. 0 means
	// DefaultHeadTimeout.
	HeadTimeout time.Duration
	// Inherited says that the listeners are sockets that another process opened and keeps open: connections queued
	// in them are left to the next server.
	Inherited bool
	// Linger closes connections in stages. Nil means a new Linger.
	Linger *proxy.Linger
	// Log receives errors of listeners and connections. Nil discards them.
	Log *slog.Logger
}

// Server accepts the connections of the data plane on one or more listeners. It
// is safe for concurrent use.
type Server struct {
	cfg        Config
	slots      *slots
	counters   counters
	pending    pendingConns // connections that have not reached an engine yet
	http2Conns *handoff     // the listener that HTTP2 serves

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	closed    bool

	done       chan struct{} // closed when the shutdown begins
	startHTTP2 sync.Once
	http2      sync.WaitGroup // the goroutine that runs HTTP2.Serve
	accepting  sync.WaitGroup // running calls of Serve
	conns      sync.WaitGroup // goroutines of connections
}

// New returns a Server. It accepts connections once Serve is called.
func New(cfg Config) (*Server, error) {
	if cfg.HTTP1 == nil || cfg.HTTP2 == nil {
		return nil, errors.New("edge: HTTP1 and HTTP2 are required")
	}
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = DefaultMaxConnections
	}
	if cfg.MaxConnectionsPerAddress == 0 {
		cfg.MaxConnectionsPerAddress = DefaultMaxConnectionsPerAddress
	}
	if cfg.HeadTimeout == 0 {
		cfg.HeadTimeout = DefaultHeadTimeout
	}
	if cfg.Linger == nil {
		cfg.Linger = &proxy.Linger{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		cfg:        cfg,
		slots:      newSlots(cfg.MaxConnections, cfg.MaxConnectionsPerAddress),
		http2Conns: newHandoff(),
		listeners:  map[net.Listener]struct{}{},
		done:       make(chan struct{}),
	}, nil
}

// Announce says that Shutdown will follow. New connections are still served, and with each response the
// client is asked to use another connection for its next request ("Connection: close", or GOAWAY over HTTP/2).
func (s *Server) Announce() {
	s.cfg.HTTP1.Announce()
	s.cfg.HTTP2.Announce()
}

// Shutdown drains the server. It closes the listeners, once the connections that have arrived there are accepted, waits for up to
// proxy.FirstRequestGrace for connections that have not reached an engine, whose first request
// may be on its way, and closes those that remain. Then it asks the clients of the other connections to end them
// (GOAWAY over HTTP/2, "Connection: close" over HTTP/1.1), and waits; upgraded connections end last. When ctx ends, the
// engines cut off what still runs and log it, which Shutdown does not report as an error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopAccepting()
	s.accepting.Wait()
	s.pending.settle(ctx)
	s.pending.closeAll()
	var engines sync.WaitGroup
	var err1, err2 error
	engines.Go(func() { err1 = s.cfg.HTTP1.Shutdown(ctx) })
	engines.Go(func() { err2 = s.cfg.HTTP2.Shutdown(ctx) })
	engines.Wait()
	_ = s.http2Conns.Close() // it always succeeds
	s.conns.Wait()
	s.http2.Wait()
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("shut down the data plane: %w", err)
	}
	return nil
}

func (s *Server) stopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	close(s.done)
	for l := range s.listeners {
		tcp, ok := l.(*net.TCPListener)
		if !ok || s.cfg.Inherited || refuseNew(tcp) != nil || tcp.SetDeadline(time.Now().Add(acceptLast)) != nil {
			_ = l.Close() // it may be closed already
		}
	}
}

// acceptLast is for how long a shutdown accepts connections whose handshake was under way when it began.
const acceptLast = 100 * time.Millisecond

// pendingConns holds the connections that have not reached an engine yet, so that
// Shutdown can close them.
type pendingConns struct {
	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
	none   chan struct{} // if set, closed when there are no more connections
}

// add adds a connection. It returns false after closeAll.
func (p *pendingConns) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if p.conns == nil {
		p.conns = map[*conn]struct{}{}
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *pendingConns) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	if len(p.conns) == 0 && p.none != nil {
		close(p.none)
		p.none = nil
	}
}

// settle waits until an engine has every connection, but no longer than proxy.FirstRequestGrace, nor
// than ctx. No connection may be added meanwhile.
func (p *pendingConns) settle(ctx context.Context) {
	p.mu.Lock()
	if len(p.conns) == 0 {
		p.mu.Unlock()
		return
	}
	none := make(chan struct{})
	p.none = none
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, proxy.FirstRequestGrace)
	defer cancel()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// closeAll closes the sockets of all connections. Their goroutines fail at their
// next read and release the slots.
func (p *pendingConns) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for c := range p.conns {
		_ = c.TCPConn.Close()
	}
}
