package h1

import (
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// newOrigin returns the origin of a gateway's upstream.
func newOrigin(pools *upstream.Pools, g *snapshot.Gateway) (*origin, error) {
	base := g.Upstream.Base
	o := &origin{base: base, prefix: upstream.Prefix(base), path: upstream.Path(base)}
	var err error
	if base.Scheme == "http" {
		o.pool, err = pools.Plain(proxy.OriginOf(g))
	} else {
		o.calls, err = pools.Multiplexed(proxy.OriginOf(g))
	}
	if err != nil {
		return nil, proxy.Unreachable(err)
	}
	if o.calls != nil {
		o.pool = o.calls.HTTP1()
	}
	return o, nil
}

// forward sends an admitted request to its gateway's upstream, or leaves it to block.
func (c *conn) forward(x *exchange) step {
	g := x.Verdict.Gateway
	if err := x.CheckForward(x, x.req.ContentLength(), loops(x.head, x.req.Fields(), c.engine.cfg.Via)); err != nil {
		return c.refuse(x, err)
	}
	x.timeout = x.HeadTimeout()
	o, err := c.originOf(g)
	if err != nil {
		return c.refuse(x, err)
	}
	x.mode = modeUpload
	if o.pool != nil && x.req.Upgrade() && upgradeOf(&x.req, x.head) != nil {
		x.mode = modeUpgrade
	}
	x.writer = requestWriter{
		req: &x.req, buf: x.head, verdict: &x.Verdict, origin: o,
		trusted: c.info.Trusted, upgrade: x.mode == modeUpgrade,
		hop: proxy.Hop{
			Verdict: &x.Verdict, RequestID: x.RequestID(), Client: c.client.Peer, TLS: c.info.TLS, Major: 1, Minor: x.req.Minor, Via: c.engine.cfg.Via,
		},
	}
	if c.engine.cfg.Tracer != nil {
		x.writer.trace = x.tracing
	}
	// An HTTP/2 connection carries requests of many clients, so it cannot be bound to one.
	if x.binds = proxy.Binds(x.ask.Authorization); o.calls != nil && x.mode != modeUpgrade && !o.calls.OnlyHTTP1() &&
		(o.pool == nil || !x.binds && !c.bond.Has(o.pool)) {
		return c.forwardCall(x)
	}
	return c.forwardTrip(x)
}

// forwardTrip sends an admitted request to an upstream over HTTP/1.1, or leaves it to block.
func (c *conn) forwardTrip(x *exchange) step {
	whole, err := x.write()
	switch {
	case err != nil:
		return c.refuseBody(x, err)
	case !whole || x.mode == modeUpgrade:
		return stepBlock
	}
	if next := c.acquire(x); next != stepReady {
		return next
	}
	return c.exchange(x)
}

// write writes the head, and what was received of the body, to x.trip.out. It reports
// whether that is the whole request.
func (x *exchange) write() (whole bool, err error) {
	out := x.writer.append(x.trip.buffer().data[:0], &x.trip.body)
	x.trip.out = out
	if !x.req.HasBody() {
		return true, nil
	}
	x.startBody(&x.trip.body)
	b := &x.body
	received := x.in[x.after:x.stop]
	if len(received) == 0 {
		return false, nil
	}
	// The body is recoded after the head, with the room around it that this needs, and then
	// moved up to the head.
	const before, behind = 24, 8
	head := len(out)
	out = append(out, make([]byte, before)...)
	out = append(out, received...)
	out = append(out, make([]byte, behind)...)
	start := head + before
	p, err := b.step(out, start, start+len(received))
	if err != nil {
		return false, err
	}
	x.took(p.used - start)
	n := copy(out[head:], out[p.from:p.to])
	out = append(out[:head+n], p.end...)
	x.trip.out = out
	return b.done, nil
}

// startBody starts forwarding the request's body. to is nil if the upstream half does the framing.
func (x *exchange) startBody(to *framing) {
	in := http1.ByLength
	if x.req.Chunked() {
		in = http1.ByChunks
	}
	b := &x.body
	x.hasBody, x.bodyTaken = true, false
	x.after = x.start + x.req.End
	b.start(in, x.req.ContentLength(), to)
	if bound := x.Verdict.Gateway.MaxBodyBytes; bound > 0 {
		b.room = bound
	}
}

// took notes that n bytes of what was received belong to the body.
func (x *exchange) took(n int) {
	x.bodyTaken = true
	if x.after += n; !x.body.done {
		x.after = x.stop
	}
}

// acquire gets a connection to the upstream. It returns stepReady, or the next step if it
// has none.
func (c *conn) acquire(x *exchange) step {
	o := x.writer.origin
	if x.trip.conn = c.bond.Take(o.pool); x.trip.conn != nil {
		x.bound = true
		return c.confirm(x, x.waited)
	}
	x.trip.conn = o.pool.Take(c.hint)
	if x.trip.conn != nil {
		return c.confirm(x, x.waited)
	}
	c.upstream.Store(nil)
	c.phase.enter(phaseExchange, 0)
	ctx, done := c.context()
	defer done()
	start := time.Now()
	up, err := o.pool.Acquire(ctx, start.Add(x.timeout), nil)
	x.timeout = max(tickTime, x.timeout-time.Since(start))
	return c.acquired(x, up, err)
}

// acquired handles the result of acquiring a connection.
func (c *conn) acquired(x *exchange, up *upstream.H1Conn, err error) step {
	why := c.phase.enter(phaseNone, 0)
	switch {
	case err == nil && why == notCut:
		x.trip.conn = up
		x.MarkSent()
		return c.confirm(x, true)
	case err == nil:
		up.Discard()
		return c.endUnsent(x, why)
	case why != notCut:
		return c.endUnsent(x, why)
	}
	return c.refuse(x, err)
}

// confirm makes the second look, directly before the request is sent over x.trip.conn. It returns
// stepReady, or the next step if the request may not go on.
func (c *conn) confirm(x *exchange, waited bool) step {
	denied := x.Confirm(waited)
	if denied == nil {
		return stepReady
	}
	if x.bound {
		c.bond.Keep(x.trip.conn)
	} else {
		x.trip.conn.Release()
	}
	x.trip.conn = nil
	return c.refuse(x, x.Withdraw(denied.Result, !x.forwarded))
}

// endUnsent ends an exchange that the sweeper has ended while it waited for a connection.
func (c *conn) endUnsent(x *exchange, why cut) step {
	if why == cutAccess {
		return c.refuse(x, x.Withdraw(c.denied, !x.forwarded))
	}
	return x.emitNoResponse(why) // the client hung up, or a shutdown cut it off
}

// repeatable reports whether the request may be sent a second time.
func (c *conn) repeatable(x *exchange) bool {
	return x.trip.lost == nil && proxy.Retryable(x.ask.Method, x.req.HasBody())
}

// reconnect prepares to send the request a second time, over a new connection.
func (c *conn) reconnect(x *exchange) step {
	why := c.phase.enter(phaseExchange, 0)
	c.upstream.Store(nil)
	x.trip.discard()
	if next := c.endedBetween(x, why); next != stepReady {
		return next
	}
	ctx, done := c.context()
	defer done()
	left := time.Duration(x.deadline-c.engine.clock.Now()) * time.Millisecond
	up, err := x.writer.origin.pool.Connect(ctx, time.Now().Add(max(tickTime, left)))
	x.timeout = max(tickTime, left)
	if next := c.acquired(x, up, err); next != stepReady {
		return next
	}
	_, err = x.write()
	if err != nil {
		return stepClose
	}
	return stepReady
}
