package h1

import (
	"context"
	"errors"
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/send"
)

// errCut is the error of waits that the sweeper has ended.
var errCut = errors.New("h1: the exchange was ended")

// forward sends an admitted request to its gateway's upstream, or leaves it to block.
func (c *conn) forward(x *exchange) step {
	cfg := &c.engine.cfg
	length := int64(0)
	if x.req.HasBody() {
		length = x.req.ContentLength()
	}
	if err := x.CheckForward(x, length, proxy.Loops(x.head, x.req.Fields(), cfg.Via)); err != nil {
		return c.refuse(x, err)
	}
	x.timeout = x.HeadTimeout()
	a := &x.attempt
	if err := a.Pick(cfg.Pools, &c.affinity, &x.Exchange, x.ask.Authorization); err != nil {
		return c.refuse(x, err)
	}
	a.Request = send.Request{
		Head: &x.req, Text: x.head, Trusted: c.info.Trusted, Body: x.req.HasBody(),
		Upgrade: a.SpeaksHTTP1() && x.req.Upgrade() && upgradeOf(&x.req, x.head) != nil,
		Hop: proxy.Hop{
			Verdict: &x.Verdict, RequestID: x.RequestID(), Client: c.client.Peer, TLS: c.info.TLS, Major: 1, Minor: x.req.Minor, Via: cfg.Via,
		},
	}
	if cfg.Tracer != nil {
		a.Trace = x.tracing
	}
	switch whole, err := a.Prepare(x); {
	case err != nil:
		return c.refuseBody(x, a.Fail(err))
	case !whole || a.Upgrade:
		return stepBlock
	}
	return c.exchange(x)
}

// upgradeOf returns the protocols that the request may ask the upstream to change to, or
// nil. A request that has a body or uses HTTP/1.0 is forwarded without its upgrade.
func upgradeOf(req *http1.Request, buf []byte) []byte {
	if !req.Upgrade() || req.Minor == 0 || req.HasBody() {
		return nil
	}
	protocols := proxy.AppendValues(nil, buf, req.Fields(), http1.Upgrade)
	if !proxy.MayUpgrade(proxy.Text(protocols)) {
		return nil
	}
	return protocols
}

// Write implements send.Client: it writes the head and the received part of the body.
func (x *exchange) Write() (whole bool, err error) {
	a := &x.attempt
	a.WriteHead()
	switch trip := a.H1(); {
	case x.resumed && a.Multiplexed(), trip != nil && trip.Resumed(): // Again has prepared the body
		return x.body.Done(), nil
	case x.resumed: // over HTTP/2 so far: its first part is in Attempt.Part
		x.body.GoOn(a.Framing())
		err := trip.AppendBody(a.Part)
		if err == nil && x.body.Done() {
			err = trip.EndBody(x.body.Trailers())
		}
		return x.body.Done(), err
	}
	a.Part = nil
	if a.End = !x.req.HasBody(); a.End {
		return true, nil
	}
	x.startBody()
	if received := x.in[x.after:x.stop]; len(received) > 0 {
		used, err := a.WriteReceived(&x.body, received)
		if err != nil {
			return false, err
		}
		x.took(used)
	}
	a.End = x.body.Done() && !x.hasTail()
	return x.body.Done(), nil
}

// startBody starts forwarding the request's body.
func (x *exchange) startBody() {
	in := http1.ByLength
	if x.req.Chunked() {
		in = http1.ByChunks
	}
	x.hasBody, x.bodyTaken = true, false
	x.after = x.start + x.req.End
	x.body.Start(in, x.req.ContentLength(), x.attempt.Framing())
	if bound := x.Verdict.Gateway.MaxBodyBytes; bound > 0 {
		x.body.Limit(bound)
	}
}

// took notes that n bytes of what was received belong to the body.
func (x *exchange) took(n int) {
	x.bodyTaken = true
	if x.after += n; !x.body.Done() {
		x.after = x.stop
	}
}

// hasTail reports whether the request has trailers, once its body has ended.
func (x *exchange) hasTail() bool {
	_, trailers := x.body.Trailers()
	return len(trailers) > 0
}

// Wait implements send.Client.
func (x *exchange) Wait(get func(ctx context.Context, until time.Time) error) error {
	c := x.c
	c.upstream.Store(nil)
	c.phase.enter(phaseExchange, 0)
	ctx, done := c.context()
	defer done()
	start := time.Now()
	err := get(ctx, start.Add(x.timeout))
	x.timeout = max(tickTime, x.timeout-time.Since(start))
	if x.why = c.phase.enter(phaseNone, 0); x.why != notCut {
		return errCut
	}
	return err
}

// Start implements send.Client: it prepares both halves for the response, and sets the phase in
// which the response is awaited, for the sweeper. If the rest of the body is still arriving, or an
// HTTP/2 upstream has no room for all of it, another goroutine forwards it.
func (x *exchange) Start(sent int) error {
	c, a := x.c, &x.attempt
	x.streaming, x.responded = false, false
	w := writerState{
		oldClient: x.req.Minor == 0, keep: x.req.KeepAlive(), trailers: x.req.WantsTrailers(),
		verdict: &x.Verdict, links: a.Links(), id: x.RequestID(), date: c.engine.clock.Date(), closing: x.closing,
	}
	if a.Upgrade {
		w.asked = upgradeOf(&x.req, x.head)
	}
	x.response.begin(w)
	if call := a.H2(); call != nil {
		c.setCall(call)
	}
	c.upstream.Store(a.Conn())
	c.uploadTimeout.Store(x.Verdict.Upstream.Timeout.Milliseconds())
	x.deadline = c.engine.clock.In(x.timeout)
	if c.phase.enter(phaseExchange, x.deadline) != notCut {
		x.response.keep = false // the connection was about to be closed
	}
	if x.part = a.Part[sent:]; a.Multiplexed() && x.hasBody && (!x.body.Done() || len(x.part) > 0 || x.hasTail()) {
		c.startUpload(x)
	} else if x.body.Done() {
		x.upload = nil // that of an earlier try
	}
	return nil
}

// Upload implements send.Client.
func (x *exchange) Upload(err error) {
	if err != nil { // the upstream may have responded before it closed the connection
		x.upload = newUpload(x)
		close(x.upload.done)
		return
	}
	x.c.startUpload(x)
}

// resume makes the body of the next try begin with what an upload has sent. It reports false if that was not kept.
func (x *exchange) resume() bool {
	a := &x.attempt
	x.bodyTaken, x.resumed = true, true
	if trip := a.H1(); trip != nil {
		return trip.Resume()
	}
	part, kept := a.H2().AppendSent(nil)
	a.Part, a.End = part, x.body.Done() && !x.hasTail()
	return kept
}

// Again implements send.Client. The bytes that an upload has sent are sent again first. It fails if they were not kept,
// or if the upload failed because of the client.
func (x *exchange) Again(err error) error {
	c := x.c
	if c.phase.wasCut() != notCut {
		return err
	}
	if x.upload != nil {
		c.endUpload(x)
		if x.upload.err != nil || !x.resume() {
			return err
		}
	}
	x.why = c.phase.enter(phaseNone, 0)
	c.upstream.Store(nil)
	c.dropCall(x)
	x.timeout = max(tickTime, time.Duration(x.deadline-c.engine.clock.Now())*time.Millisecond)
	if x.why != notCut {
		return errCut
	}
	return nil
}
