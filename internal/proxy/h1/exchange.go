package h1

import (
	"io"
	"time"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/proxy/send"
)

// exchange is one request with its response, seen from the client's connection, and the
// memory for it. Exchanges are pooled and serve one connection after another. All state of one
// request is in structs that reset zeroes. Other fields are either written before they are read, or
// made only once.
type exchange struct {
	c *conn // nil in the pool
	input
	requestState
	attempt  send.Attempt    // the upstream half
	body     message.Recoder // the request's body, on its way to the upstream
	response responseWriter

	parser http1.RequestParser
	req    http1.Request // what parser has parsed

	closing func() bool             // mustClose, made once
	tracing func(dst []byte) []byte // AppendTraceparent, made once
}

// requestState is the state of one request. reset zeroes it.
type requestState struct {
	proxy.Exchange
	head         []byte // the buffer of req's spans, from the request's first byte
	known        bool   // the head was parsed
	ask          admit.Request
	forwardedFor [4]string // memory for ForwardedFor
	refused      bool      // before its body arrived
	continued    bool      // the gateway has sent a 100 itself, because it holds the body
	bodyRead     bool      // all of the body was read, for a service (admit.Serve)

	hasBody   bool // the request's body is forwarded
	bodyTaken bool // the part of the body that was received with the head was written to the attempt
	upload    *upload
	part      []byte        // the rest of Attempt.Part, to be sent over HTTP/2
	resumed   bool          // the request is sent a second time, after a part of its body was read from the client
	timeout   time.Duration // for the head of the response, connecting included
	deadline  int64         // of timeout, in the engine's milliseconds
	why       cut           // why the exchange was ended before a try, or between two

	streaming bool // the response's body is being relayed
	responded bool // the final head, or data, was sent to the client
}

// exchange returns an exchange for c.
func (e *Engine) exchange(c *conn) *exchange {
	x, ok := e.exchanges.Get().(*exchange)
	if !ok {
		x = newExchange(&e.buffers)
	}
	x.c = c
	return x
}

func newExchange(b *message.Buffers) *exchange {
	x := &exchange{}
	x.attempt.Init(b)
	x.input.reset()
	x.closing = x.mustClose
	x.tracing = x.AppendTraceparent
	x.reset()
	return x
}

// release returns x to the pool. Its connection keeps no part of it.
func (e *Engine) release(x *exchange) {
	x.reset()
	x.input.reset()
	x.c = nil
	e.exchanges.Put(x)
}

// reset prepares x for the next request and clears all state of the last one.
func (x *exchange) reset() {
	x.ReleaseBody()
	x.requestState = requestState{}
	x.attempt.Reset()
	x.body.Start(http1.NoBody, 0, nil)
	x.response.begin(writerState{})
	x.parser.Reset()
}

// nextRequest continues after a request that was served: with the same exchange if more
// bytes have been received, otherwise without one.
func (c *conn) nextRequest(x *exchange) {
	x.start = x.after
	if x.empty() {
		c.engine.release(x)
		c.x = nil
		return
	}
	x.reset()
	x.shrink()
}

// mustClose reports whether the connection cannot serve another request after this one.
func (x *exchange) mustClose() bool {
	return x.c.engine.drain.Announced() || x.upload != nil && !x.upload.ending.Load() || x.attempt.Parts()
}

// exchange sends the request and relays the response. In the pump it runs within onReadable.
func (c *conn) exchange(x *exchange) step {
	if err := x.attempt.Run(x); err != nil {
		return c.fail(x, err)
	}
	return c.finish(x)
}

