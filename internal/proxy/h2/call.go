package h2

import (
	"errors"
	"slices"
	"time"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream"
)

// tryForward forwards a request that has arrived whole to an upstream that takes it at once over
// HTTP/2. If waits is set, the response is awaited without a goroutine: see Relay and Resume.
// Otherwise, unless there is an error, a goroutine goes on at s.stage. It does not block, and
// leaves the request to be sent by sendRequests.
func (s *stream) tryForward() (waits bool, err error) {
	if !s.isSimple() {
		return false, nil
	}
	defer func() {
		if p := recover(); p != nil {
			waits, err = false, s.Panicked(p)
			s.call.Close()
			s.leave()
		}
	}()
	if err := s.check(); err != nil {
		return false, err
	}
	origin, _, err := s.prepare()
	if err != nil {
		return false, err
	}
	s.stage, s.origin, s.until = stageOpen, origin, time.Now().Add(s.HeadTimeout())
	pool := origin.Multiplexed()
	if pool.OnlyHTTP1() {
		return false, nil
	}
	s.writeCall()
	sent, later := s.call.TryOpenLater(pool, s.out, !s.tail)
	if later == nil {
		return false, nil
	}
	s.conn.sendRequests(later)
	if !s.beginCall(sent) {
		return false, s.settleCall(errCut)
	}
	s.stage = stageRun
	return s.whole && s.call.Await(s), nil
}

// isSimple reports whether tryForward may be able to forward the request.
func (s *stream) isSimple() bool {
	if s.conn.pump == nil || s.Verdict.Action != admit.Forward || s.tunnels || s.hasBody && !s.ended {
		return false
	}
	scheme := s.Verdict.Gateway.Upstream.Base.Scheme
	return scheme == "h2c" || scheme == "https" && !proxy.Binds(s.ask.Authorization) && !s.conn.bond.Any()
}

// sendRequests sends the requests that were opened on an upstream's connection, unless that is
// next, where more of them have been opened. The reader calls it.
func (c *conn) sendRequests(next upstream.Flusher) {
	if c.unsent != nil && c.unsent != next {
		c.unsent.Flush()
	}
	c.unsent = next
}

// Resume implements h1.Waiter.
func (s *stream) Resume() { s.conn.engine.workers.do(s) }

// Relay implements h1.Waiter: it relays the response if the client's connection has room for it,
// and otherwise leaves that to a goroutine.
func (s *stream) Relay() upstream.Flusher {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	n := s.call.Arrived()
	if s.why != notCut || c.proto.Pending()+n > maxOut || c.proto.Window(s.id) < n {
		s.Resume()
		return nil
	}
	s.concludeLocked(s.relay())
	if c.relayed {
		c.work.Done()
		return nil
	}
	c.relayed = true
	return c // whose Flush calls Done
}

// relay relays a response that has arrived whole and for which there is room. conn.mu is held.
func (s *stream) relay() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.Panicked(p)
		}
		s.calling = false
	}()
	to := lockedStream{s}
	if err := s.call.Run(to); err != nil {
		return err
	}
	return s.call.Finish(to)
}

// lockedStream is the h1.Receiver of a response that has arrived whole, and for which there is
// room, with conn.mu held.
type lockedStream struct{ *stream }

// TakeHead implements h1.Receiver.
func (s lockedStream) TakeHead(head []byte, r *http1.Response, body http1.Framing) error {
	return s.sendHead(head, r, body)
}

// TakeEnd implements h1.Receiver.
func (s lockedStream) TakeEnd(buf []byte, from, to int, section []byte, trailers []http1.Field) error {
	return s.sendEnd(buf[from:to], section, trailers, true)
}

// forwardCall exchanges the request with an upstream of scheme h2c or https: over HTTP/2, unless
// it speaks only HTTP/1.1.
func (s *stream) forwardCall() error {
	pool := s.origin.Pool()
	// A connection of HTTP/2 has requests of many clients, and cannot be bound to one.
	if s.origin.Multiplexed().OnlyHTTP1() || pool != nil && (s.binds || s.conn.bond.Has(pool)) {
		return s.forwardSecure()
	}
	s.writeCall()
	return s.afterCall(s.exchangeCall())
}

