// Package upstreamtest runs an upstream for tests that read and write raw bytes, without an
// HTTP library.
package upstreamtest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
)

// Test is the part of testing.TB that Serve needs.
type Test interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// Conn is one connection that the upstream accepted.
type Conn struct {
	net.Conn
	*bufio.Reader
	// Number counts the upstream's connections, starting at 1.
	Number int
}

// Read reads through the buffer.
func (c *Conn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// ReadHead reads up to the empty line that ends a head, and returns the head without it.
func (c *Conn) ReadHead() (string, error) {
	var head strings.Builder
	for {
		line, err := c.ReadString('\n')
		if err != nil {
			return head.String(), err
		}
		if line == "\r\n" {
			return strings.TrimSuffix(head.String(), "\r\n"), nil
		}
		head.WriteString(line)
	}
}

// Send writes s. It ignores errors: they show as bytes missing at the other end.
func (c *Conn) Send(s string) { _, _ = io.WriteString(c.Conn, s) }

// Serve runs an upstream on a free loopback port until the test ends, and returns its
// address. handle owns a connection until it returns; then the connection is closed.
func Serve(t Test, handle func(c *Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		open    = map[net.Conn]bool{}
	)
	running.Go(func() {
		for n := 1; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			running.Go(func() {
				defer func() {
					_ = conn.Close()
					mu.Lock()
					delete(open, conn)
					mu.Unlock()
				}()
				handle(&Conn{Conn: conn, Reader: bufio.NewReader(conn), Number: n})
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return l.Addr().String()
}

// ServeConstant serves a response to whatever arrives in one piece, and allocates nothing for
// it. It returns the address.
func ServeConstant(t Test, response string) string {
	t.Helper()
	b := []byte(response)
	return Serve(t, func(c *Conn) {
		received := make([]byte, 4096)
		for {
			if _, err := c.Conn.Read(received); err != nil {
				return
			}
			if _, err := c.Conn.Write(b); err != nil {
				return
			}
		}
	})
}
