package upstream

import (
	"net"
	"sync"
	"time"
)

// finalReadTimeout is how long a connection that can no longer be written to may be read
// before the write returns its error.
const finalReadTimeout = 5 * time.Second

// conn is a connection that can be read to its end after a write has failed. An upstream
// that responds before the end of an upload and then closes the connection makes the
// following writes fail. net/http would give up at the first of them, and lose a response
// that has already arrived in half of the cases. So a failed write returns only after
// everything that arrived has been read.
type conn struct {
	net.Conn
	readDone chan struct{} // closed when reading has failed or has stopped
	closeOne sync.Once
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

// SetWriteDeadline releases a failed write. Only crypto/tls sets a write deadline, for the
// alert that it sends before it closes the connection; nothing reads by then.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.endReading()
	return c.Conn.SetWriteDeadline(t)
}

// Close closes the connection and releases a failed write.
func (c *conn) Close() error {
	c.endReading()
	return c.Conn.Close()
}

// CloseWrite closes one direction of a tunnel.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

func (c *conn) endReading() { c.closeOne.Do(func() { close(c.readDone) }) }
