package tlspump

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/keygate/keygate/internal/nowait"
)

// maxHeld bounds the ciphertext that is collected, in bytes. A write that exceeds it sends
// everything, and blocks meanwhile.
const maxHeld = 128 << 10

// Conn is the connection below a *tls.Conn. Its reads, ReadNow included, must not overlap.
// Everything else is safe for concurrent use.
type Conn struct {
	net.Conn // outer
	raw      syscall.RawConn

	// State of reads.
	pumping bool // within ReadNow
	short   bool // the last receive left nothing in the socket
	fd      int  // within ReadNow
	ended   bool // the socket has come to its end
	records records

	mu     sync.Mutex // guards the fields of this group
	holds  int        // calls of Hold without Unhold, and of ReadNow
	held   *buffer    // collected and not sent; nil if there is nothing
	failed error      // of the first send that failed

	sending    sync.Mutex // held while anything is sent; guards the fields of this group
	out        *buffer    // what is being sent
	sent       int        // bytes of out that were sent
	wait       bool       // onWritable waits for room in the socket
	errno      syscall.Errno
	onWritable func(fd uintptr) bool // writable, made once
}

// buffer holds ciphertext. A connection has one only while there is something in it.
type buffer struct{ data []byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }} //nolint:gochecknoglobals // a cache

// Wrap returns a Conn for tls.Server or tls.Client. ReadNow, SendNow and Send use the socket of tcp.
// Other calls go through outer, which is tcp or wraps it without changing the bytes.
func Wrap(tcp *net.TCPConn, outer net.Conn) *Conn {
	c := &Conn{Conn: outer, fd: -1}
	if raw, err := tcp.SyscallConn(); err == nil {
		c.raw = raw
	}
	c.onWritable = c.writable
	return c
}

// Of returns the Conn below t, or nil if there is none or it cannot be pumped.
func Of(t *tls.Conn) *Conn {
	c, ok := t.NetConn().(*Conn)
	if !ok || !nowait.Works || c.raw == nil {
		return nil
	}
	return c
}

// NetConn returns the outer connection.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// errAgain is the error of a read that finds nothing. crypto/tls keeps its state after an
// error that is temporary.
var errAgain error = againError{}

type againError struct{}

func (againError) Error() string { return "nothing has arrived" }

// Timeout implements net.Error.
func (againError) Timeout() bool { return true }

// Temporary implements net.Error.
func (againError) Temporary() bool { return true }

// ReadNow reads what has arrived into b, without blocking. t is the connection above c, with a
// complete handshake. fd is the descriptor within a callback of RawConn.Read or Control. b must
// not be empty.
//
// n is 0 without an error if nothing is there. more is set if the owner must call again before
// it waits for the socket. The errors are the same as from t.Read: io.EOF at the end of the stream,
// with or without an alert before it, and io.ErrUnexpectedEOF within a record.
//
// What t sends meanwhile is collected, including what other goroutines write. After each call the
// owner calls SendNow or Send if Pending reports true; after an error, that sends the alert.
func (c *Conn) ReadNow(t *tls.Conn, fd uintptr, b []byte) (n int, more bool, err error) {
	c.Hold()
	defer c.endRead()
	c.pumping, c.short, c.fd = true, false, int(fd)
	n, err = t.Read(b)
	switch {
	case err == errAgain: //nolint:errorlint // crypto/tls returns it unwrapped
		c.records.whole = 0 // all of them were read
		return n, false, nil
	case n == 0:
		return 0, false, err
	case err != nil:
		return n, true, nil // crypto/tls returns it again
	}
	// crypto/tls decrypts whole records: if a record does not fill b, nothing of it is left.
	if c.records.whole == 1 && n < len(b) {
		c.records.whole = 0
		return n, !c.short, nil
	}
	return n, true, nil
}

func (c *Conn) endRead() {
	c.pumping, c.fd = false, -1
	c.Unhold()
}

// Read is called by crypto/tls.
func (c *Conn) Read(b []byte) (n int, err error) {
	if c.pumping {
		n, err = c.receive(b)
	} else {
		n, err = c.Conn.Read(b)
	}
	c.records.add(b[:n])
	c.ended = c.ended || err == io.EOF //nolint:errorlint // connections return it unwrapped
	return n, err
}

// BetweenRecords reports whether everything that was received ended with a whole record. Only the
// one who reads calls it.
func (c *Conn) BetweenRecords() bool { return c.records.between() }

