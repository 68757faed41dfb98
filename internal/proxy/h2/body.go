package h2

import (
	"cmp"
	"slices"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// data takes a part of the request's body. conn.mu is held.
func (s *stream) data(b []byte, end bool) {
	c := s.conn
	s.ended = s.ended || end
	if s.discard {
		s.drop(len(b))
		if end || s.discarded > proxy.DrainBytes {
			s.free()
		}
		return
	}
	if s.why != notCut || s.finished {
		c.proto.Consumed(s.id, len(b))
		s.miss(len(b) > 0)
		return
	}
	s.received += int64(len(b))
	s.readingAt, s.restsAt = 0, 0
	if bound := s.bound(); bound > 0 && s.received > bound {
		s.tooLarge = true
		s.wake.Broadcast()
		if s.since != 0 { // otherwise the goroutine refuses the request when it begins
			s.cut(cutBody)
		}
		return
	}
	if !c.bodies.Take(len(b)) {
		s.crowded = true
		s.wake.Broadcast()
		if s.since != 0 { // as above
			s.cut(cutCrowded)
		}
		return
	}
	s.taken += len(b)
	s.in = append(s.in, b...) // at most the window of the stream
	s.wake.Broadcast()
}

// miss stops the upload of a body after a part of it was dropped because the response has ended.
// Otherwise the upstream could take the rest for the whole body. conn.mu is held.
func (s *stream) miss(dropped bool) {
	s.stopped = s.stopped || dropped
	s.wake.Broadcast()
}

// bound returns max_body_bytes, or the bound of a service for holders of keys, or 0.
func (s *stream) bound() int64 {
	switch {
	case s.Verdict.Gateway == nil || s.tunnels:
		return 0
	case s.Verdict.Action == admit.Serve && s.ReadsBody():
		return proxy.MaxHolderBody
	}
	return s.Verdict.Gateway.MaxBodyBytes
}

// takeTrailers takes the trailers of a request, which end it. conn.mu is held.
func (s *stream) takeTrailers() {
	s.ended = true
	s.readingAt = 0
	switch {
	case s.discard:
		s.free()
		return
	case s.finished || s.why != notCut:
		s.miss(true)
		return
	case s.conn.proto.ReadTrailers(&s.trailers) == nil:
		s.tail = true
		s.holdTrailers()
	default:
		s.cut(cutReset) // malformed, or over the limits: the client knows
	}
	s.wake.Broadcast()
}

// holdTrailers counts the memory of long trailers (proxy.Bodies). conn.mu is held.
func (s *stream) holdTrailers() {
	n := len(s.trailers.Text)
	switch {
	case n <= proxy.FreeHead:
	case s.conn.bodies.Take(n):
		s.taken += n
	default:
		s.crowded = true
		if s.since != 0 { // as in data
			s.cut(cutCrowded)
		}
	}
}

// consumed notes that out was sent, and lets the client send the same number of bytes.
func (s *stream) consumed() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(s.out); n > 0 {
		s.give(n)
		s.forwarded += int64(n)
		s.Passed(s.forwarded, 0)
		s.uploadedAt = c.engine.clock.Now()
		s.refill(n)
		s.out = s.out[:0]
		c.flushLocked()
	}
}

// give gives back n bytes of the body (proxy.Bodies). conn.mu is held.
func (s *stream) give(n int) {
	n = min(n, s.taken)
	s.taken -= n
	s.conn.bodies.Give(n)
}

// upload forwards the body while another goroutine waits for the response and relays it. send
// sends the part in out, and the end of the request if last is set.
func (s *stream) upload(send func(last bool) error) {
	c := s.conn
	defer c.work.Done()
	complete := false
	defer func() {
		if p := recover(); p != nil {
			c.engine.cfg.Log.Error("upload panicked", "request_id", s.RequestID(), "panic", p)
			c.mu.Lock()
			s.cut(cutPanicked)
			c.mu.Unlock()
		}
		s.uploadEnded(complete)
	}()
	for {
		last, ok := s.nextPart()
		if !ok {
			return
		}
		if err := send(last); err != nil || last { // the response, or the lack of one, decides what follows
			complete = err == nil
			return
		}
		s.consumed()
	}
}

// sendOver sends a part of the body over HTTP/1.1. Also after an error, the end follows the last part, so that both are kept if
// the body is.
func (s *stream) sendOver(last bool) (err error) {
	trip := s.attempt.H1()
	if len(s.out) > 0 {
		if cap(s.room) > keepBytes && len(s.out) < cap(s.room)/4 {
			s.room = nil
		}
		s.room, err = trip.SendData(s.room, s.out)
	}
	if !last {
		return err
	}
	return cmp.Or(err, trip.SendEnd(s.trailerFields()))
}

// sendPart sends a part of the body over HTTP/2.
func (s *stream) sendPart(last bool) error {
	call := s.attempt.H2()
	if last && s.tail {
		if err := call.Send(s.out, false); err != nil {
			return err
		}
		return call.SendTrailers(s.trailerFields())
	}
	return call.Send(s.out, last)
}

// nextPart waits for a part of the body, which is then in out. last is set if it is the last part.
// ok is false if the upload must end.
func (s *stream) nextPart() (last, ok bool) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(s.in) == 0 && !s.ended && s.why == notCut && !s.stopped {
		if s.readingAt == 0 && !s.tunnels && (!s.expects || s.received > 0) {
			s.readingAt = c.engine.clock.Now()
		}
		if s.restsAt == 0 {
			s.restsAt = c.engine.clock.Now()
		}
		s.wake.Wait()
	}
	s.readingAt, s.restsAt = 0, 0
	if s.why != notCut || s.stopped {
		return false, false
	}
	s.in, s.out = s.out[:0], fitted(s.in)
	if s.ended {
		s.ending = true
		s.forwarded += int64(len(s.out))
		s.refill(len(s.out))
	}
	return s.ended, true
}

// shrink gives up memory of an upload, which is not in proxy.Bodies once it was forwarded: the memory for the next
// part and, after restTime without a part, all of it. conn.mu is held.
func (s *stream) shrink(now int64) {
	if len(s.in) > 0 { // not forwarded yet, though the goroutine that forwards may still be about to wake up
		return
	}
	switch {
	case s.restsAt != 0 && now-s.restsAt >= (restTime+tickTime).Milliseconds(): // the goroutine that forwards waits
		s.in, s.out, s.room = nil, nil, nil
	default:
		s.in = kept(s.in)
	}
}

// fitted returns b in memory that is not much larger, because the memory may have held a larger part before.
func fitted(b []byte) []byte {
	if cap(b) > keepBytes && len(b) < cap(b)/4 {
		return slices.Clone(b)
	}
	return b
}

// refill gives the client window for n forwarded bytes, except for bytes that are forwarded a second time, for
// which the client has got its window already. conn.mu is held.
func (s *stream) refill(n int) {
	again := min(int64(n), s.refilled)
	s.refilled -= again
	s.conn.proto.Consumed(s.id, n-int(again))
}

// uploadEnded records that no goroutine forwards the body.
func (s *stream) uploadEnded(complete bool) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.uploading, s.uploaded = false, complete
	s.wake.Broadcast()
}

// isEmpty reports whether nothing follows the head of a response: neither data nor trailers.
func (s *stream) isEmpty(r *http1.Response, body http1.Framing) bool {
	if s.attempt.Bare() {
		return true
	}
	trailers := s.calling && s.req.WantsTrailers() // which may follow a body of length 0
	return body == http1.NoBody || body == http1.ByLength && r.ContentLength() == 0 && !trailers
}
