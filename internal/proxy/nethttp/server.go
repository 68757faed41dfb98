package nethttp

import (
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

const defaultLinger = 100 * time.Millisecond

// Config is the configuration of a Server.
type Config struct {
	proxy.Config
	// Linger is how long the stream of a refused request stays open after the response, to
	// wait for the end of the request's body. Some clients drop a response whose stream is
	// reset, and others do not end a refused body before the stream ends. Zero means 100
	// ms.
	Linger time.Duration
}

// Server forwards requests that an engine has read and decided, and which that engine ends in
// a shutdown. It is safe for concurrent use.
type Server struct {
	cfg     Config
	buffers buffers
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
