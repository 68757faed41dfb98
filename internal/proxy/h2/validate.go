package h2

import (
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/proxy"
)

// validates reports whether the request is to be held against the document of its gateway.
func (s *stream) validates() bool {
	return (s.Verdict.Action == admit.Forward || s.Verdict.Action == admit.Respond) && s.Validates()
}

// validate holds a request against the document of its gateway, with its body if need be.
func (s *stream) validate() error {
	ctx, done := s.context()
	length := int64(0)
	if s.hasBody && !s.tunnels {
		length = s.req.ContentLength()
	}
	err := s.BeginCheck(ctx, s.ask.Method, proxy.Head{Fields: s.req.Fields(), Text: s.req.Text, Named: s.req.Named()}, length)
	done()
	switch {
	case s.isCut():
		return errCut
	case err != nil:
		return err
	}
	var body []byte
	if s.Check().WantsBody() {
		if body, err = s.holdBody(); err != nil {
			return err
		}
	}
	return s.EndCheck(body)
}

// holdBody waits until all of the body has arrived, and returns it: it is in s.in until it is forwarded. It returns nil if the check does
// not want more of it, and then leaves what has come.
func (s *stream) holdBody() ([]byte, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { s.readingAt, s.continueAt = 0, 0 }()
	for given := 0; ; {
		switch {
		case s.why != notCut:
			return nil, errCut
		case s.tooLarge:
			return nil, proxy.BodyTooLarge(s.Verdict.Gateway.MaxBodyBytes)
		case s.crowded:
			return nil, proxy.TooManyBodies()
		}
		if !s.Check().Hold(int64(len(s.in)), int64(len(s.in))) {
			return nil, nil
		}
		if n := len(s.in) - given; n > 0 { // the client gets its window for it now, and not when it is forwarded
			given += n
			s.refilled += int64(n)
			c.proto.Consumed(s.id, n)
			c.flushLocked()
			continue // more may have come while it was being sent
		}
		if s.ended {
			s.expects = false
			return s.in, nil
		}
		if s.expects && !s.continued && s.received == 0 && s.continueAt == 0 {
			s.continueAt = c.engine.clock.Now()
		}
		if s.readingAt == 0 {
			s.readingAt = c.engine.clock.Now()
		}
		s.wake.Wait()
	}
}
