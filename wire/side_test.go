package wire

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// side is one end of a connection of a test: bytes go out in order without
// blocking the test, and what comes in is kept until it is asked for.
type side struct {
	conn net.Conn
	name string
	in   []byte // received and not yet told
	err  error  // that reading ended with

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

// send sends b in pieces of the sizes that next gives; 0 is all the rest. Errors
// show in what the other side misses.
func (s *side) send(b []byte, next func() int) {
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

func whole() int { return 0 }

// say sends s at once.
func (s *side) say(text string) { s.send([]byte(text), whole) }

// end ends the sending half.
func (s *side) end() {
	s.work <- func() {
		if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
}

// close closes both halves after what was sent.
func (s *side) close() { s.work <- func() { _ = s.conn.Close() } }

// reset breaks the connection after what was sent.
func (s *side) reset() {
	s.work <- func() { breakOff(s.conn) }
}

// breakOff closes c with a reset.
func breakOff(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// more receives more. It reports false at the end, which err tells.
func (s *side) more() bool {
	if s.err != nil {
		return false
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(patience))
	piece := make([]byte, 32<<10)
	n, err := s.conn.Read(piece)
	s.in = append(s.in, piece[:n]...)
	if err != nil {
		s.err = err
	}
	return n > 0 || err == nil
}

// timedOut reports whether reading ended because nothing came.
func (s *side) timedOut() bool {
	var timeout net.Error
	return errors.As(s.err, &timeout) && timeout.Timeout()
}

// expect receives what the pattern tells, and nothing of what may follow.
func (s *side) expect(t testing.TB, p pattern) {
	t.Helper()
	for {
		n, verdict := p.match(s.in)
		switch verdict {
		case matched:
			s.in = s.in[n:]
			return
		case mismatched:
			t.Fatalf("the %s received something else from byte %d on\n--- want\n%s\n--- got\n%s", s.name, n, p.text, show(s.in))
		}
		if !s.more() {
			t.Fatalf("the %s received less (%v)\n--- want\n%s\n--- got\n%s", s.name, s.err, p.text, show(s.in))
		}
	}
}

// expectEnd receives the end of the connection and nothing before it.
func (s *side) expectEnd(t testing.TB) {
	t.Helper()
	for s.more() {
	}
	if len(s.in) > 0 || s.timedOut() {
		t.Fatalf("the %s should see the end; it ended with %v after\n%s", s.name, s.err, show(s.in))
	}
}

// expectClean is expectEnd, and the end must be a proper one.
func (s *side) expectClean(t testing.TB) {
	t.Helper()
	s.expectEnd(t)
	if !errors.Is(s.err, io.EOF) {
		t.Fatalf("the %s should see a proper end, not %v", s.name, s.err)
	}
}

// expectBreak is expectEnd, and the end must not be a proper one.
func (s *side) expectBreak(t testing.TB) {
	t.Helper()
	s.expectEnd(t)
	if errors.Is(s.err, io.EOF) {
		t.Fatalf("the %s sees a proper end; it should see that something is missing", s.name)
	}
}
