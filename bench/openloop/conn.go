//go:build linux

package openloop

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a connection with at most one outstanding request.
type conn struct {
	fd   int
	due  time.Time // of the last request; zero before the first
	head []byte    // the part of the response head that has arrived
	body int64     // remaining bytes of the response body; -1 before the end of the head
	ok   bool      // the status is 200
	in   [32 << 10]byte
}

func dial(to netip.AddrPort) (*conn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("create a socket: %w", err)
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return &conn{fd: fd, body: -1}, nil
}

// send sends a request. The whole request must fit into the socket's buffer.
func (c *conn) send(request []byte, due time.Time) error {
	c.due = due
	n, err := unix.Write(c.fd, request)
	if err != nil {
		return fmt.Errorf("send a request: %w", err)
	}
	if n < len(request) {
		return fmt.Errorf("send a request: wrote only %d of %d bytes", n, len(request))
	}
	return nil
}

// receive reads what has arrived. done reports whether the response is complete, ok
// whether its status is 200.
func (c *conn) receive() (done, ok bool, _ error) {
	for {
		n, err := unix.Read(c.fd, c.in[:])
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return false, false, nil
		}
		if err != nil {
			return false, false, fmt.Errorf("receive a response: %w", err)
		}
		if n == 0 {
			return false, false, errors.New("the server closed a persistent connection")
		}
		if c.due.IsZero() {
			return false, false, errors.New("the server sent a response without a request")
		}
		done, err := c.add(c.in[:n])
		if err != nil || done {
			return done, c.ok, err
		}
		if n < len(c.in) {
			return false, false, nil // nothing more for now: wait for epoll
		}
	}
}

// maxHead is the maximum size of a response head in bytes.
const maxHead = 16 << 10

// add processes the next bytes of the response and reports whether it is complete.
func (c *conn) add(b []byte) (done bool, err error) {
	if c.body < 0 {
		c.head = append(c.head, b...)
		end := bytes.Index(c.head, []byte("\r\n\r\n"))
		if end < 0 {
			if len(c.head) > maxHead {
				return false, errors.New("the head of a response is too long")
			}
			return false, nil
		}
		if c.ok, c.body, err = readHead(c.head[:end+2]); err != nil {
			return false, err
		}
		b = c.head[end+4:]
		c.head = c.head[:0]
	}
	c.body -= int64(len(b))
	if c.body < 0 {
		return false, errors.New("a response is longer than its Content-Length")
	}
	if c.body > 0 {
		return false, nil
	}
	c.body = -1
	return true, nil
}

// readHead parses the status and the body length from a response head, which ends
// with the CRLF of the last field.
func readHead(head []byte) (ok bool, length int64, err error) {
	status, fields, _ := bytes.Cut(head, []byte("\r\n"))
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 ")) {
		return false, 0, fmt.Errorf("a response begins with %q", status)
	}
	for line := range bytes.SplitSeq(fields, []byte("\r\n")) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			length, err = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			return bytes.HasPrefix(status[9:], []byte("200")), length, err
		}
	}
	return false, 0, errors.New("a response has no Content-Length")
}
