package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/keygate/keygate/internal/certificate/servercert"
	"github.com/keygate/keygate/internal/nowait"
	"github.com/keygate/keygate/internal/tlspump"
)

// h1Secure is the part of an H1Conn that concerns TLS.
type h1Secure struct {
	tls   *tls.Conn     // nil if the connection is plain
	below *tlspump.Conn // below tls
	pump  *tlspump.Conn // the connection below, or nil if it can only be used with ordinary calls
	more  bool          // the last Receive may have left something in tls
	one   [1]byte       // memory for settle
}

// Blocks reports whether Receive does not work, so that the connection must be read with ordinary
// calls.
func (c *H1Conn) Blocks() bool { return c.tls != nil && c.pump == nil }

// Receive reads what has arrived into b, without blocking, within a callback of Raw. n is 0
// without an error if nothing is there. The error is io.EOF at the end of the stream, and
// os.ErrDeadlineExceeded after Interrupt.
func (c *H1Conn) Receive(fd uintptr, b []byte) (n int, err error) {
	if c.interrupted.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	if c.tls == nil {
		n, errno := nowait.Receive(int(fd), b)
		switch {
		case errno == nowait.Again:
			return 0, nil
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
	n, c.more, err = c.pump.ReadNow(c.tls, fd, b)
	c.reply()
	return n, err
}

// reply sends what a read has left to be sent, if that is possible now. Otherwise Write sends it
// after its own data.
func (c *H1Conn) reply() {
	if c.pump.Pending() {
		_, _ = c.pump.SendNow() // an error shows at the next read
	}
}

// CutShort reports, after Receive or a read has returned io.EOF, whether perhaps not the upstream
// itself has ended the stream: over TLS, anybody on the way can close the socket.
func (c *H1Conn) CutShort() bool { return c.tls != nil && c.below.CutShort() }

// Write sends b, and blocks if necessary. It may be called while another goroutine calls Receive.
func (c *H1Conn) Write(b []byte) (n int, err error) {
	switch {
	case c.tls == nil:
		n, err = c.conn.Write(b)
		c.NoteWrite(err)
		return n, err
	case c.pump == nil:
		return c.tls.Write(b)
	}
	c.pump.Hold()
	n, err = c.tls.Write(b)
	c.pump.Unhold()
	for err == nil {
		if err = c.pump.Send(); !c.pump.Pending() {
			break
		}
	}
	return n, err
}

// NoteWrite notes the error of a write to Plain. The system reports a reset only once: to the next read, unless a
// write comes before it. That read then finds the end of the stream.
func (c *H1Conn) NoteWrite(err error) {
	if errors.Is(err, syscall.ECONNRESET) {
		c.reset.Store(true)
	}
}

// WasReset reports whether a write has found that the server had reset the connection before it ended the stream.
// It is false over TLS; see CutShort.
func (c *H1Conn) WasReset() bool { return c.reset.Load() }

// settle takes messages of TLS that have arrived, within a callback of Raw. It reports false if
// anything else has.
func (c *H1Conn) settle(fd uintptr) bool {
	n, err := c.Receive(fd, c.one[:])
	return n == 0 && err == nil
}

// isSettled reports whether nothing is left in the TLS layer of an idle connection. Nothing must be
// left in its socket.
func (c *H1Conn) isSettled() bool {
	if c.pump == nil {
		_ = c.conn.SetReadDeadline(time.Unix(1, 0))
		n, err := c.tls.Read(c.one[:])
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		_ = c.conn.SetReadDeadline(time.Time{})
	}
	return c.below.BetweenRecords()
}

// part tells the server that an idle connection is about to be closed, if that is possible without
// waiting.
func (c *H1Conn) part() {
	if c.pump == nil {
		return
	}
	c.pump.Hold()
	_ = c.tls.CloseWrite()
	c.pump.Unhold()
	_, _ = c.pump.SendNow()
}

// begin makes c one over TLS after its handshake.
func (c *H1Conn) begin(over *tls.Conn, below *tlspump.Conn) {
	c.tls, c.below, c.pump = over, below, tlspump.Of(over)
}

// secure does the TLS handshake of a connection that has just been dialed, for HTTP/1.1 only.
func (p *H1Pool) secure(ctx context.Context, c *H1Conn) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(p.origin.ConnectTimeout, handshakeTimeout), errHandshakeTimeout)
	defer cancel()
	bounded := servercert.Below(c.conn)
	below := tlspump.Wrap(c.conn, bounded)
	over, err := handshake(ctx, below, bounded, p.address, p.tls)
	if err != nil {
		p.multiplexed.http1.Store(0) // perhaps the server speaks only HTTP/2 now
		return err
	}
	c.begin(over, below)
	return nil
}

// newSecurePool returns the pool that makes the TCP connections of p, and keeps those on which the
// server has chosen HTTP/1.1.
func newSecurePool(p *H2Pool, port string) *H1Pool {
	h := newH1Pool(p.owner, p.origin, port)
	h.multiplexed = p
	if p.tls != nil {
		h.tls = p.tls.Clone()
		h.tls.NextProtos = []string{"http/1.1"}
	}
	return h
}

// HTTP1 returns the pool of connections over which the server speaks HTTP/1.1: for requests after
// ErrNoHTTP2, and for requests that ask for an upgrade. It is nil unless the scheme is https.
func (p *H2Pool) HTTP1() *H1Pool {
	if p.tls == nil {
		return nil
	}
	return p.own
}
