package nethttp

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

const (
	restTime      = time.Second
	defaultLinger = 100 * time.Millisecond
)

// Config is the configuration of a Server.
type Config struct {
	proxy.Config
	// Linger is how long the stream of a refused request stays open after the response, to
	// wait for the end of the request's body. Some clients drop a response whose stream is
	// reset, and others do not end a refused body before the stream ends. Zero means 100
	// ms.
	Linger time.Duration
}

// Server forwards requests that an engine has read and decided. It is safe for concurrent use.
type Server struct {
	cfg     Config
	tunnels tunnels
	buffers buffers
	running atomic.Int64 // number of requests being served
}

// New returns a Server.
func New(cfg Config) (*Server, error) {
	if err := cfg.SetDefaults(); err != nil {
		return nil, err
	}
	if cfg.Linger == 0 {
		cfg.Linger = defaultLinger
	}
	return &Server{cfg: cfg}, nil
}

// Via returns the pseudonym that the server adds to Via.
func (s *Server) Via() string { return s.cfg.Via }

// Shutdown waits for upgraded connections. When ctx ends, it cuts off the rest, which is
// logged and is not an error. The engines wait for other requests.
func (s *Server) Shutdown(ctx context.Context) error {
	if cut := s.tunnels.drain(ctx); cut > 0 {
		s.cfg.Log.Warn("shutdown cut off upgraded connections", "connections", cut)
	}
	s.rest()
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
