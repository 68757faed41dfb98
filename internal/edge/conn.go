package edge

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/certificate"
	"github.com/keygate/keygate/internal/edge/proxyproto"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy/h1"
	"github.com/keygate/keygate/internal/tlspump"
)

// conn is a TCP connection from a client, or from a proxy on a client's behalf.
type conn struct {
	*net.TCPConn
	server *Server

	client  netip.AddrPort // the peer, or the source address of its PROXY header
	trusted bool           // client is a trusted proxy

	hasSlot        bool  // holds one of MaxConnections
	hasAddressSlot bool  // holds one of MaxConnectionsPerAddress, counted by block
	block          Block // of client, if hasAddressSlot
	closeOnce      sync.Once
}

// RemoteAddr returns the client's address.
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.client) }

// NetConn returns the underlying TCP connection.
func (c *conn) NetConn() net.Conn { return c.TCPConn }

// Close closes the connection and releases its slots. Further calls return
// net.ErrClosed.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.closeOnce.Do(func() {
		err = c.TCPConn.Close()
		if c.hasAddressSlot {
			c.server.slots.releaseFor(c.block)
		}
		if c.hasSlot {
			c.server.slots.release()
		}
	})
	return err
}

// acquireAddressSlot takes one of the client address's slots. If none is free it
// counts and logs the refusal and returns false.
func (c *conn) acquireAddressSlot() bool {
	b := BlockOf(c.client.Addr())
	if !c.server.slots.acquireFor(b) {
		c.server.logRefused(&c.server.counters.refusedAddress, "too many connections from one address: new ones are closed",
			"address", c.client.Addr(), "max_connections_per_address", c.server.cfg.MaxConnectionsPerAddress)
		return false
	}
	c.block, c.hasAddressSlot = b, true
	return true
}

// errAddressLimit reports that the client address has no free slot. The refusal
// has been counted and logged.
var errAddressLimit = errors.New("edge: too many connections from one address")

// serve finds out which protocol the connection speaks and hands it to the engine.
func (s *Server) serve(c *conn) {
	handedOff := false // to HTTP2 or serveHTTP1, which closes the connection
	defer func() {
		if !handedOff {
			s.end(c)
		}
	}()
	defer s.logPanic()
	stream, isHTTP2, err := s.negotiate(c)
	if err != nil {
		s.logFailure(c, err)
		return
	}
	if stream.SetDeadline(time.Time{}) != nil {
		return
	}
	if isHTTP2 {
		if handedOff = s.http2Conns.deliver(stream); handedOff {
			s.pending.remove(c)
		}
		return
	}
	info := h1.ConnInfo{Client: c.client, Trusted: c.trusted, Entered: func() { s.pending.remove(c) }}
	if _, info.TLS = stream.(*tls.Conn); !info.TLS {
		s.cfg.HTTP1.ServeConn(stream, info)
		return
	}
	// The handshake has made the stack of this goroutine grow. A new goroutine's stack stays small
	// while the connection is idle.
	handedOff = true
	s.conns.Go(func() { s.serveHTTP1(c, stream, info) })
}

// serveHTTP1 serves HTTP/1.1 on a connection of which nothing remains to be negotiated.
func (s *Server) serveHTTP1(c *conn, stream net.Conn, info h1.ConnInfo) {
	defer s.end(c)
	defer s.logPanic()
	s.cfg.HTTP1.ServeConn(stream, info)
}

// end closes a connection, whether an engine has had it or not.
func (s *Server) end(c *conn) {
	_ = c.Close() // the engine may have closed it
	s.pending.remove(c)
}

// logPanic recovers from a panic and logs it. It must be deferred.
func (s *Server) logPanic() {
	if p := recover(); p != nil {
		s.cfg.Log.Error("serving a connection panicked", "panic", p, "stack", string(debug.Stack()))
	}
}

// negotiate handles everything that comes before HTTP: the PROXY header, the TLS
// handshake and the choice of protocol. It returns the connection on which HTTP
// is spoken.
func (s *Server) negotiate(c *conn) (stream net.Conn, isHTTP2 bool, err error) {
	if err := c.SetDeadline(time.Now().Add(s.cfg.HeadTimeout)); err != nil {
		return nil, false, err
	}
	if c.trusted {
		if err := c.readProxyHeader(); err != nil {
			return nil, false, err
		}
	}
	if s.cfg.TLS != nil {
		t := tls.Server(tlspump.Wrap(c.TCPConn, c), s.cfg.TLS)
		if err := t.Handshake(); err != nil { // bounded by the deadline; a context would cost a goroutine
			return nil, false, &handshakeError{err}
		}
		protocol := t.ConnectionState().NegotiatedProtocol
		if protocol == certificate.ValidationProtocol {
			return nil, false, errValidated
		}
		return t, protocol == "h2", nil
	}
	if isHTTP2, err = c.startsHTTP2(); err != nil {
		return nil, false, err
	}
	if isHTTP2 {
		return c, true, nil
	}
	return c.TCPConn, false, nil // the engine's pump needs the bare TCP connection
}

