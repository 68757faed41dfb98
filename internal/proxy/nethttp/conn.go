package nethttp

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

// listener wraps the connections that it accepts.
type listener struct {
	net.Listener
	server *Server
}

// Accept returns the next connection as a *conn.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, server: l.server, accepted: time.Now()}, nil
}

// conn is a client's connection. It is closed when a head has been incomplete for
// proxy.HeadTimeout (contract, 4.5). The time for the preface, and for the first SETTINGS
// after it, is bounded by net/http, and so is the idle time.
//
// It hides a *tls.Conn from net/http, which would accept no wrapper with TLS: net/http takes
// it for a connection without TLS on which the client has prior knowledge of HTTP/2.
//
// It costs a look at the clock for each head, and no timer for each: a timer runs only from
// a head until HeadTimeout passes without one.
type conn struct {
	net.Conn
	server   *Server
	accepted time.Time

	// Of the goroutine that reads.
	scanner headScanner
	begun   uint64 // scanner.begun at the last look at the clock

	since   atomic.Int64 // ns from accepted to the start of the incomplete head; 0 if there is none
	running atomic.Bool  // the timer is running, or its function is

	mu     sync.Mutex // held while the timer is started or stopped
	timer  *time.Timer
	closed bool
}

// Read reads the client's bytes into p and follows the heads in them.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		if c.scanner.preface == 0 {
			if err := checkCipher(c.Conn); err != nil {
				return 0, err
			}
		}
		c.scanner.scan(p[:n])
		c.follow()
	}
	return n, err
}

// follow notes whether a head is incomplete, and since when.
func (c *conn) follow() {
	switch {
	case !c.scanner.open:
		if c.since.Load() != 0 {
			c.since.Store(0)
		}
	case c.begun != c.scanner.begun:
		c.begun = c.scanner.begun
		c.since.Store(c.now())
		if !c.running.Load() {
			c.startTimer()
		}
	}
}

// now returns the time since the connection was accepted in ns, at least 1.
func (c *conn) now() int64 { return max(int64(time.Since(c.accepted)), 1) }

func (c *conn) startTimer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.running.Swap(true) {
		return
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(proxy.HeadTimeout, c.due)
	} else {
		c.timer.Reset(proxy.HeadTimeout)
	}
}

// due closes the connection if the head that is incomplete has been so for
// proxy.HeadTimeout, or starts the timer for what is left of it.
func (c *conn) due() {
	c.mu.Lock()
	since := c.since.Load()
	if since == 0 {
		c.running.Store(false)
		// A head that has begun meanwhile may have seen the timer running.
		since = c.since.Load()
	}
	if since == 0 || c.closed {
		c.mu.Unlock()
		return
	}
	if left := proxy.HeadTimeout - time.Duration(c.now()-since); left > 0 {
		c.running.Store(true)
		c.timer.Reset(left)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.server.cfg.Log.Debug("request head over HTTP/2 is not complete in time: closing the connection", "client", c.RemoteAddr())
	_ = c.Close()
}

// Close closes the connection and stops the timer.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// description is what the handler knows of a connection.
type description struct {
	client proxy.Client
	tls    *tls.ConnectionState // nil without TLS
}

// describe returns the description of a connection that a listener accepted.
func (s *Server) describe(c net.Conn) *description {
	if wrapped, ok := c.(*conn); ok {
		c = wrapped.Conn
	}
	d := &description{client: proxy.Client{Trusted: s.cfg.Trusted != nil && s.cfg.Trusted(c), Shard: s.cfg.NewShard()}}
	if addr, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		d.client.Peer = addr.AddrPort().Addr().Unmap().WithZone("")
	}
	if t, ok := c.(*tls.Conn); ok {
		state := t.ConnectionState()
		d.tls = &state
	}
	return d
}

var errProhibitedCipher = errors.New("nethttp: the cipher suite is prohibited for HTTP/2")

// checkCipher returns an error for a cipher suite of TLS 1.2 that RFC 9113, appendix A,
// prohibits. net/http does not see the connection's TLS and cannot check it.
func checkCipher(c net.Conn) error {
	t, ok := c.(*tls.Conn)
	if !ok {
		return nil
	}
	state := t.ConnectionState()
	if state.Version >= tls.VersionTLS13 {
		return nil
	}
	switch state.CipherSuite {
	case tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256:
		return nil
	}
	return errProhibitedCipher
}
