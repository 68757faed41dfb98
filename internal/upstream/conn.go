package upstream

import (
	"context"
	"net"
	"sync"
	"time"
)

// finalReadTimeout is how long a connection that cannot be written to any more may be
// read before its error is told.
const finalReadTimeout = 5 * time.Second

// conn is a connection whose reading outlives its writing. An upstream that
// answers before the end of an upload and closes breaks the writes that follow;
// net/http would give up at the first of them, with the answer in its hands
// half the time. So a failed write waits until all that came was read.
type conn struct {
	net.Conn
	readDone chan struct{} // closed when reading has failed or nobody reads any more
	closeOne sync.Once
}

// dialer returns a function for http.Transport.DialContext.
func dialer(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newConn(c), nil
	}
}

func newConn(c net.Conn) *conn { return &conn{Conn: c, readDone: make(chan struct{})} }

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.endReading()
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		limit := time.NewTimer(finalReadTimeout)
		defer limit.Stop()
		select {
		case <-c.readDone:
		case <-limit.C:
		}
	}
	return n, err
}

// SetWriteDeadline lets a failed write go: crypto/tls sets one for its last words
// before it closes the connection, when nobody reads any more, and net/http none.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.endReading()
	return c.Conn.SetWriteDeadline(t)
}

// Close closes the connection and lets a failed write go.
func (c *conn) Close() error {
	c.endReading()
	return c.Conn.Close()
}

// CloseWrite ends one direction of a tunnel.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

func (c *conn) endReading() { c.closeOne.Do(func() { close(c.readDone) }) }
