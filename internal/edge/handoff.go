package edge

import (
	"net"
	"sync"
)

// handoff is a net.Listener whose Accept returns the connections passed to deliver, which turned
// out to speak HTTP/2.
type handoff struct {
	conns chan delivery
	done  chan struct{} // closed by Close
	once  sync.Once
	taken chan<- struct{} // of the connection that Accept returned last; for Accept alone

	mu   sync.Mutex
	addr net.Addr
}

// delivery is a connection on its way to Accept.
type delivery struct {
	conn  net.Conn
	taken chan<- struct{} // closed when Accept is called for the next connection
}

func newHandoff() *handoff {
	return &handoff{conns: make(chan delivery), done: make(chan struct{})}
}

// deliver blocks until Accept has returned the connection and is called again, by which time the engine
// has it. If the listener is closed before Accept takes the connection, deliver returns false and the
// caller must close the connection.
func (h *handoff) deliver(c net.Conn) bool {
	taken := make(chan struct{})
	select {
	case h.conns <- delivery{c, taken}:
		<-taken
		return true
	case <-h.done:
		return false
	}
}

// Accept returns the next delivered connection, or net.ErrClosed after Close. It must not be called
// concurrently, and must be called until it fails.
func (h *handoff) Accept() (net.Conn, error) {
	if h.taken != nil {
		close(h.taken)
		h.taken = nil
	}
	select {
	case <-h.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case d := <-h.conns:
		h.taken = d.taken
		return d.conn, nil
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
