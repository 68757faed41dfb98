package h1

import (
	"context"
	"io"
	"net"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// foreign is what the engine hands over when a request is admitted for an
// upstream that is not plain HTTP/1.1: serveForeign (adapter.go) makes an
// http.ResponseWriter and *http.Request of it, calls Config.Forward and tells
// whether the connection can serve another request.
type foreign struct {
	engine   *Engine
	conn     net.Conn // written to by the adapter, read by body alone
	info     *ConnInfo
	request  *http1.Request
	head     []byte          // the buffer that request's spans are of; until serveForeign returns
	exchange *proxy.Exchange // Config.Forward's from now on
	// body gives the request's body, decoded; io.EOF at its end, after which
	// trailers are known. Nil if the request has none. Its Close does nothing.
	// Nothing of it is read before the first Read, so that a client with
	// Expect: 100-continue waits.
	body foreignBody
	// ctx ends when the client has left, or the engine cuts the exchange off.
	ctx context.Context //nolint:containedctx // it lives as long as the one exchange
	// hijack gives the adapter the reading side as well: what was received
	// behind the head, and conn. The connection is closed when serveForeign
	// returns false. Only if the request has no body.
	hijack func() (buffered []byte)
	// date is the value of the field Date.
	date []byte
	// closing tells that the answer must say "Connection: close": the client
	// asked for it, or the engine shuts down.
	closing bool
}

// foreignBody is a request's body for the adapter.
type foreignBody interface {
	io.ReadCloser
	// Trailers returns the buffer and the fields of the trailer section, those
	// included that must not pass; none before io.EOF.
	Trailers() (buf []byte, fields []http1.Field)
	// Ended reports whether the body was read to its end.
	Ended() bool
}
