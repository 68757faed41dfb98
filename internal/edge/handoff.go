package edge

import (
	"net"
	"sync"
)

// handoff is a net.Listener whose Accept returns the connections passed to deliver:
// those that turned out to speak HTTP/2.
type handoff struct {
	conns chan net.Conn
	done  chan struct{} // closed by Close
	once  sync.Once

	mu   sync.Mutex
	addr net.Addr
}

func newHandoff() *handoff {
	return &handoff{conns: make(chan net.Conn), done: make(chan struct{})}
}

// deliver blocks until Accept takes the connection. It returns false if the
// listener is closed first; the connection is then the caller's to close.
func (h *handoff) deliver(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.done:
		return false
	}
}

// Accept returns the next delivered connection, or net.ErrClosed after Close.
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

// Close makes pending and future calls of Accept and deliver fail. It returns nil.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// setAddr sets the address that Addr returns.
func (h *handoff) setAddr(a net.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addr = a
}

// Addr returns the address of the TCP listener added last.
func (h *handoff) Addr() net.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addr
}
