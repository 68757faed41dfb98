package upstream

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// errNotQuiet is the result of an attempt on a kept connection on which something had
// arrived that no request asked for. Nothing of the request was sent.
var errNotQuiet = errors.New("upstream: something arrived on an idle connection")

// socket is a TCP connection, or one that embeds it.
type socket interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// tlsRecordHead is the size of the head of a TLS record: type, version, length.
const tlsRecordHead = 5

// watchedConn is a connection of a Transport that can tell whether anything has arrived on
// it that has not been read.
//
// A Transport reads an idle HTTP/1.1 connection all the time, and closes it when anything
// arrives. But it hands the connection out before its reader has begun to wait, and a reader
// that has bytes may not have run yet. In both cases it would take bytes that nobody asked
// for as the response to the next request. So before a connection is used again, look makes
// sure that its reader waits, that the reader has used everything up, and that nothing else
// has arrived.
//
// A Transport's reader calls Read only after it has used up everything that Read returned
// before: its own buffer is empty then, and crypto/tls has decrypted every whole record.
type watchedConn struct {
	socket
	raw syscall.RawConn

	// records is set if the connection carries TLS, and multiplexed if it carries HTTP/2,
	// which tells responses apart itself. Both are set before the first request.
	records, multiplexed bool

	reading     sync.Mutex                   // held by Read, also while it waits
	receiveFunc func(fd uintptr) (done bool) // receive, bound once: a closure for each call would be an allocation
	into        []byte                       // for receive
	received    int                          // result of receive
	failed      error                        // result of receive

	wake chan struct{} // has a value when look must check again

	mu       sync.Mutex // held while bytes are received, so that look never sees them on their way
	parked   bool       // Read waits for bytes, and nothing has been received since it began
	ended    bool       // closed, or refused by look: Read returns nothing any more
	looking  bool       // look waits for wake
	head     [tlsRecordHead]byte
	headHas  int // bytes of head
	bodyLeft int // bytes of the TLS record that have not been received

	peekFunc func(fd uintptr) // peek, bound once
	silent   bool             // result of peek
}

func watch(s socket) (*watchedConn, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &watchedConn{socket: s, raw: raw, wake: make(chan struct{}, 1)}
	c.receiveFunc, c.peekFunc = c.receive, c.peek
	return c, nil
}

// watchedOf returns the watchedConn below a connection that a Pool has made, or nil.
func watchedOf(c net.Conn) (*conn, *watchedConn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	outer, ok := c.(*conn)
	if !ok {
		return nil, nil
	}
	w, _ := outer.Conn.(*watchedConn)
	return outer, w
}

// usable reports whether a kept connection may be used for a request. If not, it closes the
// connection, from which nothing can be read any more. It waits for the connection's reader,
// at most until ctx ends.
func usable(ctx context.Context, c net.Conn) bool {
	outer, w := watchedOf(c)
	switch {
	case w == nil: // not made by a Pool
		_ = c.Close()
		return false
	case w.multiplexed || w.look(ctx.Done()):
		return true
	default:
		_ = outer.Close() // first, so that nothing can be sent
		return false
	}
}

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	c.into, c.received, c.failed = p, 0, nil
	err := c.raw.Read(c.receiveFunc)
	c.into = nil
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			op.Op = "read" // as that of any other connection
		}
		return 0, err
	}
	return c.received, c.failed
}

// receive takes what has arrived, without blocking. It returns false if that is nothing.
func (c *watchedConn) receive(fd uintptr) (done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		c.parked = false
		c.failed = c.opError(net.ErrClosed)
		return true
	}
	n, err := receiveNow(fd, c.into)
	if errors.Is(err, errNothingYet) {
		c.parked = true
		c.notify()
		return false
	}
	c.parked = false
	switch {
	case err != nil:
		c.failed = c.opError(os.NewSyscallError("read", err))
	case n == 0:
		c.failed = io.EOF
	default:
		c.received = n
		if c.records && !c.multiplexed {
			c.follow(c.into[:n])
		}
	}
	return true
}

func (c *watchedConn) opError(err error) error {
	return &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// follow finds where TLS records end. c.mu is held.
func (c *watchedConn) follow(p []byte) {
	for len(p) > 0 {
		if c.bodyLeft > 0 {
			n := min(c.bodyLeft, len(p))
			c.bodyLeft, p = c.bodyLeft-n, p[n:]
			continue
		}
		n := copy(c.head[c.headHas:], p)
		c.headHas, p = c.headHas+n, p[n:]
		if c.headHas == tlsRecordHead {
			c.headHas, c.bodyLeft = 0, int(binary.BigEndian.Uint16(c.head[tlsRecordHead-2:]))
		}
	}
}

// notify makes look check again. c.mu is held.
func (c *watchedConn) notify() {
	if c.looking {
		c.looking = false
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

func (c *watchedConn) peek(fd uintptr) { c.silent = isQuiet(fd) }

// maxMessages is how often look waits for the reader to use up what has arrived over TLS: it
// may be a message of TLS itself, such as a session ticket.
const maxMessages = 3

// look reports whether everything that has arrived was used up by the reader, and was whole.
// If not, Read returns nothing any more. Only the request that owns the connection may call
// it. It waits until the reader waits, the connection is closed, or done is closed.
func (c *watchedConn) look(done <-chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for messages := 0; !c.ended; {
		if c.parked {
			c.silent = false
			_ = c.raw.Control(c.peekFunc) // leaves silent unset if the descriptor is closed
			whole := c.headHas == 0 && c.bodyLeft == 0
			if c.silent && whole {
				return true
			}
			if messages++; c.silent || !c.records || messages > maxMessages {
				break
			}
			c.parked = false // the reader is about to receive it
		}
		c.looking = true
		c.mu.Unlock()
		var over bool
		select {
		case <-c.wake:
		case <-done:
			over = true
		}
		c.mu.Lock()
		if over {
			break
		}
	}
	c.ended = true
	return false
}

// Close closes the connection. Nothing is read from it any more.
func (c *watchedConn) Close() error {
	c.mu.Lock()
	c.ended = true
	c.notify()
	c.mu.Unlock()
	return c.socket.Close()
}
