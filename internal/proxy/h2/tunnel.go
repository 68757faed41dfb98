package h2

import (
	"errors"
	"io"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/upstream"
)

// asksForWebSocket reports whether an extended CONNECT asks for a WebSocket (contract, 4.5).
func (s *stream) asksForWebSocket() bool {
	return string(s.req.Protocol.Of(s.req.Text)) == "websocket"
}

// tunnel relays between the stream and a connection that has switched to WebSocket. It ends when
// the upstream closes its side, which ends the response, or when either side breaks. rest is what
// the upstream has sent so far.
func (s *stream) tunnel(up upstream.HalfCloser, rest []byte) error {
	c := s.conn
	c.mu.Lock()
	s.uploading = true
	c.mu.Unlock()
	c.work.Add(1)
	go s.upload(func(last bool) error {
		_, err := up.Write(s.out)
		if err == nil && last {
			err = up.CloseWrite()
		}
		return err
	})
	if err := s.sendTunneled(rest); err != nil {
		return err
	}
	b := c.engine.buffer()
	defer c.engine.buffers.Put(b)
	for {
		n, err := up.Read(b[:])
		if n > 0 {
			if err := s.sendTunneled(b[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return s.endTunnel()
		case err != nil:
			return err
		}
	}
}

// sendTunneled sends what the upstream has sent.
func (s *stream) sendTunneled(b []byte) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.tunneled += int64(len(b))
	err := s.send(b, false)
	c.flushLocked()
	s.Passed(0, s.bytesOut())
	return err
}

// endTunnel ends the response after the upstream has closed its side.
func (s *stream) endTunnel() error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.ReadEnd(nil, nil, nil)
	s.emitForwarded(http1.StatusOK, s.tunneled)
	if err := s.send(nil, true); err != nil {
		return err
	}
	s.end()
	return nil
}

// bytesOut returns how many bytes of the response's body, or through its tunnel, have arrived.
func (s *stream) bytesOut() int64 { return s.attempt.Moved() + s.tunneled }

// statusOut returns the status that was sent to the client.
func (s *stream) statusOut() int {
	if status := s.attempt.Status(); status != http1.StatusSwitchingProtocols {
		return status
	}
	return http1.StatusOK
}
