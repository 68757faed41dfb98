package h2

import (
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
			s.abandon()
		}
	}()
	if err := s.check(); err != nil {
		return false, err
	}
	if err := s.prepare(); err != nil {
		return false, err
	}
	s.stage = stageRun
	sent, later, err := s.attempt.TryOpen(s)
	if later == nil {
		return false, err
	}
	s.conn.sendRequests(later)
	if err := s.Start(sent); err != nil {
		return false, s.settle(err)
	}
	return s.whole && s.attempt.Await(s), nil
}

// isSimple reports whether tryForward may be able to forward the request.
func (s *stream) isSimple() bool {
	if s.conn.pump == nil || s.Verdict.Action != admit.Forward || s.tunnels || s.hasBody && !s.ended || s.validates() {
		return false
	}
	scheme := s.Verdict.Upstream.Targets[0].Base.Scheme
	return scheme == "h2c" || scheme == "https" && !proxy.Binds(s.ask.Authorization) && !s.conn.affinity.Any()
}

// sendRequests sends the requests that were opened on an upstream's connection. It does nothing if
// that is the connection next, on which more requests have been opened. The reader calls it.
func (c *conn) sendRequests(next upstream.Flusher) {
	if c.unsent != nil && c.unsent != next {
		c.unsent.Flush()
	}
	c.unsent = next
}

// Resume implements send.Waiter.
func (s *stream) Resume() { s.conn.engine.workers.do(s) }

// Relay implements send.Waiter: it relays the response if the client's connection has room for it,
// and otherwise leaves it to a goroutine. So it does with one whose body is read for its cost, which may take long.
func (s *stream) Relay() upstream.Flusher {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	n := s.attempt.H2().Arrived()
	if s.why != notCut || !s.attempt.Relays() || s.Verdict.Cost.ReadsBody() || c.proto.Pending()+n > maxOut || c.proto.Window(s.id) < n {
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
			_ = s.attempt.Fail(nil)
		}
		s.calling = false
	}()
	return s.attempt.Relay(lockedStream{s})
}

// lockedStream is the message.Receiver of a response that has arrived whole, and for which there is
// room, with conn.mu held.
type lockedStream struct{ *stream }

// TakeHead implements message.Receiver.
func (s lockedStream) TakeHead(head []byte, r *http1.Response, body http1.Framing) error {
	return s.sendHead(head, r, body)
}

// TakeEnd implements message.Receiver.
func (s lockedStream) TakeEnd(buf []byte, from, to int, section []byte, trailers []http1.Field) error {
	s.ReadEnd(buf[from:to], section, trailers)
	return s.sendEnd(buf[from:to], section, trailers, true)
}
