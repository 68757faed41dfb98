package server_test

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// cable is a TCP proxy between one node and its database, which a test cuts.
type cable struct {
	to       string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	whole chan struct{} // closed while the cable is whole
	conns []net.Conn
}

// newCable returns a cable to the server of a URL, and the URL of its end.
func newCable(t *testing.T, database string) (c *cable, end string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c = &cable{to: u.Host, listener: l, whole: make(chan struct{})}
	close(c.whole)
	c.running.Go(c.accept)
	t.Cleanup(func() {
		l.Close()
		c.hangUp()
		c.mend()
		c.running.Wait()
	})
	u.Host = l.Addr().String()
	return c, u.String()
}

func (c *cable) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", c.to)
		if err != nil {
			near.Close()
			continue
		}
		c.mu.Lock()
		c.conns = append(c.conns, near, far)
		c.mu.Unlock()
		c.running.Go(func() { c.pass(near, far) })
		c.running.Go(func() { c.pass(far, near) })
	}
}

// pass passes on what from sends, but nothing while the cable is cut.
func (c *cable) pass(from, to net.Conn) {
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

// sever makes the cable pass nothing on, without closing a connection.
func (c *cable) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = make(chan struct{})
}

// mend makes the cable pass on what it holds back.
func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.whole:
	default:
		close(c.whole)
	}
}

func (c *cable) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}