// writeCall writes the head of the request.
func (s *stream) writeCall() {
	r := s.request(s.origin)
	s.half = s.call
	s.call.Write(&r)
}

// afterCall goes on after the first exchange, which failed with err unless that is nil.
func (s *stream) afterCall(err error) error {
	if err != nil && s.mayCallAgain() {
		address := s.call.Address()
		s.leave()
		if !s.resume() {
			return upstream.At(address, err)
		}
		s.call.Again()
		err = s.exchangeCall()
	}
	switch {
	case errors.Is(err, upstream.ErrNoHTTP2):
		return s.forwardSecure()
	case errors.Is(err, upstream.ErrNoConnect):
		if s.Verdict.Gateway.Upstream.Base.Scheme == "https" { // most servers take a WebSocket only over HTTP/1.1
			return s.forwardSecure()
		}
		return proxy.NoWebSocket()
	}
	return s.settleCall(err)
}

// forwardSecure exchanges the request over HTTP/1.1 and TLS. Nothing of it was sent.
func (s *stream) forwardSecure() error {
	c := s.conn
	c.mu.Lock()
	if s.tunnels { // only the head is sent before the upstream has accepted
		s.in, s.out = append(s.out, s.in...), s.in[:0]
		s.whole = true
	}
	s.half = s.trip
	hint := c.hint
	c.mu.Unlock()
	return s.forwardTrip(s.origin, hint, s.until, true)
}

// exchangeCall sends the request and reads the response.
func (s *stream) exchangeCall() error {
	pool, end := s.origin.Multiplexed(), s.whole && !s.tail
	sent, ok := s.call.TryOpen(pool, s.out, end)
	if !ok {
		var err error
		if sent, err = s.open(pool, end); err != nil {
			return err
		}
	}
	if !s.beginCall(sent) {
		return errCut
	}
	return s.call.Run(s)
}

// open is TryOpen that waits. The error is errCut if the stream was cut.
func (s *stream) open(pool *upstream.H2Pool, end bool) (sent int, err error) {
	ctx, done := s.context()
	defer done()
	sent, err = s.call.Open(ctx, s.until, pool, s.out, end)
	return sent, s.waited(err)
}

// beginCall prepares for the response after sent bytes of the body were sent, and starts the
// upload of the rest. It reports false if the stream was cut.
func (s *stream) beginCall(sent int) bool {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.calling, s.sent = true, true
	if s.why != notCut {
		return false
	}
	s.deadline = c.engine.clock.At(s.until)
	if s.expects {
		s.continueAt = c.engine.clock.In(c.engine.cfg.Pools.ContinueTimeout())
	}
	s.forwarded = int64(sent)
	if s.whole = s.whole && sent == len(s.out) && !s.tail; s.whole {
		return true // the end of the stream frees its part of the window
	}
	s.give(sent)
	s.refill(sent)
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

// mayCallAgain reports whether a request whose call failed may be sent a second time.
func (s *stream) mayCallAgain() bool {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.calling || s.why != notCut || s.call.Lost() {
		return false
	}
	return s.call.Safe() || s.whole && s.call.Stale() && proxy.Retryable(s.ask.Method, s.hasBody)
}

// resume makes everything that has arrived of the request's body the part to be sent with the head a
// second time, after leave. It reports false if a part that was sent was not kept.
func (s *stream) resume() bool {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.whole {
		return true // s.out has it
	}
	var kept bool
	if s.out, kept = s.call.AppendSent(s.out[:0]); !kept || s.why != notCut {
		return false
	}
	s.out = append(s.out, s.in...)
	s.in = s.in[:0]
	s.refilled, s.forwarded = s.forwarded, 0
	s.whole, s.stopped, s.ending = s.ended, false, false
	return true
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
