package h2

import (
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/keygate/keygate/internal/proxy/h1"
	"github.com/keygate/keygate/internal/upstream"
)

// asksForWebSocket reports whether an extended CONNECT asks for a WebSocket (contract, 4.5).
func (s *stream) asksForWebSocket() bool {
	return string(s.req.Protocol.Of(s.req.Text)) == "websocket"
}

// halfCloser is a connection whose sending side can be closed.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// tunnelSecure opens a WebSocket to an upstream over TLS by an HTTP/1.1 upgrade, on a connection
// that serves nothing else.
func (s *stream) tunnelSecure(origin h1.Origin, deadline time.Time) error {
	c := s.conn
	conn, err := s.dialSecure(origin.Multiplexed(), deadline)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if denied := s.Confirm(true); denied != nil {
		return denied
	}
	c.mu.Lock()
	if s.why != notCut {
		c.mu.Unlock()
		return errCut
	}
	// Only the head is sent before the upstream has accepted.
	s.in, s.out = append(s.out, s.in...), s.in[:0]
	s.wire, s.half, s.whole, s.sent = conn, s.trip, true, true
	s.deadline = c.engine.clock.At(deadline)
	c.mu.Unlock()
	s.write(origin)
	tunneled, _, err := s.endTrip(conn, s.trip.RunOver(conn, s, false))
	if err != nil || tunneled {
		return err
	}
	return s.trip.Finish()
}

// dialSecure makes a connection for tunnelSecure. The error is errCut if the stream was cut.
func (s *stream) dialSecure(pool *upstream.H2Pool, deadline time.Time) (*upstream.SecureConn, error) {
	ctx, done := s.context()
	defer done()
	conn, err := pool.Secure(ctx, deadline)
	return conn, s.waited(err)
}

// tunnel relays between the stream and a connection that has switched to WebSocket. It ends when
// the upstream closes its side, which ends the response, or when either breaks. rest is what the
// upstream has sent so far.
func (s *stream) tunnel(up halfCloser, rest []byte) error {
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
	return err
}

// endTunnel ends the response after the upstream has closed its side.
func (s *stream) endTunnel() error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.emitForwarded(http.StatusOK, s.tunneled)
	if err := s.send(nil, true); err != nil {
		return err
	}
	s.end()
	return nil
}

// bytesOut returns how many bytes of the response's body, or through its tunnel, have arrived.
func (s *stream) bytesOut() int64 { return s.half.Moved() + s.tunneled }

// statusOut returns the status that was sent to the client.
func (s *stream) statusOut() int {
	if status := s.half.Status(); status != http.StatusSwitchingProtocols {
		return status
	}
	return http.StatusOK
}
