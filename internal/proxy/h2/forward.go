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

// forward exchanges the request with a plain HTTP/1.1 upstream.
func (s *stream) forward() error {
	c := s.conn
	g := s.Verdict.Gateway
	c.mu.Lock()
	if s.why != notCut { // the client has reset it at once: no connection is taken from others
		c.mu.Unlock()
		return errCut
	}
	if c.origin.Base() != g.Upstream.Base {
		o, err := c.engine.trips.Origin(g)
		if err != nil {
			c.mu.Unlock()
			return err
		}
		c.origin = o
	}
	origin, hint := c.origin, c.hint
	s.since = c.engine.clock.Now()
	if s.hasBody && s.ended && s.received == 0 && !s.tail && s.req.ContentLength() < 0 {
		s.req.SetNoBody() // the stream was ended by an empty frame
		s.hasBody = false
	}
	s.whole = !s.hasBody || s.ended
	s.uploadedAt = s.since
	s.in, s.out = s.out[:0], s.in
	tooLarge := s.tooLarge
	c.mu.Unlock()
	if tooLarge {
		return proxy.BodyTooLarge(g.MaxBodyBytes)
	}
	deadline := time.Now().Add(g.Upstream.Timeout)
	up := origin.Pool().Take(hint)
	if up == nil {
		var err error
		up, err = s.acquire(func(ctx context.Context) (*upstream.H1Conn, error) { return origin.Pool().Acquire(ctx, deadline, nil) })
		if err != nil {
			return err
		}
	}
	s.held = up
	// Only now: a request that waits for a connection holds no buffer.
	s.write(origin)
	err := s.exchange(up, deadline)
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
	s.write(origin)
	return s.settle(up, s.exchange(up, deadline))
}

// write writes the request, as far as it has arrived.
func (s *stream) write(origin h1.Origin) {
	e := s.conn.engine
	r := h1.TripRequest{
		Head: &s.req.Request, Text: s.req.Text, Origin: origin, Trusted: s.Client.Trusted,
		Hop: proxy.Hop{
			Verdict: &s.Verdict, RequestID: s.RequestID(), Client: s.Client.Peer, TLS: s.conn.tls != nil, Major: 2, Via: e.cfg.Via,
		},
	}
	if e.cfg.Tracer != nil {
		r.Trace = s.appendTraceparent
	}
	s.trip.Write(&r)
	if len(s.out) > 0 {
		s.trip.AppendBody(s.out)
	}
	if s.whole && s.hasBody {
		text, fields := s.trailerFields()
		s.trip.EndBody(text, fields)
	}
}

func (s *stream) appendTraceparent(dst []byte) []byte { return h1.AppendTraceparent(dst, &s.Exchange) }

// trailerFields returns the trailers of the request.
func (s *stream) trailerFields() (text []byte, fields []http1.Field) {
	if !s.tail {
		return nil, nil
	}
	return s.trailers.Text, s.trailers.Fields()
}

// acquire gets a connection to the upstream. The error is errCut if the stream was cut.
func (s *stream) acquire(get func(ctx context.Context) (*upstream.H1Conn, error)) (*upstream.H1Conn, error) {
	ctx, done := s.context()
	defer done()
	up, err := get(ctx)
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	switch {
	case err == nil:
		s.MarkSent()
	case s.why != notCut:
		err = errCut
	}
	return up, err
}

// exchange sends the request and reads the response. The connection is the caller's.
func (s *stream) exchange(up *upstream.H1Conn, deadline time.Time) error {
	c := s.conn
	c.mu.Lock()
	if s.why != notCut {
		c.mu.Unlock()
		return errCut
	}
	s.up = up
	s.deadline = c.engine.clock.At(deadline)
	if s.expects {
		s.continueAt = c.engine.clock.In(c.engine.cfg.Pools.ContinueTimeout())
	}
	s.uploading = !s.whole
	c.mu.Unlock()
	s.trip.Begin(up, s, s.ask.Method == "HEAD")
	switch {
	case s.whole:
		s.forwarded = int64(len(s.out)) // its part of the window is free with the stream
	case s.trip.Send() == nil:
		s.consumed()
		c.work.Add(1)
		go s.upload(up)
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
	return s.why == notCut && up.Reused() && !s.trip.Responding() && !s.trip.Lost() && proxy.Retryable(s.ask.Method, s.hasBody)
}

// leave ends the use of the upstream's connection, so that no cut concerns it, and ends an
// upload. It reports whether the connection is as it was: not cut, and the whole request sent.
func (s *stream) leave() (intact bool) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.uploading && s.ending && s.why == notCut && s.up != nil {
		// The last part is on its way. An upstream that does not take it is not waited for.
		_ = s.up.NetConn().SetWriteDeadline(time.Now().Add(lastPartTime))
		for s.uploading {
			s.wake.Wait()
		}
		_ = s.up.NetConn().SetWriteDeadline(time.Time{})
	}
	if s.uploading && s.up != nil {
		_ = s.up.NetConn().SetWriteDeadline(past)
		s.stopped = true
		s.wake.Broadcast()
		for s.uploading {
			s.wake.Wait()
		}
	}
	s.up = nil
	return s.why == notCut && !s.stopped && (s.whole || s.uploaded)
}

// settle ends an exchange: the connection is released, the record emitted, and the rest of
// the response sent.
func (s *stream) settle(up *upstream.H1Conn, err error) error {
	c := s.conn
	intact := s.leave()
	if err != nil {
		if !s.trip.Lost() {
			err = upstream.At(up.NetConn().RemoteAddr().String(), err)
		}
		s.discardConn()
		return err
	}
	if intact && s.trip.Reusable() {
		s.held = nil
		up.Release()
	} else {
		s.discardConn()
	}
	c.mu.Lock()
	c.hint = up
	c.mu.Unlock()
	return s.trip.Finish()
}

// discardConn closes the upstream's connection, if there is one.
func (s *stream) discardConn() {
	if s.held != nil {
		s.held.Discard()
		s.held = nil
	}
}
