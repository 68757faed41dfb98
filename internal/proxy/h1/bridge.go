package h1

import (
	"context"
	"io"
	"net"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// bridge is a request that was admitted for an upstream that does not speak plain HTTP/1.1.
// serveBridged (adapter.go) makes an http.ResponseWriter and an *http.Request of it and
// calls Config.Forward.
type bridge struct {
	engine   *Engine
	conn     net.Conn // the adapter writes to it; only body reads from it
	info     *ConnInfo
	request  *http1.Request
	head     []byte          // the buffer of request's spans; valid until serveBridged returns
	exchange *proxy.Exchange // belongs to Config.Forward from now on
	// body reads the request's body, decoded, and returns io.EOF at its end, after which
	// its trailers are known. It is nil if the request has none. Nothing is read from the
	// client before the first Read, so that a client with Expect: 100-continue waits. Close
	// does nothing.
	body bridgeBody
	// ctx ends when the client hangs up, or when the engine cuts off the exchange: then its
	// cause is proxy.ErrCut.
	ctx context.Context //nolint:containedctx // it lives as long as the one exchange
	// hijack hands the reading side of conn to the adapter as well. It returns what was
	// received after the head; the rest is read from conn. The connection is closed when
	// serveBridged returns false. hijack is called only if the request has no body.
	hijack func() (buffered []byte)
	// date is the value of the Date field.
	date []byte
	// closing is set if the response must contain "Connection: close": the client asked for
	// it, or the engine is shutting down.
	closing bool
}

// bridgeBody is a request's body for the adapter.
type bridgeBody interface {
	io.ReadCloser
	// Trailers returns the buffer and the fields of the trailer section, including those
	// that must not be forwarded. There are none before io.EOF.
	Trailers() (buf []byte, fields []http1.Field)
	// Ended reports whether the body was read to its end.
	Ended() bool
}
