package h2

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/h1"
	"github.com/keygate/keygate/internal/upstream"
)

// lastPartTime is how long the last part of a body may take to be sent once the response is
// complete.
const lastPartTime = time.Second

// forward exchanges the request with the upstream.
func (s *stream) forward() error {
	origin, hint, err := s.prepare()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(s.HeadTimeout())
	s.binds = proxy.Binds(s.ask.Authorization)
	if origin.Multiplexed() != nil {
		s.origin, s.until = origin, deadline
		return s.forwardCall()
	}
	return s.forwardTrip(origin, hint, deadline, false)
}

// forwardTrip exchanges the request with the upstream over HTTP/1.1. waited is set if time may have
// passed since the decision.
func (s *stream) forwardTrip(origin h1.Origin, hint *upstream.H1Conn, deadline time.Time, waited bool) (err error) {
	up := s.conn.bond.Take(origin.Pool())
	if s.onBond = up != nil; up == nil {
		up = origin.Pool().Take(hint)
	}
	if up != nil {
		if denied := s.Confirm(waited); denied != nil {
			if s.onBond {
				s.conn.bond.Keep(up)
			} else {
				up.Release()
			}
			return denied
		}
	} else {
		up, err = s.acquire(func(ctx context.Context) (*upstream.H1Conn, error) { return origin.Pool().Acquire(ctx, deadline, nil) })
		if err != nil {
			return err
		}
	}
	s.held = up
	// Only now: a request that waits for a connection holds no buffer.
	if err := s.write(origin); err != nil {
		s.discardConn()
		return err
	}
	err = s.exchange(up, deadline)
	if err == nil || !s.mayRepeat(up) {
		return s.settle(up, err)
	}
	s.leave()
	s.discardConn()
	up, err = s.acquire(func(ctx context.Context) (*upstream.H1Conn, error) { return origin.Pool().Connect(ctx, deadline) })
	if err != nil {
		return err
	}
	s.held = up
	s.trip.Reset()
	if err := s.write(origin); err != nil {
		s.discardConn()
		return err
	}
	return s.settle(up, s.exchange(up, deadline))
}

// prepare begins the exchange with what has arrived of the request. out then holds that part of
// the body.
func (s *stream) prepare() (o h1.Origin, hint *upstream.H1Conn, err error) {
	c := s.conn
	g := s.Verdict.Gateway
	c.mu.Lock()
	defer c.mu.Unlock()
	origin := c.origin
	if s.why != notCut { // the client has reset it at once: no connection is taken from others
		return o, nil, errCut
	}
	if c.origin.Base() != g.Upstream.Base {
		if origin, err = c.engine.trips.Origin(g); err != nil {
			return o, nil, err
		}
		c.origin = origin
	}
	s.since = c.engine.clock.Now()
	if d, ok := s.CallTimeout(); ok {
		s.callUntil = s.since + d.Milliseconds() + tickTime.Milliseconds()
	}
	if s.hasBody && s.ended && s.received == 0 && !s.tail && s.req.ContentLength() < 0 {
		s.req.SetNoBody() // the stream was ended by an empty frame
		s.hasBody = false
	}
	s.whole = !s.hasBody || s.ended
	s.uploadedAt = s.since
	if s.tunnels && origin.Multiplexed() == nil {
		s.whole, s.out = true, s.out[:0] // nothing follows the head before the upstream has accepted
	} else {
		s.in, s.out = s.out[:0], s.in
	}
	if s.tooLarge {
		return o, nil, proxy.BodyTooLarge(g.MaxBodyBytes)
	}
	if s.crowded {
		return o, nil, proxy.TooManyBodies()
	}
	return origin, c.hint, nil
}

// request describes the request to the upstream.
func (s *stream) request(origin h1.Origin) h1.TripRequest {
	e := s.conn.engine
	r := h1.TripRequest{
		Head: &s.req.Request, Text: s.req.Text, Origin: origin, Confirm: proxy.Confirmer{Exchange: &s.Exchange}, Trusted: s.Client.Trusted,
		Hop: proxy.Hop{
			Verdict: &s.Verdict, RequestID: s.RequestID(), Client: s.Client.Peer, TLS: s.conn.tls != nil, Major: 2, Via: e.cfg.Via,
		},
	}
	if e.cfg.Tracer != nil {
		r.Trace = s.AppendTraceparent
	}
	if s.tunnels {
		s.key = h1.NewWebSocketKey()
		r.WebSocketKey = s.key
	}
	return r
}

// write writes the request, as far as it has arrived.
func (s *stream) write(origin h1.Origin) error {
	r := s.request(origin)
	s.trip.Write(&r)
	if err := s.trip.AppendBody(s.out); err != nil || !s.whole || !s.hasBody || s.tunnels {
		return err
	}
	text, fields := s.trailerFields()
	return s.trip.EndBody(text, fields)
}

// trailerFields returns the trailers of the request.
func (s *stream) trailerFields() (text []byte, fields []http1.Field) {
	if !s.tail {
		return nil, nil
	}
	return s.trailers.Text, s.trailers.Fields()
}

