package nethttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

const (
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
	restTime    = time.Second

	defaultLinger = 100 * time.Millisecond
	// maxStreams is the number of concurrent requests on an HTTP/2 connection. Further
	// requests wait in the client.
	maxStreams = 250
	// maxFrame is the smallest limit that HTTP/2 allows.
	maxFrame = 16 << 10
)

func (s *Server) connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, s.describe(c))
}

// Config is the configuration of a Server.
type Config struct {
	proxy.Config
	// Trusted reports whether the peer of a connection is a trusted proxy, whose
	// X-Forwarded-* fields are accepted. It is called once for each connection. Nil trusts
	// none.
	Trusted func(net.Conn) bool
	// Linger is how long the stream of a refused request stays open after the response, to
	// wait for the end of the request's body. Some clients drop a response whose stream is
	// reset, and others do not end a refused body before the stream ends. Zero means 100
	// ms.
	Linger time.Duration
}

// Server serves the data plane on one or more listeners. It is safe for concurrent use.
type Server struct {
	cfg     Config
	http    *http.Server
	tunnels tunnels
	buffers buffers
	running atomic.Int64 // number of requests being served
	cutting atomic.Bool  // Shutdown is cutting off the remaining requests
}

// New returns a Server. It serves nothing until Serve is called.
func New(cfg Config) (*Server, error) {
	if err := cfg.SetDefaults(); err != nil {
		return nil, err
	}
	if cfg.Linger == 0 {
		cfg.Linger = defaultLinger
	}
	s := &Server{cfg: cfg}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler:   s,
		Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			MaxReadFrameSize:     maxFrame,
			SendPingTimeout:      pingAfter,
			PingTimeout:          pingTimeout,
			WriteByteTimeout:     proxy.StallTimeout,
		},
		ConnContext:       s.connContext,
		ReadHeaderTimeout: proxy.HeadTimeout,
		IdleTimeout:       proxy.IdleTimeout,
		// The gateway itself responds to a head that is slightly too large, net/http to a
		// far larger one.
		MaxHeaderBytes:               4 * http1.MaxHead,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Via returns the pseudonym that the server adds to Via.
func (s *Server) Via() string { return s.cfg.Via }

// Serve accepts connections on l until Shutdown, after which it returns nil. On those that
// are a *tls.Conn, ALPN has chosen HTTP/2.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(listener{l, s}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the data plane: %w", err)
	}
	return nil
}

// Shutdown drains the server: it stops accepting connections and waits for running
// requests, then for upgraded connections. When ctx ends, it cuts off the rest, which is
// logged and is not an error.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil && ctx.Err() != nil {
		s.cfg.Log.Warn("shutdown cut off requests")
		s.cutting.Store(true)
		err = s.http.Close()
	}
	if cut := s.tunnels.drain(ctx); cut > 0 {
		s.cfg.Log.Warn("shutdown cut off upgraded connections", "connections", cut)
	}
	s.rest()
	if err != nil {
		return fmt.Errorf("shut down the data plane: %w", err)
	}
	return nil
}

// rest waits until the requests that were cut off have ended, so that all of them are
// recorded, but at most restTime.
func (s *Server) rest() {
	limit, again := time.NewTimer(restTime), time.NewTicker(restTime/200)
	defer limit.Stop()
	defer again.Stop()
	for s.running.Load() > 0 {
		select {
		case <-again.C:
		case <-limit.C:
			return
		}
	}
}
