package edge

import (
	"net"
	"sync"
)

// handoff is a listener that gives what it is given: the connections that turned
// out to speak HTTP/2.
type handoff struct {
	conns chan net.Conn
	done  chan struct{} // closed when nobody accepts any more
	once  sync.Once

	mu   sync.Mutex
	addr net.Addr
}

func newHandoff() *handoff {
	return &handoff{conns: make(chan net.Conn), done: make(chan struct{})}
}

// give reports whether the connection was accepted.
func (h *handoff) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.done:
		return false
	}
}

// Accept returns the next connection.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case <-h.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and give.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// serves tells the address that Addr returns.
func (h *handoff) serves(a net.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addr = a
}

// Addr returns the address of the listener behind it.
func (h *handoff) Addr() net.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addr
}