// acquire gets a connection to the upstream, and makes the second look. The error is errCut if the
// stream was cut.
func (s *stream) acquire(get func(ctx context.Context) (*upstream.H1Conn, error)) (*upstream.H1Conn, error) {
	ctx, done := s.context()
	defer done()
	up, err := get(ctx)
	if err := s.waited(err); err != nil {
		return nil, err
	}
	if denied := s.Confirm(true); denied != nil {
		up.Release()
		return nil, denied
	}
	return up, nil
}

// waited handles the result of waiting for a connection. The error is errCut if the stream was
// cut.
func (s *stream) waited(err error) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	switch {
	case err == nil:
		s.MarkSent()
	case s.why != notCut:
		return errCut
	}
	return err
}

// exchange sends the request and reads the response. The connection is the caller's.
func (s *stream) exchange(up *upstream.H1Conn, deadline time.Time) error {
	c := s.conn
	c.mu.Lock()
	if s.why != notCut {
		c.mu.Unlock()
		return errCut
	}
	s.wire, s.sent = up.NetConn(), true
	s.deadline = c.engine.clock.At(deadline)
	if s.expects {
		s.continueAt = c.engine.clock.In(c.engine.cfg.Pools.ContinueTimeout())
	}
	s.uploading = !s.whole
	c.mu.Unlock()
	s.trip.Begin(up, s, s.ask.Method == "HEAD")
	switch {
	case s.whole:
		s.forwarded = int64(len(s.out)) // the end of the stream frees its part of the window
	case s.trip.Send() == nil:
		s.consumed()
		c.work.Add(1)
		go s.upload(func(last bool) error { return s.sendOver(up, last) })
	default:
		s.uploadEnded(false)
	}
	return s.trip.Run()
}

// mayRepeat reports whether a request that failed may be sent a second time.
func (s *stream) mayRepeat(up *upstream.H1Conn) bool {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.why == notCut && !s.onBond && up.Reused() && !s.trip.Responding() && !s.trip.Lost() && proxy.Retryable(s.ask.Method, s.hasBody && !s.tunnels)
}

// leave ends the use of the upstream's connection, so that no cut concerns it, and ends an
// upload. It reports whether the connection is as it was: not cut, and the whole request sent.
func (s *stream) leave() (intact bool) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.calling { // what it has not sent is dropped
		c.mu.Unlock()
		s.call.Close()
		c.mu.Lock()
	}
	if s.uploading && s.ending && s.why == notCut && s.wire != nil {
		// The last part is on its way. An upstream that does not take it is not waited for.
		_ = s.wire.SetWriteDeadline(time.Now().Add(lastPartTime))
		for s.uploading {
			s.wake.Wait()
		}
		_ = s.wire.SetWriteDeadline(time.Time{})
	}
	if s.uploading {
		if s.wire != nil {
			_ = s.wire.SetWriteDeadline(past)
		}
		s.stopped = true
		s.wake.Broadcast()
		for s.uploading {
			s.wake.Wait()
		}
	}
	s.wire, s.calling = nil, false
	return s.why == notCut && !s.stopped && (s.whole || s.uploaded)
}

// settle ends an exchange: the connection is released, the record emitted, and the rest of
// the response sent.
func (s *stream) settle(up *upstream.H1Conn, err error) error {
	c := s.conn
	tunneled, intact, err := s.endTrip(up.NetConn(), err)
	switch {
	case err != nil || tunneled:
		s.discardConn()
		return err
	case intact && s.trip.Reusable():
		s.held = nil
		if s.binds || s.onBond {
			c.bond.Keep(up)
		} else {
			s.trip.Release()
		}
	default:
		s.discardConn()
	}
	c.mu.Lock()
	c.hint = up
	c.mu.Unlock()
	return s.trip.Finish()
}

// endTrip ends the use of the upstream's connection after s.trip has run with the result err. If
// the upstream has accepted a WebSocket, endTrip first relays that to its end. intact is as for
// leave. The error names the upstream's address unless the client was lost.
func (s *stream) endTrip(up upstream.HalfCloser, err error) (tunneled, intact bool, _ error) {
	if err == nil {
		var rest []byte
		if rest, tunneled = s.trip.Tunnel(); tunneled {
			err = s.tunnel(up, rest)
			s.trip.DropBuffer()
		}
	}
	intact = s.leave()
	if err == nil && !tunneled {
		err = s.trip.Torn()
	}
	if err != nil && !s.trip.Lost() {
		err = upstream.At(up.RemoteAddr().String(), err)
	}
	return tunneled, intact, err
}

// part ends the client's connection if the upstream's connection was bound to it.
func (s *stream) part() {
	if c := s.conn; s.onBond {
		c.mu.Lock()
		c.parting = true
		c.mu.Unlock()
	}
}

// discardConn closes the upstream's connection, if there is one.
func (s *stream) discardConn() {
	if s.held != nil {
		s.held.Discard()
		s.held = nil
		s.part()
	}
}
