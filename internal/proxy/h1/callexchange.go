package h1

import (
	"errors"
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream"
)

// exchangeCall is what an exchange whose upstream half is its Call knows of it, for one request.
type exchangeCall struct {
	calling bool   // the upstream half is x.call, not x.trip
	part    []byte // the first part of the request's body: what was received with its head, or all that was sent before
	sent    int    // how much of it was sent with the head
	waited  bool   // time has passed since the decision
	resumed bool   // the request is sent a second time, after a part of its body was read from the client
}

// forwardCall sends an admitted request to an upstream over HTTP/2, or leaves it to block.
func (c *conn) forwardCall(x *exchange) step {
	switch arrived, err := x.writeCall(); {
	case err != nil:
		return c.refuseBody(x, err)
	case !arrived:
		x.mode = modeCall
		return stepBlock
	}
	return c.exchangeCall(x)
}

// writeCall writes the head for x.call, and what was received of the body to x.part. It reports
// whether that is all of it.
func (x *exchange) writeCall() (arrived bool, err error) {
	if x.call == nil {
		x.call = &Call{}
	}
	x.call.write(x.writer, proxy.Confirmer{Exchange: &x.Exchange})
	if !x.req.HasBody() {
		return true, nil
	}
	x.startBody(nil)
	received := x.in[x.after:x.stop]
	if len(received) == 0 {
		return x.body.done, nil
	}
	room := x.trip.buffer().data[:0]
	room = append(room, received...)
	p, err := x.body.step(room, 0, len(room))
	if err != nil {
		return false, err
	}
	x.took(p.used)
	x.part = room[p.from:p.to]
	return x.body.done, nil
}

// hasTail reports whether the request has trailers, once its body has ended.
func (x *exchange) hasTail() bool {
	_, trailers := x.body.trailerSection()
	return len(trailers) > 0
}

// exchangeCall opens a stream for the request and relays the response. If the body is still
// arriving, or the server has no room for all of it, another goroutine forwards it.
func (c *conn) exchangeCall(x *exchange) step {
	for again := false; ; again = true {
		if next := c.openCall(x); next != stepReady {
			return next
		}
		x.calling = true
		c.setCall(x.call)
		c.begin(x)
		if x.hasBody && (!x.body.done || x.sent < len(x.part) || x.hasTail()) {
			c.startUpload(x)
		}
		err := x.call.Run(x)
		switch {
		case err == nil:
			return c.finish(x)
		case again || !c.mayCallAgain(x):
			return c.fail(x, err)
		}
		if next := c.callAgain(x); next != stepReady {
			return next
		}
	}
}

// openCall opens the stream of x.call, with as much of x.part as the server has room for. It returns
// stepReady, or the next step if it has no stream. A server that speaks only HTTP/1.1 gets the
// request over that.
func (c *conn) openCall(x *exchange) step {
	pool, end := x.writer.origin.calls, !x.hasBody || x.body.done && !x.hasTail()
	var ok bool
	if x.sent, ok = x.call.TryOpen(pool, x.part, end); ok {
		return stepReady
	}
	c.upstream.Store(nil)
	c.phase.enter(phaseExchange, 0)
	ctx, done := c.context()
	defer done()
	start := time.Now()
	var err error
	var denied *proxy.AccessError
	x.sent, err = x.call.Open(ctx, start.Add(x.timeout), pool, x.part, end)
	x.timeout = max(tickTime, x.timeout-time.Since(start))
	why := c.phase.enter(phaseNone, 0)
	switch {
	case err == nil && why == notCut:
		x.MarkSent()
		return stepReady
	case why != notCut:
		x.call.Close()
		return c.endUnsent(x, why)
	case errors.As(err, &denied):
		return c.refuse(x, x.Withdraw(denied.Result, !x.forwarded))
	case errors.Is(err, upstream.ErrNoHTTP2) && x.resumed:
		return c.refuse(x, proxy.Unreachable(err)) // the body begins in x.part
	case errors.Is(err, upstream.ErrNoHTTP2):
		x.mode, x.part, x.waited = modeUpload, nil, true
		x.trip.dropBuffer()
		return c.forwardTrip(x)
	}
	return c.refuse(x, err)
}

// setCall lets the sweeper interrupt a call. Nil prevents that, also while it does.
func (c *conn) setCall(call *Call) {
	c.callMu.Lock()
	defer c.callMu.Unlock()
	c.call = call
}

// interruptCall ends what the call waits for, if there is one.
func (c *conn) interruptCall() {
	c.callMu.Lock()
	defer c.callMu.Unlock()
	if c.call != nil {
		c.call.Interrupt()
	}
}

// endCall ends the use of x.call.
func (c *conn) endCall(x *exchange) {
	c.setCall(nil)
	x.call.Close()
}

// mayCallAgain reports whether a request whose call failed may be sent a second time. If a part of
// its body was forwarded by an upload, that has ended then.
func (c *conn) mayCallAgain(x *exchange) bool {
	switch {
	case x.call.Lost() || c.phase.wasCut() != notCut:
		return false
	case x.upload != nil:
		return x.call.Safe() && c.resume(x)
	}
	return x.call.Safe() || x.call.Stale() && proxy.Retryable(x.ask.Method, x.hasBody)
}

// resume ends the upload of a request that is sent a second time, and makes what it has sent the first
// part of the body. It reports false if that was not kept, or if the upload failed because of the client.
func (c *conn) resume(x *exchange) bool {
	c.endUpload(x)
	part, kept := x.call.AppendSent(nil)
	if !kept || x.upload.err != nil {
		return false
	}
	x.part, x.resumed, x.bodyTaken = part, true, true
	return true
}

// callAgain prepares to send the request a second time. It returns stepReady, or the next step if the
// sweeper has ended the exchange meanwhile.
func (c *conn) callAgain(x *exchange) step {
	why := c.phase.enter(phaseExchange, 0)
	c.endCall(x)
	x.calling = false
	if next := c.endedBetween(x, why); next != stepReady {
		return next
	}
	x.timeout = max(tickTime, time.Duration(x.deadline-c.engine.clock.Now())*time.Millisecond)
	x.call.Again()
	return stepReady
}

// endedBetween returns stepReady, or what follows if the sweeper has ended an exchange between two
// attempts.
func (c *conn) endedBetween(x *exchange, why cut) step {
	switch why {
	case notCut:
		return stepReady
	case cutTimeout:
		c.phase.enter(phaseNone, 0)
		return c.refuse(x, proxy.TimedOut(nil))
	default:
		c.phase.enter(phaseNone, 0)
		return c.endUnsent(x, why)
	}
}

// status returns the status of the response, whose head has arrived.
func (x *exchange) status() int {
	if x.calling {
		return x.call.Status()
	}
	return x.trip.reader.resp.Status
}

// moved returns how many bytes of the response's body have arrived.
func (x *exchange) moved() int64 {
	if x.calling {
		return x.call.Moved()
	}
	return x.trip.reader.body.moved
}

// lost reports whether the exchange failed because the client cannot be reached.
func (x *exchange) lost() bool { return x.trip.lost != nil || x.calling && x.call.Lost() }

// mayTrail reports whether trailers may follow a body of a declared length, as they may over HTTP/2, for a
// client that accepts them. Over HTTP/1.1 they follow chunks only.
func (x *exchange) mayTrail(body http1.Framing) bool {
	return x.calling && body == http1.ByLength && x.response.trailers && !x.response.oldClient && !x.call.Bare()
}

// isBare reports whether the head of a response without a length is all of it.
func (x *exchange) isBare(body http1.Framing) bool {
	return x.calling && body == http1.ByChunks && x.call.Bare()
}
