package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/keygate/keygate/internal/proxy/h1"
)

// dialTimeout bounds how long Dial waits for the two ends of its connection.
const dialTimeout = 5 * time.Second

// Dial returns a connection from this process to the data plane, over which it serves HTTP/1.1 as if the client with the
// given address had connected. No listener accepts it, so it needs neither TLS nor a PROXY header, whatever the
// listeners expect. To the upstream it looks like a connection to the listeners: with TLS if they speak TLS. It counts
// among MaxConnections, and Shutdown waits for it as for any other. Dial fails if no slot is free or the shutdown has begun.
func (s *Server) Dial(ctx context.Context, client netip.Addr) (net.Conn, error) {
	if !s.enter() {
		return nil, errors.New("edge: the data plane is shutting down")
	}
	defer s.accepting.Done()
	if !s.slots.acquire() {
		return nil, fmt.Errorf("edge: all %d connections of the data plane are in use", s.cfg.MaxConnections)
	}
	near, far, err := loopback(ctx)
	if err != nil {
		s.slots.release()
		return nil, err
	}
	c := &conn{TCPConn: far, server: s, client: netip.AddrPortFrom(client.Unmap().WithZone(""), 0), hasSlot: true}
	if !s.pending.add(c) {
		_, _ = c.Close(), near.Close()
		return nil, errors.New("edge: the data plane is shutting down")
	}
	info := h1.ConnInfo{Client: c.client, TLS: s.cfg.TLS != nil, Entered: func() { s.pending.remove(c) }}
	s.conns.Go(func() { s.serveHTTP1(c, far, info) })
	return near, nil
}

// enter makes Shutdown wait until accepting.Done is called. It returns false if the shutdown has begun.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.accepting.Add(1)
	return true
}

// loopback returns both ends of a new TCP connection within this process. The engine recognizes over TCP that a client
// has hung up, which it cannot over net.Pipe.
func loopback(ctx context.Context) (near net.Conn, far *net.TCPConn, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)))
	if err != nil {
		return nil, nil, fmt.Errorf("edge: listen on the loopback: %w", err)
	}
	defer func() { _ = l.Close() }()
	if near, err = (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String()); err != nil {
		return nil, nil, fmt.Errorf("edge: connect over the loopback: %w", err)
	}
	deadline, _ := ctx.Deadline()
	err = l.SetDeadline(deadline)
	for err == nil {
		if far, err = l.AcceptTCP(); err == nil {
			if far.RemoteAddr().String() == near.LocalAddr().String() {
				return near, far, nil
			}
			_ = far.Close() // another program has connected
		}
	}
	_ = near.Close()
	return nil, nil, fmt.Errorf("edge: accept over the loopback: %w", err)
}
