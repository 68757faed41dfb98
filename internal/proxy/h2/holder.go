package h2

import (
	"strconv"

	"github.com/keygate/keygate/internal/proxy"
)

// serveHolder lets a service respond to the holder of a key (admit.Serve).
func (s *stream) serveHolder() error {
	if s.tunnels {
		return proxy.NoTunnel()
	}
	var body []byte
	if s.ReadsBody() {
		var err error
		if body, err = s.holderBody(); err != nil {
			return err
		}
	}
	status, response, err := s.waitForService(body)
	if err != nil {
		return err
	}
	return s.sendOwn(status, response)
}

// respondByRoute sends the response of the route itself (admit.Respond).
func (s *stream) respondByRoute() error {
	if s.tunnels {
		return proxy.NoTunnel()
	}
	return s.sendOwn(s.RespondByRoute())
}

// holderBody waits until all of the request's body has arrived, and returns it.
func (s *stream) holderBody() ([]byte, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for s.hasBody && !s.ended && s.why == notCut && !s.tooLarge && !s.crowded {
		if s.expects && !s.continued && s.received == 0 && s.continueAt == 0 {
			s.continueAt = c.engine.clock.Now()
		}
		if s.readingAt == 0 {
			s.readingAt = c.engine.clock.Now()
		}
		s.wake.Wait()
	}
	s.readingAt, s.continueAt = 0, 0
	switch {
	case s.why != notCut:
		return nil, errCut
	case s.tooLarge:
		return nil, proxy.BodyTooLarge(proxy.MaxHolderBody)
	case s.crowded:
		return nil, proxy.TooManyBodies()
	}
	return s.in, nil // no more of it arrives
}

// waitForService waits for the response of the service.
func (s *stream) waitForService(body []byte) (status int, response []byte, err error) {
	ctx, done := s.context()
	defer done()
	if status, response, err = s.Serve(ctx, body); s.isCut() {
		err = errCut
	}
	return status, response, err
}

// sendOwn sends a response of the gateway itself, as fast as the client accepts it.
func (s *stream) sendOwn(status int, body []byte) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	length, bodyless := len(body), body == nil
	if s.ask.Method == "HEAD" {
		body = nil
	}
	s.emitOwn(status, len(body))
	if !s.beginHead(status) {
		return errCut
	}
	c.proto.Field([]byte("date"), c.engine.clock.Date(), false)
	if own := s.OwnType(); own != "" {
		c.proto.FieldString("content-type", own, false)
	}
	if !bodyless {
		c.proto.FieldString("content-length", strconv.Itoa(length), false)
	}
	s.EachOwnField(func(name, value string) { c.proto.FieldString(name, value, false) })
	s.ownFields()
	c.proto.EndHead(len(body) == 0)
	s.headed = true
	if len(body) > 0 {
		if err := s.send(body, true); err != nil {
			return err
		}
	}
	s.end()
	return nil
}
