package h2

import (
	"context"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/send"
)

// forward exchanges the request with the upstream.
func (s *stream) forward() error {
	if err := s.prepare(); err != nil {
		return err
	}
	return s.settle(s.attempt.Run(s))
}

// prepare begins the attempt with what has arrived of the request. out then holds that part of the
// body.
func (s *stream) prepare() error {
	if err := s.begin(); err != nil {
		return err
	}
	cfg := &s.conn.engine.cfg
	s.until = time.Now().Add(s.HeadTimeout())
	s.attempt.Request = send.Request{
		Head: &s.req.Request, Text: s.req.Text, Trusted: s.Client.Trusted, Body: s.hasBody,
		Hop: proxy.Hop{
			Verdict: &s.Verdict, RequestID: s.RequestID(), Client: s.Client.Peer, TLS: s.conn.tls != nil, Major: 2, Via: cfg.Via,
		},
	}
	if cfg.Tracer != nil {
		s.attempt.Trace = s.AppendTraceparent
	}
	if s.tunnels {
		s.key = send.NewWebSocketKey()
		s.attempt.WebSocketKey = s.key
	}
	return nil
}

// begin is the part of prepare that needs conn.mu.
func (s *stream) begin() error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.why != notCut { // the client has reset it at once, so no connection is taken from others
		return errCut
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
	s.in, s.out = s.out[:0], s.in
	switch {
	case s.tooLarge:
		return proxy.BodyTooLarge(s.Verdict.Gateway.MaxBodyBytes)
	case s.crowded:
		return proxy.TooManyBodies()
	}
	return s.attempt.Pick(c.engine.cfg.Pools, &c.affinity, &s.Exchange, s.ask.Authorization)
}

// Write implements send.Client.
func (s *stream) Write() (whole bool, err error) {
	a := &s.attempt
	a.WriteHead()
	if a.Multiplexed() {
		a.Part, a.End = s.out, s.whole && !s.tail
		return s.whole, nil
	}
	if s.tunnels { // nothing follows the head before the upstream has accepted
		s.conn.mu.Lock()
		s.in, s.out = append(s.out, s.in...), s.in[:0]
		s.whole = true
		s.conn.mu.Unlock()
		return true, nil
	}
	trip := a.H1()
	if trip.Resumed() { // resumeOver has prepared the body
		return s.whole, nil
	}
	if err := trip.AppendBody(s.out); err != nil || !s.whole || !s.hasBody {
		return s.whole, err
	}
	return true, trip.EndBody(s.trailerFields())
}

// trailerFields returns the trailers of the request.
func (s *stream) trailerFields() (text []byte, fields []http1.Field) {
	if !s.tail {
		return nil, nil
	}
	return s.trailers.Text, s.trailers.Fields()
}

// Wait implements send.Client.
func (s *stream) Wait(get func(ctx context.Context, until time.Time) error) error {
	ctx, done := s.context()
	defer done()
	err := get(ctx, s.until)
	if err != nil && s.isCut() {
		return errCut
	}
	return err
}

// isCut reports whether the stream was cut.
func (s *stream) isCut() bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.why != notCut
}

// Start implements send.Client. If not all of a body was sent over HTTP/2, another goroutine forwards
// the rest.
func (s *stream) Start(sent int) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.calling = s.attempt.Multiplexed()
	if s.why != notCut {
		return errCut
	}
	s.deadline = c.engine.clock.At(s.until)
	if s.expects {
		s.continueAt = c.engine.clock.In(c.engine.cfg.Pools.ContinueTimeout())
	}
	if !s.calling {
		s.wire = s.attempt.Conn().NetConn()
		if s.uploading = !s.whole; s.whole && !s.attempt.H1().Resumed() {
			s.forwarded = int64(len(s.out)) // the end of the stream frees its part of the window
		}
		return nil
	}
	s.forwarded = int64(sent)
	if s.whole = s.whole && sent == len(s.out) && !s.tail; s.whole {
		return nil // as above
	}
	s.give(sent)
	s.refill(sent)
	s.in = slices.Insert(s.in, 0, s.out[sent:]...)
	s.out = s.out[:0]
	s.uploading = true
	c.work.Add(1)
	go s.upload(s.sendPart)
	return nil
}

