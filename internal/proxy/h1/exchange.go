package h1

import (
	"io"
	"time"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// exchange is one request with its response, seen from the client's connection, and the
// memory for it. Exchanges are pooled and serve one connection after another. All state of
// one request is in structs that reset zeroes. What is outside of them is either written
// before it is read, or made only once.
type exchange struct {
	c *conn // nil in the pool
	input
	requestState
	trip     roundTrip // the upstream half over HTTP/1.1
	call     *Call     // that over HTTP/2; nil until the first one
	body     recoder   // the request's body, on its way to the upstream
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
	mode         mode

	writer requestWriter
	exchangeCall
	hasBody   bool // the request's body is forwarded
	bodyTaken bool // the part of the body that was received with the head is in trip.out
	upload    *upload
	timeout   time.Duration // for the head of the response, connecting included
	deadline  int64         // of timeout, in the engine's milliseconds

	binds bool // the upstream's connection will be bound to the client's after the exchange
	bound bool // it was bound before

	forwarded bool // the request was sent to the upstream, at least in part
	streaming bool // the response's body is being relayed
	responded bool // the final head, or data, was sent to the client
}

// mode says what must be served with blocking calls.
type mode uint8

const (
	modeUpload  mode = iota // the body of the request is still arriving
	modeUpgrade             // the request may become a tunnel
	modeCall                // as modeUpload, over HTTP/2
	modeDrain               // the request was refused before its body arrived
)

// exchange returns an exchange for c.
func (e *Engine) exchange(c *conn) *exchange {
	x, ok := e.pools.exchanges.Get().(*exchange)
	if !ok {
		x = newExchange(&e.pools)
	}
	x.c = c
	return x
}

func newExchange(p *pools) *exchange {
	x := &exchange{}
	x.trip.pools = p
	x.trip.init()
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
	e.pools.exchanges.Put(x)
}

// reset prepares x for the next request and clears all state of the last one.
func (x *exchange) reset() {
	x.requestState = requestState{}
	x.trip.reset()
	if x.call != nil {
		x.call.Close()
		x.call.Reset()
	}
	x.body.start(http1.NoBody, 0, nil)
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
}

// mustClose reports whether the connection cannot serve another request after this one.
func (x *exchange) mustClose() bool {
	return x.c.engine.drain.Announced() || x.upload != nil && !x.upload.ending.Load() || x.isBound() && !x.trip.reader.keeps()
}

// isBound reports whether the upstream's connection and the client's must close together.
func (x *exchange) isBound() bool { return (x.binds || x.bound) && !x.calling }

// exchange sends the request in x.trip.out, unless it was sent already, and relays the
// response. In the pump it runs within onReadable.
func (c *conn) exchange(x *exchange) step {
	retry := !x.trip.sent
	if retry {
		c.begin(x)
	}
	for {
		err := x.trip.run()
		if err == nil {
			return c.finish(x)
		}
		if !retry || x.bound || x.trip.got || !x.trip.conn.Reused() || !c.repeatable(x) || c.phase.wasCut() != notCut {
			return c.fail(x, err)
		}
		retry = false
		if next := c.reconnect(x); next != stepReady {
			return next
		}
		c.begin(x)
	}
}

// begin prepares both halves for the response, and lets the sweeper know that it is
// awaited.
func (c *conn) begin(x *exchange) {
	x.trip.restart(x.ask.Method == "HEAD")
	x.trip.to = x
	x.forwarded, x.streaming, x.responded = true, false, false
	w := writerState{
		oldClient: x.req.Minor == 0, keep: x.req.KeepAlive(), trailers: x.req.WantsTrailers(),
		verdict: &x.Verdict, id: x.RequestID(), date: c.engine.clock.Date(), closing: x.closing,
	}
	if x.mode == modeUpgrade {
		w.asked = upgradeOf(&x.req, x.head)
	}
	x.response.begin(w)
	c.upstream.Store(x.trip.conn)
	c.uploadTimeout.Store(x.Verdict.Gateway.Upstream.Timeout.Milliseconds())
	x.deadline = c.engine.clock.In(x.timeout)
	if c.phase.enter(phaseExchange, x.deadline) != notCut {
		x.response.keep = false // the connection was about to be closed
	}
}

// TakeInterim relays a 1xx response.
func (x *exchange) TakeInterim(head []byte, r *http1.Response) error {
	if x.response.oldClient {
		return nil
	}
	out := relayed{head: x.response.interim(head, r)}
	u := x.upload
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
	x.MarkResponse(r.Status)
	if r.Status == 101 {
		return x.response.switched(head, r)
	}
	x.binds = x.binds || x.bound || BoundBy(head, r)
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
	out := x.response.data(buf, from, to)
	if err := x.deliver(&out); err != nil || x.trip.reader.phase == readTunnel {
		return err
	}
	if !x.streaming {
		x.streaming = true
		if why := x.c.phase.enter(phaseStream, 0); why != notCut {
			x.noteCut(why)
			return errTruncated
		}
	}
	return nil
}

// TakeEnd sends the end of the response to the client.
func (x *exchange) TakeEnd(buf []byte, from, to int, section []byte, trailers []http1.Field) error {
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

// CanSplice reports whether Splice works, which needs two plain sockets.
func (x *exchange) CanSplice() bool { return x.c.plain }

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

// finish ends an exchange whose response is complete, or which has become a tunnel.
func (c *conn) finish(x *exchange) step {
	if x.trip.reader.phase == readTunnel {
		return c.tunnel(x)
	}
	uploaded := c.endUpload(x)
	if !x.calling && x.trip.torn() {
		return c.fail(x, errTruncated)
	}
	why := c.phase.enter(phaseIdle, c.engine.clock.In(idleTime))
	x.noteCut(why)
	c.endHalf(x, why == notCut && uploaded)
	x.emitForwarded()
	err := x.finishHalf()
	switch {
	case err != nil || why == cutClientClosed:
		return stepClose
	case !uploaded || why != notCut || x.isBound() && !c.bond.Has(x.writer.origin.pool):
		return stepLinger
	case x.response.keep:
		return stepIdle
	case x.response.reset || !x.req.KeepAlive() && x.after == x.stop:
		return stepClose // as the client expects: it has nothing more to send
	default:
		return stepLinger
	}
}

// endHalf ends the use of the upstream's connection after a whole response. intact is set unless
// the exchange was cut off, and the whole request was sent.
func (c *conn) endHalf(x *exchange, intact bool) {
	if x.calling {
		c.endCall(x)
		return
	}
	up := x.trip.conn
	switch {
	case !intact || !x.trip.reusable():
		up.Discard()
	case x.binds:
		c.bond.Keep(up)
	default:
		x.trip.release()
	}
	c.hint, x.trip.conn = up, nil
}

// finishHalf relays the end of the response.
func (x *exchange) finishHalf() error {
	if !x.calling {
		return x.trip.finish()
	}
	x.trip.dropBuffer()
	return x.call.Finish(x)
}