// TakeInterim relays a 1xx response.
func (x *exchange) TakeInterim(head []byte, r *http1.Response) error {
	if x.response.oldClient {
		return nil
	}
	out := relayed{head: x.response.interim(head, r)}
	u := x.upload
	if x.continued && r.Status == http1.StatusContinue {
		return nil // the client already has one
	}
	if u == nil {
		return x.c.deliver(&out)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.settled = u.settled || x.response.continued
	if u.continued && r.Status == 100 {
		return nil // the client already has one
	}
	return x.c.deliver(&out)
}

// TakeHead edits the final head. It is sent with the data or end that follows.
func (x *exchange) TakeHead(head []byte, r *http1.Response, body http1.Framing) error {
	x.MarkResponse(head, r)
	if x.Check() != nil {
		x.dropHeld()
	}
	if r.Status == 101 {
		return x.response.switched(head, r)
	}
	x.attempt.NoteHead(head, r)
	bare := x.isBare(body)
	if x.mayTrail(body) {
		body = http1.ByChunks
	}
	x.response.final(head, r, body, bare)
	return nil
}

// TakeData sends data of the response's body to the client, after its head.
func (x *exchange) TakeData(buf []byte, from, to int) error {
	x.responded = true
	x.ReadData(buf[from:to])
	out := x.response.data(buf, from, to)
	err := x.deliver(&out)
	x.Passed(0, x.attempt.Moved())
	if err != nil || x.attempt.Tunnels() {
		return err
	}
	if !x.streaming {
		x.streaming = true
		if why := x.c.phase.enter(phaseStream, 0); why != notCut {
			x.noteCut(why)
			return message.ErrTruncated
		}
	}
	return nil
}

// TakeEnd sends the end of the response to the client, after its record.
func (x *exchange) TakeEnd(buf []byte, from, to int, section []byte, trailers []http1.Field) error {
	x.ReadEnd(buf[from:to], section, trailers)
	x.emitForwarded()
	out := x.response.end(buf, from, to, section, trailers)
	return x.c.deliver(&out)
}

// deliver sends to the client, possibly while the request's body is still being forwarded.
func (x *exchange) deliver(out *relayed) error {
	if u := x.upload; u != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.settled = true
	}
	return x.c.deliver(out)
}

// CanSplice reports whether Splice works, which needs two plain sockets. What is spliced passes uncounted until it ends.
func (x *exchange) CanSplice() bool { return x.c.plain && !x.IsMetered() }

// Splice moves data of the response from the upstream's socket to the client's.
func (x *exchange) Splice(from *io.LimitedReader) (int64, error) {
	x.c.writing.enter(phaseWriting, x.c.engine.clock.In(stallTime))
	n, err := x.c.engine.move(x.c.tcp, from)
	x.c.writing.enter(phaseNone, 0)
	return n, err
}

// deliver sends the parts of out to the client.
func (c *conn) deliver(out *relayed) error {
	if err := c.write(out.head); err != nil {
		return err
	}
	if err := c.write(out.body); err != nil {
		return err
	}
	return c.write(out.end)
}

// mayTrail reports whether trailers may follow a body of a declared length, as they may over HTTP/2, for a
// client that accepts them. Over HTTP/1.1 they follow chunks only.
func (x *exchange) mayTrail(body http1.Framing) bool {
	return x.attempt.Multiplexed() && body == http1.ByLength && x.response.trailers && !x.response.oldClient && !x.attempt.Bare()
}

// isBare reports whether a response without a length consists of its head alone.
func (x *exchange) isBare(body http1.Framing) bool {
	return body == http1.ByChunks && x.attempt.Bare()
}

// finish ends an exchange whose response is complete, or that has become a tunnel.
func (c *conn) finish(x *exchange) step {
	if x.attempt.Tunnels() {
		return c.tunnel(x)
	}
	uploaded := c.endUpload(x)
	if err := x.attempt.Torn(); err != nil {
		return c.fail(x, err)
	}
	why := c.phase.enter(phaseIdle, c.engine.clock.In(idleTime))
	x.noteCut(why)
	c.dropCall(x)
	alone := x.attempt.Release(why == notCut && uploaded)
	err := x.attempt.Finish(x)
	switch {
	case err != nil || why == cutClientClosed:
		return stepClose
	case !uploaded || why != notCut || alone:
		return stepLinger
	case x.response.keep:
		return stepIdle
	case x.response.reset || !x.req.KeepAlive() && x.after == x.stop:
		return stepClose // as the client expects: it has nothing more to send
	default:
		return stepLinger
	}
}