// Upload implements send.Client.
func (s *stream) Upload(err error) {
	if err != nil { // the upstream may have responded before it closed the connection
		s.uploadEnded(false)
		return
	}
	s.consumed()
	s.conn.work.Add(1)
	go s.upload(s.sendOver)
}

// Again implements send.Client.
func (s *stream) Again(err error) error {
	if s.isCut() {
		return err
	}
	s.leave()
	if s.attempt.Multiplexed() && !s.resume() || !s.attempt.Multiplexed() && !s.resumeOver() {
		return err
	}
	return nil
}

// resumeOver prepares, after leave, to send the request again over HTTP/1.1. If an upload has sent a part of its body, that is
// kept, and the rest follows. It reports false if that part was not kept.
func (s *stream) resumeOver() bool {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.whole {
		return true // s.out has it
	}
	if s.why != notCut || !s.attempt.H1().Resume() {
		return false
	}
	if n := len(s.out); n > 0 { // it was being sent
		s.give(n)
		if !s.ending {
			s.forwarded += int64(n)
			s.refill(n)
		}
		s.out = s.out[:0]
	}
	s.whole = s.ending
	s.stopped, s.uploaded = false, false
	return true
}

// resume prepares, after leave, to send the request a second time over HTTP/2, with everything of its body
// that has arrived. It reports false if a part that was sent was not kept.
func (s *stream) resume() bool {
	c, a := s.conn, &s.attempt
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.whole {
		return true // s.out has it
	}
	var kept bool
	if s.out, kept = a.H2().AppendSent(s.out[:0]); !kept || s.why != notCut {
		return false
	}
	s.out = append(s.out, s.in...)
	s.in = s.in[:0]
	s.refilled, s.forwarded = s.refilled+s.forwarded, 0
	s.whole, s.stopped, s.ending = s.ended, false, false
	a.Part, a.End = s.out, s.whole && !s.tail
	return true
}

// leave ends the use of the upstream's connection, so that no cut concerns it, and ends an
// upload. It reports whether the connection is as it was: not cut, and the whole request sent.
func (s *stream) leave() (intact bool) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.calling { // what it has not sent is dropped
		c.mu.Unlock()
		s.attempt.H2().Close()
		c.mu.Lock()
	}
	if s.uploading && s.ending && s.why == notCut && s.wire != nil {
		// The last part is on its way. If the upstream does not take it, leave does not wait.
		_ = s.wire.SetWriteDeadline(time.Now().Add(proxy.LastPartTime))
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

// settle ends an exchange whose attempt has ended with err: it emits the record, and sends the rest of
// the response. If the upstream has accepted a WebSocket, settle first relays it to its end.
func (s *stream) settle(err error) error {
	a := &s.attempt
	tunneled := err == nil && a.Tunnels()
	if tunneled {
		rest := a.Tunnel()
		err = s.tunnel(a.Conn().NetConn(), rest)
	}
	intact := s.leave()
	if err == nil && !tunneled {
		err = a.Torn()
	}
	defer s.part()
	if err != nil || tunneled {
		if s.timedOut() {
			a.TimedOut()
		}
		return a.Fail(err)
	}
	a.Release(intact)
	return a.Finish(s)
}

// timedOut reports whether the stream was cut because the upstream did not respond in time.
func (s *stream) timedOut() bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.why == cutTimeout
}

// abandon ends the attempt of a stream that has panicked.
func (s *stream) abandon() {
	s.leave()
	_ = s.attempt.Fail(nil)
	s.part()
}

// part ends the client's connection if the upstream's connection that was bound to it has ended.
func (s *stream) part() {
	if c := s.conn; s.attempt.Parted() {
		c.mu.Lock()
		c.parting = true
		c.mu.Unlock()
	}
}
