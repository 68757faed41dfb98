package edge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
)

// The backoff after a failed accept, for example when the process has no file
// descriptor left, doubles from minBackoff to maxBackoff.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Second
)

// Serve accepts TCP connections on l until Shutdown, then returns nil. A failed
// accept, for example because no file descriptor is left, is logged and retried. Serve
// returns an error only if l was closed by something other than Shutdown. It
// closes l.
func (s *Server) Serve(l net.Listener) error {
	if !s.add(l) {
		return l.Close()
	}
	defer s.remove(l)
	s.startHTTP2.Do(func() {
		s.http2.Go(func() {
			if err := s.cfg.HTTP2.Serve(s.http2Conns); err != nil {
				s.cfg.Log.Error("HTTP/2 engine stopped", "error", err)
			}
		})
	})
	var backoff time.Duration
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			backoff = 0
			s.startConn(c)
		case s.isClosed():
			s.acceptQueued(l)
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept connections of the data plane: %w", err)
		default:
			s.counters.acceptErrors.Add(1)
			if s.counters.acceptLog.allow(time.Now()) {
				s.cfg.Log.Error("accepting a connection failed; retrying", "error", err)
			}
			backoff = min(max(2*backoff, minBackoff), maxBackoff)
			if !s.sleep(backoff) {
				return nil
			}
		}
	}
}

// acceptQueued accepts the connections that are queued in a listener that takes no new ones and is about to be closed. On a
// busy machine some may still be queued after acceptLast.
func (s *Server) acceptQueued(l net.Listener) {
	tcp, ok := l.(*net.TCPListener)
	if !ok || s.cfg.Inherited {
		return
	}
	for hasQueued(tcp) {
		if tcp.SetDeadline(time.Now().Add(acceptLast)) != nil {
			return
		}
		if c, err := tcp.Accept(); err == nil {
			s.startConn(c)
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			return // no descriptor is left, for example
		}
	}
}

// sleep pauses for d. It returns false, at once, if the shutdown begins.
func (s *Server) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.done:
		return false
	}
}

// add registers l for Shutdown. It returns false if the shutdown has begun.
func (s *Server) add(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.listeners[l] = struct{}{}
	s.http2Conns.setAddr(l.Addr())
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

// startConn starts the goroutine that serves an accepted connection. It closes the
// connection instead if a limit on connections is reached.
func (s *Server) startConn(nc net.Conn) {
	s.counters.accepted.Add(1)
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		s.cfg.Log.Error("a listener of the data plane accepted a connection that is not TCP")
		_ = nc.Close()
		return
	}
	c := &conn{TCPConn: tcp, server: s, client: addrPort(tcp.RemoteAddr())}
	c.trusted = s.cfg.Trust.Trusted(c.client.Addr())
	if !s.slots.acquire() {
		s.logRefused(&s.counters.refusedTotal, "too many connections: new ones are closed", "max_connections", s.cfg.MaxConnections)
		_ = tcp.Close()
		return
	}
	c.hasSlot = true
	// Behind a trusted proxy the client's address is known only after the PROXY header.
	if !c.trusted && !c.acquireAddressSlot() {
		_ = c.Close()
		return
	}
	if !s.pending.add(c) { // added here, so that a shutdown that begins now finds it
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
