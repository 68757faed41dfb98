package h1

import (
	"context"
	"net"
)

// Engine serves connections of HTTP/1.1. It is safe for concurrent use.
type Engine struct {
	cfg      Config
	adapters adapterBuffers
}

// New returns an Engine. Shutdown ends what it starts.
func New(cfg Config) (*Engine, error) {
	if cfg.Admit == nil || cfg.Pools == nil || cfg.Forward == nil {
		return nil, errConfig
	}
	return &Engine{cfg: cfg}, nil
}

// Via returns the pseudonym that the engine adds to Via.
func (e *Engine) Via() string { return e.cfg.Via }

// ServeConn serves c and returns when it has ended, closed. c is a *net.TCPConn,
// which is served by the pump, or any other connection; one that wraps another
// has the method NetConn, as *tls.Conn does, so that the engine finds the socket
// below. The handshake of a TLS connection is the caller's.
func (e *Engine) ServeConn(c net.Conn, info ConnInfo) { panic("h1: ServeConn") }

// Shutdown closes connections that wait for a request, says "Connection: close"
// on answers from now on, and returns when every connection has ended, upgraded
// ones last. What remains when ctx ends is cut off, which is logged and no error.
// A connection that comes later is closed.
func (e *Engine) Shutdown(ctx context.Context) error { panic("h1: Shutdown") }
