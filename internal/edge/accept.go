package edge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// The waits between attempts to accept when the system has no room, as for
// another file: they double.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// Serve accepts TCP connections on l until Shutdown, after which it returns nil.
// Trouble with accepting, such as a process that has no file left, is logged and
// tried again; only a listener that was closed by others is an error. Serve
// closes l.
func (s *Server) Serve(l net.Listener) error {
	if !s.add(l) {
		return l.Close()
	}
	defer s.remove(l)
	s.begin.Do(func() {
		s.http2.Go(func() {
			if err := s.cfg.HTTP2.Serve(s.handed); err != nil {
				s.cfg.Log.Error("HTTP/2 is served no more", "error", err)
			}
		})
	})
	var pause time.Duration
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.take(c)
		case s.isClosed():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept connections of the data plane: %w", err)
		default:
			s.counts.acceptErrors.Add(1)
			if s.counts.acceptLog.due(time.Now()) {
				s.cfg.Log.Error("connections cannot be accepted; trying again", "error", err)
			}
			pause = min(max(2*pause, minPause), maxPause)
			if !s.rest(pause) {
				return nil
			}
		}
	}
}

// rest waits; false tells that the shutdown has begun.
func (s *Server) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.done:
		return false
	}
}

// add reports whether l may be served.
func (s *Server) add(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.listeners[l] = struct{}{}
	s.handed.serves(l.Addr())
	s.accepting.Add(1)
	return true
}

func (s *Server) remove(l net.Listener) {
	_ = l.Close() // Shutdown may have closed it
	s.mu.Lock()
	delete(s.listeners, l)
	s.mu.Unlock()
	s.accepting.Done()
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// take starts to serve a connection, or closes it at once if there are too many.
func (s *Server) take(nc net.Conn) {
	s.counts.accepted.Add(1)
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		s.cfg.Log.Error("a listener of the data plane gave something else than a TCP connection")
		_ = nc.Close()
		return
	}
	c := &conn{TCPConn: tcp, server: s, client: addrPort(tcp.RemoteAddr())}
	c.trusted = s.cfg.Trust.Trusted(c.client.Addr())
	if !s.slots.take() {
		s.refused(&s.counts.refusedTotal, "there are too many connections: new ones are closed", "max_connections", s.cfg.MaxConnections)
		_ = tcp.Close()
		return
	}
	c.slot = true
	// Whose connection a trusted proxy brings is known only after its header.
	if !c.trusted && !c.count() {
		_ = c.Close()
		return
	}
	s.conns.Go(func() { s.serve(c) })
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
	}
	return netip.AddrPort{}
}