// readProxyHeader reads the PROXY header of a trusted proxy, if it sends one. The
// source address in the header replaces the peer's as the client's address, and it is decided again
// whether the client is trusted.
func (c *conn) readProxyHeader() error {
	var size int
	var none bool
	var malformed error
	buf := make([]byte, proxyproto.MaxV1)
	err := peek(c.TCPConn, buf, func(seen []byte) bool {
		size, malformed = proxyproto.Measure(seen)
		none = errors.Is(malformed, proxyproto.ErrNoHeader)
		return size > 0 || malformed != nil
	})
	switch {
	case err != nil:
		return err
	case none:
		return nil
	case malformed != nil:
		return &proxyHeaderError{malformed}
	}
	if size > len(buf) {
		buf = make([]byte, size)
	}
	if _, err := io.ReadFull(c.TCPConn, buf[:size]); err != nil {
		return &proxyHeaderError{err}
	}
	header, err := proxyproto.Parse(buf[:size])
	if err != nil {
		return &proxyHeaderError{err}
	}
	if !header.Source.IsValid() {
		return nil // the proxy's own connection, such as a health check
	}
	c.client, c.trusted = header.Source, c.server.cfg.Trust.Trusted(header.Source.Addr())
	if !c.trusted && !c.acquireAddressSlot() {
		return errAddressLimit
	}
	return nil
}

// startsHTTP2 waits for the first bytes and reports whether they are the HTTP/2
// connection preface.
func (c *conn) startsHTTP2() (whole bool, err error) {
	var buf [24]byte // the length of the preface
	err = peek(c.TCPConn, buf[:], func(seen []byte) bool {
		var possible bool
		possible, whole = http1.HasPreface(seen)
		return whole || !possible
	})
	return whole, err
}

// errValidated ends a connection whose handshake was all that its client wanted.
var errValidated = errors.New("a certificate authority has validated a name")

// handshakeError is the error of a failed TLS handshake, proxyHeaderError the error of a malformed
// or incomplete PROXY header.
type (
	handshakeError   struct{ error }
	proxyHeaderError struct{ error }
)

func (e *handshakeError) Unwrap() error   { return e.error }
func (e *proxyHeaderError) Unwrap() error { return e.error }

// logFailure counts and logs why a connection ended before its first request.
func (s *Server) logFailure(c *conn, err error) {
	var handshake *handshakeError
	var header *proxyHeaderError
	switch {
	case errors.Is(err, errAddressLimit), errors.Is(err, errValidated), s.isClosed():
	case errors.As(err, &handshake):
		s.counters.badHandshakes.Add(1)
		s.cfg.Log.Debug("TLS handshake failed", "client", c.client, "error", handshake.error)
		var record tls.RecordHeaderError
		if errors.As(err, &record) && record.Conn != nil && looksLikeHTTP(record.RecordHeader) {
			c.rejectPlainHTTP()
		}
	case errors.As(err, &header):
		s.counters.badProxyHeaders.Add(1)
		if s.counters.proxyHeaderLog.allow(time.Now()) {
			s.cfg.Log.Warn("malformed PROXY header from a trusted proxy: closing the connection", "proxy", c.TCPConn.RemoteAddr(), "error", header.error)
		}
	case errors.Is(err, io.EOF): // closed without a byte, as health checks do
	default:
		s.cfg.Log.Debug("connection ended before its first request", "client", c.client, "error", err.Error())
	}
}

// Trusted reports whether the client of nc, a connection that a Server handed to
// its HTTP2 engine, is a trusted proxy, so that its X-Forwarded-* fields are
// accepted.
func Trusted(nc net.Conn) bool {
	for {
		if c, ok := nc.(*conn); ok {
			return c.trusted
		}
		over, ok := nc.(interface{ NetConn() net.Conn }) // TLS, and what is below it
		if !ok {
			return false
		}
		nc = over.NetConn()
	}
}
