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

	"golang.org/x/sys/unix"

	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/proxy/h1"
)

// The defaults of Config (contract, 4.5).
const (
	DefaultMaxConnections           = 65536
	DefaultMaxConnectionsPerAddress = 4096
	DefaultHeadTimeout              = 10 * time.Second
)

// HTTP1 serves connections of HTTP/1.1, as h1.Engine does.
type HTTP1 interface {
	ServeConn(c net.Conn, info h1.ConnInfo)
	Shutdown(ctx context.Context) error
}

// HTTP2 serves connections of HTTP/2, as h2.Server does.
type HTTP2 interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
}

// Config is what a Server is made of.
type Config struct {
	// HTTP1 and HTTP2 are the drivers. Required.
	HTTP1 HTTP1
	HTTP2 HTTP2
	// Trust is the proxies whose PROXY headers and X-Forwarded-* fields are
	// believed. Nil believes nobody.
	Trust *clientip.Trust
	// TLS makes the listeners speak TLS. It offers h2 and http/1.1 by ALPN. Nil
	// is plain TCP.
	TLS *tls.Config
	// MaxConnections bounds the open connections, MaxConnectionsPerAddress
	// those from one address, of IPv6 from one /64. A trusted proxy is not
	// bounded by its own address. 0 is the default.
	MaxConnections, MaxConnectionsPerAddress int
	// HeadTimeout is how long a connection may take to its first bytes of HTTP,
	// with its PROXY header and its handshake. 0 is the default.
	HeadTimeout time.Duration
	// Log receives trouble with listeners and connections. Nil discards.
	Log *slog.Logger
}

// Server accepts the connections of the data plane on one or more listeners. It
// is safe for concurrent use.
type Server struct {
	cfg     Config
	slots   *slots
	counts  counts
	waiting waiting  // connections of which no driver knows yet
	handed  *handoff // to HTTP2

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	closed    bool

	done      chan struct{} // closed when the shutdown begins
	begin     sync.Once
	http2     sync.WaitGroup // the goroutine of HTTP2.Serve
	accepting sync.WaitGroup // calls of Serve
	conns     sync.WaitGroup // goroutines of connections
}

// New returns a Server that accepts nothing until Serve. It logs if the
// process may not open as many files as there may be connections.
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
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < uint64(cfg.MaxConnections) {
		cfg.Log.Info("the process may open fewer files than there may be connections: raise its limit, or lower --max-connections",
			"files", files.Cur, "max_connections", cfg.MaxConnections)
	}
	return &Server{
		cfg:       cfg,
		slots:     newSlots(cfg.MaxConnections, cfg.MaxConnectionsPerAddress),
		handed:    newHandoff(),
		listeners: map[net.Listener]struct{}{},
		done:      make(chan struct{}),
	}, nil
}

// Shutdown closes the listeners and the connections that have not yet said
// anything, tells those that are idle or busy to end (GOAWAY in HTTP/2,
// "Connection: close" in HTTP/1.1), and waits for them, upgraded ones last. What
// still runs when ctx ends is cut off, which the drivers log and is no error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopAccepting()
	s.accepting.Wait()
	s.waiting.closeAll()
	var drivers sync.WaitGroup
	var err1, err2 error
	drivers.Go(func() { err1 = s.cfg.HTTP1.Shutdown(ctx) })
	drivers.Go(func() { err2 = s.cfg.HTTP2.Shutdown(ctx) })
	drivers.Wait()
	_ = s.handed.Close() // it always succeeds
	s.conns.Wait()
	s.http2.Wait()
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("shut the data plane down: %w", err)
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
		_ = l.Close() // it may be closed already
	}
}

// waiting knows the connections of which no driver knows yet.
type waiting struct {
	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
}

// add reports whether the connection may go on.
func (w *waiting) add(c *conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if w.conns == nil {
		w.conns = map[*conn]struct{}{}
	}
	w.conns[c] = struct{}{}
	return true
}

func (w *waiting) remove(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
}

// closeAll makes whatever the connections do fail. Their goroutines clean up.
func (w *waiting) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for c := range w.conns {
		_ = c.TCPConn.Close()
	}
}
