package h1

import (
	"context"
	"io"
	"net"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// bridge is what the engine hands over when a request is admitted for an upstream that is
// not plain HTTP/1.1: serveBridged (adapter.go) makes an http.ResponseWriter and an
// *http.Request of it and calls Config.Forward.
type bridge struct {
	engine   *Engine
	conn     net.Conn // the adapter writes to it; only body reads from it
	info     *ConnInfo
	request  *http1.Request
	head     []byte          // the buffer of request's spans; until serveBridged returns
	exchange *proxy.Exchange // Config.Forward's from now on
	// body gives the request's body, decoded, and io.EOF at its end, after which its
	// trailers are known. Nil if the request has none. Nothing of it is read before the
	// first Read, so that a client with Expect: 100-continue waits. Close does nothing.
	body bridgeBody
	// ctx ends when the client has hung up, or the engine cuts the exchange off, with the
	// cause proxy.ErrCut.
	ctx context.Context //nolint:containedctx // it lives as long as the one exchange
	// hijack gives the adapter the reading side as well: it returns what was received
	// behind the head, and the rest is read from conn. The connection is closed when
	// serveBridged returns false. It is called only if the request has no body.
	hijack func() (buffered []byte)
	// date is the value of the field Date.
	date []byte
	// closing says that the response must say "Connection: close": the client asked for
	// it, or the engine shuts down.
	closing bool
}

// bridgeBody is a request's body for the adapter.
type bridgeBody interface {
	io.ReadCloser
	// Trailers returns the buffer and the fields of the trailer section, including those
	// that must not pass; none before io.EOF.
	Trailers() (buf []byte, fields []http1.Field)
	// Ended reports whether the body was read to its end.
	Ended() bool
}
