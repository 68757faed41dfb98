package nethttp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream"
)

const (
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
	restTime    = time.Second

	defaultLinger = 100 * time.Millisecond
	// maxStreams is the number of requests that a connection of HTTP/2 may have
	// at once. Others wait at the client.
	maxStreams = 250
	// maxFrame is what every client may send, and none has to be let exceed.
	maxFrame = 16 << 10
)

func (s *Server) connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, s.connect(c))
}

// Decider is what the driver needs of admit.Admitter.
type Decider interface {
	Decide(req *admit.Request, v *admit.Verdict)
	Wait(ctx context.Context, v *admit.Verdict) error
}

// Tracer makes requests part of traces (W3C Trace Context).
type Tracer interface {
	// Begin notes in a record, whose Request is set, which trace it is part of.
	// traceparent is the caller's field, empty without one.
	Begin(r *accesslog.Record, traceparent []byte)
	// Append appends the traceparent of the upstream, after Begin.
	Append(dst []byte, r *accesslog.Record, traceparent []byte) []byte
}

// Config is what a Server is made of.
type Config struct {
	// Admit decides. Required.
	Admit Decider
	// Pools are the connections to upstreams. Required.
	Pools *upstream.Pools
	// NewRequestID makes the 16 bytes of a request's identifier, given the
	// milliseconds since 1970. Nil makes UUIDv7s.
	NewRequestID func(ms int64) [16]byte
	// Via is the pseudonym of this instance in the field Via. A request that has
	// come through it before gets a 502, so it must be unlike that of any other
	// instance, and the same in all drivers of this one. "" makes a random one.
	Via string
	// Trusted tells that the X-Forwarded-* fields of the peer on a connection
	// are believed. It is called once for each. Nil believes nobody.
	Trusted func(net.Conn) bool
	// Trust tells which of the addresses in X-Forwarded-For are of proxies, when
	// the peer is a trusted one. Nil takes the last for the caller.
	Trust *clientip.Trust
	// Outcome gives a new connection the lane for the records of its requests.
	// Nil keeps none.
	Outcome func() *accesslog.Shard
	// Mono reads the monotonic clock of the Decider's verdicts, in nanoseconds.
	// Nil leaves durations out of records.
	Mono func() int64
	// Tracer, unless nil, sees every request, and its answers replace the field
	// traceparent. Nil lets that pass as it is.
	Tracer Tracer
	// Linger is how long the stream of a refused request waits, once the answer
	// is out, for the end of the request's body: some clients drop an answer whose
	// stream is reset, and others end no body that was refused before the stream
	// ends. Default: 100 ms.
	Linger time.Duration
	// Log receives what went wrong with upstreams. It never sees a key or a
	// query. Nil discards.
	Log *slog.Logger
}

// Server serves the data plane on one or more listeners. It is safe for
// concurrent use.
type Server struct {
	cfg     Config
	http    *http.Server
	tunnels tunnels
	buffers buffers
	running atomic.Int64 // requests
	cutting atomic.Bool  // what still runs is cut off
}

// New returns a Server that serves nothing until Serve.
func New(cfg Config) (*Server, error) {
	if cfg.Admit == nil || cfg.Pools == nil {
		return nil, errors.New("edge: Admit and Pools are required")
	}
	if cfg.NewRequestID == nil {
		cfg.NewRequestID = id.NewFastAt
	}
	if cfg.Mono == nil {
		cfg.Mono = func() int64 { return 0 }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Linger == 0 {
		cfg.Linger = defaultLinger
	}
	if cfg.Via == "" {
		cfg.Via = "keygate-" + rand.Text()
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
		// A head a little too large gets our answer; one far too large, net/http's.
		MaxHeaderBytes:               4 * http1.MaxHead,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Via returns the pseudonym that the server adds to Via.
func (s *Server) Via() string { return s.cfg.Via }

// Serve accepts connections on l until Shutdown, after which it returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the data plane: %w", err)
	}
	return nil
}

// Shutdown stops accepting, waits for the requests that run, and after them for
// the upgraded connections. What still runs when ctx ends is cut off, which is
// logged and no error.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil && ctx.Err() != nil {
		s.cfg.Log.Warn("requests were cut off by the end of the drain")
		s.cutting.Store(true)
		err = s.http.Close()
	}
	if cut := s.tunnels.drain(ctx); cut > 0 {
		s.cfg.Log.Warn("upgraded connections were cut off by the end of the drain", "connections", cut)
	}
	s.rest()
	if err != nil {
		return fmt.Errorf("shut the data plane down: %w", err)
	}
	return nil
}

// rest waits until requests that were cut off have noticed, so that all are told
// of; not for ever.
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
