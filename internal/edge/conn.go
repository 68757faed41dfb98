package edge

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/edge/proxyproto"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy/h1"
)

// conn is a TCP connection of a client, or of a proxy that speaks for one.
type conn struct {
	*net.TCPConn
	server *Server

	client  netip.AddrPort // the peer, or whom a PROXY header named in its place
	trusted bool           // client is a trusted proxy

	slot    bool // it holds one of all slots
	counted bool // it holds a slot of block
	block   block
	ended   sync.Once
}

// RemoteAddr returns the client's address.
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.client) }

// NetConn returns the connection itself.
func (c *conn) NetConn() net.Conn { return c.TCPConn }

// Close closes the connection and gives its slots back.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.ended.Do(func() {
		err = c.TCPConn.Close()
		if c.counted {
			c.server.slots.giveOf(c.block)
		}
		if c.slot {
			c.server.slots.give()
		}
	})
	return err
}

// count counts the connection by the client's address; false if there are too
// many, which is noted.
func (c *conn) count() bool {
	b := blockOf(c.client.Addr())
	if !c.server.slots.takeOf(b) {
		c.server.refused(&c.server.counts.refusedAddress, "there are too many connections from one address: new ones are closed",
			"address", c.client.Addr(), "max_connections_per_address", c.server.cfg.MaxConnectionsPerAddress)
		return false
	}
	c.block, c.counted = b, true
	return true
}

// errTooMany tells that a connection was refused and that this was noted.
var errTooMany = errors.New("edge: too many connections")

// serve finds out what the connection speaks and gives it to the driver.
func (s *Server) serve(c *conn) {
	kept := false // by HTTP2, which closes it
	defer func() {
		if p := recover(); p != nil {
			s.cfg.Log.Error("a connection met a defect", "panic", p, "stack", string(debug.Stack()))
		}
		if !kept {
			_ = c.Close()
		}
	}()
	if !s.waiting.add(c) {
		return
	}
	stream, isHTTP2, err := s.open(c)
	s.waiting.remove(c)
	if err != nil {
		s.note(c, err)
		return
	}
	if stream.SetDeadline(time.Time{}) != nil {
		return
	}
	if isHTTP2 {
		kept = s.handed.give(stream)
		return
	}
	_, isTLS := stream.(*tls.Conn)
	s.cfg.HTTP1.ServeConn(stream, h1.ConnInfo{Client: c.client, Trusted: c.trusted, TLS: isTLS})
}

// open takes everything from the connection that comes before HTTP.
func (s *Server) open(c *conn) (stream net.Conn, isHTTP2 bool, err error) {
	if err := c.SetDeadline(time.Now().Add(s.cfg.HeadTimeout)); err != nil {
		return nil, false, err
	}
	if c.trusted {
		if err := c.believe(); err != nil {
			return nil, false, err
		}
	}
	if s.cfg.TLS != nil {
		t := tls.Server(c, s.cfg.TLS)
		if err := t.Handshake(); err != nil { // the deadline bounds it; a context would cost a goroutine
			return nil, false, &handshakeError{err}
		}
		return t, t.ConnectionState().NegotiatedProtocol == "h2", nil
	}
	if isHTTP2, err = c.startsHTTP2(); err != nil {
		return nil, false, err
	}
	if isHTTP2 {
		return c, true, nil
	}
	return c.TCPConn, false, nil // as the engine's pump wants it
}

// believe reads the PROXY header of a trusted proxy, if it sends one. The client
// that it names takes the peer's place in everything, the question included
// whether its fields are believed.
func (c *conn) believe() error {
	var size int
	var none bool
	var malformed error
	buf := make([]byte, proxyproto.MaxV1)
	err := peek(c.TCPConn, buf, func(seen []byte) bool {
		size, malformed = proxyproto.Measure(seen)
		none = errors.Is(malformed, proxyproto.ErrNone)
		return size > 0 || malformed != nil
	})
	switch {
	case err != nil:
		return err
	case none:
		return nil
	case malformed != nil:
		return &headerError{malformed}
	}
	if size > len(buf) {
		buf = make([]byte, size)
	}
	if _, err := io.ReadFull(c.TCPConn, buf[:size]); err != nil {
		return &headerError{err}
	}
	header, err := proxyproto.Parse(buf[:size])
	if err != nil {
		return &headerError{err}
	}
	if !header.Source.IsValid() {
		return nil // the proxy speaks for itself, as to see whether we live
	}
	c.client, c.trusted = header.Source, c.server.cfg.Trust.Trusted(header.Source.Addr())
	if !c.trusted && !c.count() {
		return errTooMany
	}
	return nil
}

// startsHTTP2 waits for the first bytes and reports whether they are the preface
// of HTTP/2.
func (c *conn) startsHTTP2() (whole bool, err error) {
	var buf [24]byte // the preface's length
	err = peek(c.TCPConn, buf[:], func(seen []byte) bool {
		var possible bool
		possible, whole = http1.HasPreface(seen)
		return whole || !possible
	})
	return whole, err
}

// handshakeError is a TLS handshake that failed, headerError a PROXY header.
type (
	handshakeError struct{ error }
	headerError    struct{ error }
)

func (e *handshakeError) Unwrap() error { return e.error }
func (e *headerError) Unwrap() error    { return e.error }

// note counts and logs why a connection ended before it came to HTTP.
func (s *Server) note(c *conn, err error) {
	var handshake *handshakeError
	var header *headerError
	switch {
	case errors.Is(err, errTooMany), s.isClosed():
	case errors.As(err, &handshake):
		s.counts.handshakes.Add(1)
		s.cfg.Log.Debug("a TLS handshake failed", "client", c.client, "error", handshake.error)
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil && looksLikeHTTP(plain.RecordHeader) {
			c.answerPlain()
		}
	case errors.As(err, &header):
		s.counts.headers.Add(1)
		if s.counts.headerLog.due(time.Now()) {
			s.cfg.Log.Warn("a trusted proxy sent a PROXY header that cannot be read: its connections are closed", "proxy", c.TCPConn.RemoteAddr(), "error", header.error)
		}
	case errors.Is(err, io.EOF): // it said nothing, as to see whether we live
	default:
		s.cfg.Log.Debug("a connection ended before its first request", "client", c.client, "error", fmt.Sprint(err))
	}
}

// Trusted reports whether the client of a connection that a Server gave to its
// HTTP2 is a trusted proxy, whose X-Forwarded-* fields are believed.
func Trusted(nc net.Conn) bool {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, ok := nc.(*conn)
	return ok && c.trusted
}