// CutShort reports, after a read has returned io.EOF, whether the stream ended without the alert
// that ends it: then perhaps not the peer, but somebody on the way has ended it. Only the one who
// reads calls it.
func (c *Conn) CutShort() bool { return c.ended }

func (c *Conn) receive(b []byte) (int, error) {
	n, more, err := nowait.Read(c.fd, b)
	switch {
	case err == io.EOF: //nolint:errorlint // nowait returns it unwrapped
		return 0, err
	case err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
	case n == 0:
		return 0, errAgain
	}
	c.short = !more
	return n, nil
}

// Hold makes the *tls.Conn collect what it would send, until Unhold. Then the caller sends it.
// Calls nest, and apply to the writes of all goroutines. The owner bounds what it writes meanwhile:
// beyond 128 KiB a write sends everything.
func (c *Conn) Hold() {
	c.mu.Lock()
	c.holds++
	c.mu.Unlock()
}

// Unhold ends Hold. It sends nothing.
func (c *Conn) Unhold() {
	c.mu.Lock()
	c.holds--
	c.mu.Unlock()
}

// Pending reports whether something was collected that is not being sent.
func (c *Conn) Pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held != nil
}

// Write is called by crypto/tls, one call at a time.
func (c *Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	failed, collect := c.failed, c.holds > 0
	full := collect && c.collect(b)
	c.mu.Unlock()
	switch {
	case failed != nil:
		return 0, failed
	case full:
		return written(len(b), c.Send())
	case collect:
		return len(b), nil
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if _, err := c.send(true); err != nil { // earlier collected bytes come first
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		c.fail(err)
	}
	return n, err
}

func written(n int, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	return n, nil
}

// collect appends b, and reports whether too much was collected. c.mu is held.
func (c *Conn) collect(b []byte) (full bool) {
	if c.held == nil {
		c.held = buffers.Get().(*buffer)
	}
	c.held.data = append(c.held.data, b...)
	return len(c.held.data) > maxHeld
}

// SendNow sends what was collected, as far as the socket has room, without blocking. all is
// set if nothing is left; otherwise Send sends the rest. After an error the connection is
// unusable.
func (c *Conn) SendNow() (all bool, err error) {
	if !nowait.Works || c.raw == nil || !c.sending.TryLock() {
		return false, nil
	}
	defer c.sending.Unlock()
	return c.send(false)
}

// Send sends what was collected. It blocks while the socket has no room, until the write
// deadline. After an error the connection is unusable.
func (c *Conn) Send() error {
	c.sending.Lock()
	defer c.sending.Unlock()
	_, err := c.send(true)
	return err
}

// send sends what was collected, in order. c.sending is held.
func (c *Conn) send(wait bool) (all bool, err error) {
	for c.next() {
		if err := c.sendOut(wait); err != nil {
			c.fail(err)
			c.free()
			return false, err
		}
		if c.sent < len(c.out.data) {
			return false, nil
		}
		c.free()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed == nil, c.failed
}

// next moves what was collected to out if out is nil. It reports whether there is anything to send.
func (c *Conn) next() bool {
	if c.out != nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out, c.held, c.sent = c.held, nil, 0
	return c.out != nil
}

func (c *Conn) free() {
	if cap(c.out.data) <= 2*maxHeld {
		c.out.data = c.out.data[:0]
		buffers.Put(c.out)
	}
	c.out = nil
}

// fail makes all writes fail from now on: the peer cannot decrypt what follows lost bytes.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}

// sendOut sends the rest of out, or some of it if wait is false.
func (c *Conn) sendOut(wait bool) error {
	if !nowait.Works || c.raw == nil {
		n, err := c.Conn.Write(c.out.data[c.sent:])
		c.sent += n
		return err
	}
	c.wait, c.errno = wait, 0
	if err := c.raw.Write(c.onWritable); err != nil {
		return err
	}
	if c.errno != 0 {
		return &net.OpError{Op: "write", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("sendto", c.errno)}
	}
	return nil
}

// writable is called within RawConn.Write. It returns false to wait for room.
func (c *Conn) writable(fd uintptr) (finished bool) {
	n, errno := nowait.Send(int(fd), c.out.data[c.sent:])
	c.sent += n
	if errno == nowait.Again {
		return !c.wait
	}
	c.errno = errno
	return true
}
