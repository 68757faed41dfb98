// Package cabletest puts a TCP proxy between two programs, which a test cuts and mends.
package cabletest

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// Cable is a TCP proxy on the loopback interface.
type Cable struct {
	// Addr is the host and port of the near end, to which clients connect.
	Addr string

	to       string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	whole   chan struct{} // closed while the cable passes data on
	refuses bool
	conns   map[net.Conn]struct{}
}

// New returns a cable to the address to, which is host:port. It is removed when the test ends.
func New(t testing.TB, to string) *Cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("lay a cable to %s: %v", to, err)
	}
	c := &Cable{Addr: l.Addr().String(), to: to, listener: l, whole: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(c.whole)
	c.running.Go(c.accept)
	t.Cleanup(func() {
		_ = l.Close()
		c.HangUp()
		c.Mend()
		c.running.Wait()
	})
	return c
}

// ForURL returns a cable to the host of a URL, and the URL with the cable's near end in place of
// the host.
func ForURL(t testing.TB, to string) (c *Cable, near string) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	c = New(t, u.Host)
	u.Host = c.Addr
	return c, u.String()
}

func (c *Cable) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.running.Go(func() { c.connect(near) })
	}
}

// connect connects a client to the far end and passes data on until either side hangs up.
func (c *Cable) connect(near net.Conn) {
	defer near.Close()
	c.mu.Lock()
	refuses, whole := c.refuses, c.whole
	if !refuses {
		c.conns[near] = struct{}{}
	}
	c.mu.Unlock()
	if refuses {
		return
	}
	defer c.forget(near)
	<-whole
	far, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer far.Close()
	var back sync.WaitGroup
	back.Go(func() { c.pass(far, near) })
	c.pass(near, far)
	back.Wait()
}

func (c *Cable) forget(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, conn)
}

// pass passes on what from sends, except while the cable is severed.
func (c *Cable) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		c.mu.Lock()
		whole := c.whole
		c.mu.Unlock()
		<-whole
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Sever makes the cable pass nothing on, without closing a connection: each side finds the other
// silent.
func (c *Cable) Sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.whole:
		c.whole = make(chan struct{})
	default:
	}
}

// Refuse closes all connections, and each new one at once.
func (c *Cable) Refuse() {
	c.mu.Lock()
	c.refuses = true
	c.mu.Unlock()
	c.HangUp()
}

// Mend ends what Sever and Refuse began. Bytes that were held back are passed on.
func (c *Cable) Mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = false
	select {
	case <-c.whole:
	default:
		close(c.whole)
	}
}

// HangUp closes all connections.
func (c *Cable) HangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.Close()
	}
}
