package h2

import (
	"errors"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/h1"
	"github.com/keygate/keygate/internal/upstream"
)

// forwardCall exchanges the request with an upstream of scheme h2c or https over HTTP/2, or
// leaves it to Config.Forward if the upstream speaks only HTTP/1.1.
func (s *stream) forwardCall(origin h1.Origin, deadline time.Time) error {
	pool := origin.Multiplexed()
	if pool.HTTP1() {
		return s.forwardSecure(origin, deadline)
	}
	r := s.request(origin)
	s.half = s.call
	s.call.Write(&r)
	err := s.exchangeCall(pool, deadline)
	if err != nil && s.mayCallAgain(err) {
		s.leave()
		s.call.Again()
		err = s.exchangeCall(pool, deadline)
	}
	switch {
	case errors.Is(err, upstream.ErrNoHTTP2):
		return s.forwardSecure(origin, deadline)
	case errors.Is(err, upstream.ErrNoConnect):
		if s.Verdict.Gateway.Upstream.Base.Scheme == "https" { // most servers take a WebSocket only over HTTP/1.1
			return s.tunnelSecure(origin, deadline)
		}
		return proxy.NoWebSocket()
	}
	return s.settleCall(err)
}

// forwardSecure forwards a request to an upstream over TLS that speaks only HTTP/1.1.
func (s *stream) forwardSecure(origin h1.Origin, deadline time.Time) error {
	if s.tunnels {
		return s.tunnelSecure(origin, deadline)
	}
	return s.bridge()
}

// exchangeCall sends the request and reads the response.
func (s *stream) exchangeCall(pool *upstream.H2Pool, deadline time.Time) error {
	end := s.whole && !s.tail
	sent, ok := s.call.TryOpen(pool, s.out, end)
	if !ok {
		var err error
		if sent, err = s.open(pool, deadline, end); err != nil {
			return err
		}
	}
	if !s.beginCall(sent, deadline) {
		return errCut
	}
	return s.call.Run(s)
}

// open is TryOpen that waits. The error is errCut if the stream was cut.
func (s *stream) open(pool *upstream.H2Pool, deadline time.Time, end bool) (sent int, err error) {
	ctx, done := s.context()
	defer done()
	sent, err = s.call.Open(ctx, deadline, pool, s.out, end)
	return sent, s.waited(err)
}

// beginCall prepares for the response after sent bytes of the body were sent, and starts the
// upload of the rest. It reports false if the stream was cut.
func (s *stream) beginCall(sent int, deadline time.Time) bool {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.calling = true
	if s.why != notCut {
		return false
	}
	s.deadline = c.engine.clock.At(deadline)
	if s.expects {
		s.continueAt = c.engine.clock.In(c.engine.cfg.Pools.ContinueTimeout())
	}
	s.forwarded = int64(sent)
	if s.whole = s.whole && sent == len(s.out) && !s.tail; s.whole {
		return true // the end of the stream frees its part of the window
	}
	c.proto.Consumed(s.id, sent)
	s.in = slices.Insert(s.in, 0, s.out[sent:]...)
	s.out = s.out[:0]
	s.uploading = true
	c.work.Add(1)
	go s.upload(s.sendPart)
	return true
}

// sendPart sends the part of the body in out, which is the last one if last is set.
func (s *stream) sendPart(last bool) error {
	if last && s.tail {
		if err := s.call.Send(s.out, false); err != nil {
			return err
		}
		text, fields := s.trailerFields()
		return s.call.SendTrailers(text, fields, s.Verdict.Gateway.Withheld)
	}
	return s.call.Send(s.out, last)
}

// mayCallAgain reports whether a request that failed with err may be sent a second time.
func (s *stream) mayCallAgain(err error) bool {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.calling || s.why != notCut || s.call.Lost() || s.call.Responding() || !s.whole {
		return false
	}
	return s.call.Safe() || proxy.Retryable(s.ask.Method, s.hasBody) && !errors.As(err, new(*upstream.ResetError))
}

// settleCall ends an exchange: the call is closed, the record emitted, and the rest of the
// response sent.
func (s *stream) settleCall(err error) error {
	if err != nil && s.calling && !s.call.Lost() {
		err = upstream.At(s.call.Address(), err)
	}
	s.leave()
	if err != nil {
		return err
	}
	return s.call.Finish(s)
}

// half is the upstream half of an exchange.
type half interface {
	Lost() bool
	Status() int
	Moved() int64
}
