package wire

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// side is the test's end of a connection, as a client or as an upstream. It sends in order
// without blocking the test, and buffers what it receives.
type side struct {
	conn net.Conn
	name string
	in   []byte // received and not yet consumed
	err  error  // at which receiving ended

	work   chan func()
	worked sync.WaitGroup
}

func newSide(t testing.TB, name string, conn net.Conn) *side {
	s := &side{conn: conn, name: name, work: make(chan func(), 1024)}
	s.worked.Go(func() {
		for f := range s.work {
			f()
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		close(s.work)
		s.worked.Wait()
	})
	return s
}

// sendPieces sends b in pieces of the sizes that next returns; 0 means the whole rest. Errors are
// ignored: they show as bytes that the peer does not receive.
func (s *side) sendPieces(b []byte, next func() int) {
	s.work <- func() {
		for len(b) > 0 {
			n := next()
			if n <= 0 || n > len(b) {
				n = len(b)
			}
			if _, err := s.conn.Write(b[:n]); err != nil {
				return
			}
			b = b[n:]
		}
	}
}

// atOnce makes sendPieces send everything in one piece.
func atOnce() int { return 0 }

// send sends text in one piece.
func (s *side) send(text string) { s.sendPieces([]byte(text), atOnce) }

// closeWrite closes the sending half after what was sent.
func (s *side) closeWrite() {
	s.work <- func() {
		if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
}

// close closes the connection after what was sent.
func (s *side) close() { s.work <- func() { _ = s.conn.Close() } }

// reset resets the connection after what was sent.
func (s *side) reset() {
	s.work <- func() { breakOff(s.conn) }
}

// breakOff resets c.
func breakOff(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// more receives more bytes. It returns false at the end, with the reason in err.
func (s *side) more() bool {
	if s.err != nil {
		return false
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(awaittest.Timeout))
	piece := make([]byte, 32<<10)
	n, err := s.conn.Read(piece)
	s.in = append(s.in, piece[:n]...)
	if err != nil {
		s.err = err
	}
	return n > 0 || err == nil
}

// timedOut reports whether receiving ended because nothing came within awaittest.Timeout.
func (s *side) timedOut() bool {
	var timeout net.Error
	return errors.As(s.err, &timeout) && timeout.Timeout()
}

// expect receives bytes that match the pattern and consumes them.
func (s *side) expect(t testing.TB, p pattern) {
	t.Helper()
	for {
		n, verdict := p.match(s.in)
		switch verdict {
		case matched:
			s.in = s.in[n:]
			return
		case mismatched:
			t.Fatalf("%s: received other bytes from byte %d on\n--- want\n%s\n--- got\n%s", s.name, n, p.text, show(s.in))
		}
		if !s.more() {
			t.Fatalf("%s: received too little, then %v\n--- want\n%s\n--- got\n%s", s.name, s.err, p.text, show(s.in))
		}
	}
}

// expectEnd checks that the connection ends, properly or not, and that nothing comes before.
func (s *side) expectEnd(t testing.TB) {
	t.Helper()
	for s.more() {
	}
	if len(s.in) > 0 || s.timedOut() {
		t.Fatalf("%s: want the end of the connection, got %v after\n%s", s.name, s.err, show(s.in))
	}
}

// expectClean does the same as expectEnd, for an end that must not be a reset.
func (s *side) expectClean(t testing.TB) {
	t.Helper()
	s.expectEnd(t)
	if !errors.Is(s.err, io.EOF) {
		t.Fatalf("%s: want a proper end of the connection, got %v", s.name, s.err)
	}
}

// expectBreak is expectEnd for an end that must not be a proper one.
func (s *side) expectBreak(t testing.TB) {
	t.Helper()
	s.expectEnd(t)
	if errors.Is(s.err, io.EOF) {
		t.Fatalf("%s: got a proper end of the connection, want one that shows that bytes are missing", s.name)
	}
}
