package upstream

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/nowait"
)

const (
	// maxOutput is how many bytes may wait to be sent on a connection before bodies wait,
	// and new requests go elsewhere. The same number of bytes may be on its way to the socket.
	maxOutput = 64 << 10
	// keepOutput is the size of each of the buffers that a connection without an exchange
	// keeps.
	keepOutput = 16 << 10
	// h2SendTimeout is how long a server may take to receive what the connection is sending,
	// at most maxOutput and a head.
	h2SendTimeout = 30 * time.Second
	// finalReadTimeout is how long a connection that can no longer be written to may be read: a
	// server that responds before the end of an upload may close the connection.
	finalReadTimeout = 5 * time.Second
)

// errSendTimeout is the cause of a connection that ended because its server read nothing.
var errSendTimeout = errors.New("upstream: the server does not read what it is sent")

// output is the sending side of an h2Conn, guarded by its lock.
//
// Whoever appends to the output of http calls flush. If nobody is sending, the caller becomes the
// sender, lets others append as well if there are any, and sends until nothing is left. A send
// never blocks: if the socket's buffer is full, a goroutine finishes it, and is the sender
// meanwhile. The reader is the sender while it handles what it has received.
type output struct {
	conn     *h2Conn
	sendFunc func(fd uintptr) // trySend, bound once: a closure for each call would be an allocation

	flushing  bool // somebody sends
	broken    bool // sending has failed with writeErr; further output is dropped
	writeErr  error
	full      bool      // a request was turned away because of the output
	unblocked sync.Cond // when the reader may go on

	// Positions in all that is sent, before encryption.
	taken int64 // output that was taken from http
	sent  int64 // the part that the socket may have got

	spare []byte // memory for the output
	batch []byte // what was taken last
	rest  []byte // rest of a batch for the socket, which a goroutine finishes

	wanting  []*H2Stream // streams that have data to send, in FIFO order
	offering bool        // a goroutine calls CanSend
	offered  *H2Stream   // whose CanSend runs

	// Used by trySend, which only the sender calls.
	data   []byte
	n      int
	failed error
}

func (o *output) init(c *h2Conn) {
	o.conn, o.sendFunc, o.unblocked.L = c, o.trySend, &c.mu
}

func (o *output) trySend(fd uintptr) {
	n, errno := nowait.Send(int(fd), o.data)
	if o.n, o.failed = n, nil; errno != 0 && errno != nowait.Again {
		o.failed = errno
	}
}

// Flush implements Flusher.
func (c *h2Conn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flush()
}

// flush sends the output, unless another goroutine does. c.mu is held, and released for a while.
func (c *h2Conn) flush() {
	if c.flushing || !c.pending() {
		return
	}
	c.flushing = true
	if c.http.Streams() > 1 {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.drain()
}

func (c *h2Conn) pending() bool {
	return c.http.Pending() > 0 || c.seal != nil && c.seal.pending() > 0
}

// backlogged reports whether the reader must wait until some output was sent.
func (c *h2Conn) backlogged() bool {
	return c.flushing && (c.http.Backlogged() || c.seal != nil && c.seal.pending() > http2.MaxBacklog)
}

// drain sends the output until nothing is left, or hands this over to a goroutine. The caller is
// the sender, and holds c.mu, which is released for a while.
func (c *h2Conn) drain() {
	for c.pending() {
		if !c.sendBatch() {
			go c.finish()
			return
		}
	}
	c.flushing = false
	if c.first == nil {
		c.shrink()
	}
	c.unblocked.Broadcast()
	c.update()
	if c.full {
		c.full = false
		go c.pool.serve()
	}
	c.wake()
}

// shrink frees large buffers of the output, which is empty. c.mu is held.
func (c *h2Conn) shrink() {
	c.spare = small(c.spare)
	c.http.Take(small(c.http.Take(nil)))
	if c.seal != nil {
		c.seal.shrink()
	}
}

// small returns b, or nil if it is larger than a kept buffer may be.
func small(b []byte) []byte {
	if cap(b) > keepOutput {
		return nil
	}
	return b
}

// sendBatch sends the present output. It reports false if the socket's buffer is full: the rest is
// then in c.rest.
func (c *h2Conn) sendBatch() bool {
	c.batch, c.spare = c.http.Take(c.spare), nil
	from := c.taken
	c.taken += int64(len(c.batch))
	if c.broken || c.dead && !errors.Is(c.err, c.http.Err()) {
		if c.seal != nil {
			c.seal.giveBack(c.seal.take())
		}
		c.spare = c.batch
		return true
	}
	c.sent = c.taken // at most
	c.unblocked.Broadcast()
	c.mu.Unlock()
	n, size, err := c.send()
	c.mu.Lock()
	if err != nil {
		c.breakOff(err)
		switch {
		case c.tls == nil:
			c.sent = from + int64(n)
		case n == 0:
			c.sent = from
		}
		return true
	}
	return n == size
}

// send sends c.batch without blocking. c.mu is not held.
func (c *h2Conn) send() (n, size int, err error) {
	c.data = c.batch
	if c.tls != nil {
		if len(c.batch) > 0 {
			if _, err := c.tls.Write(c.batch); err != nil {
				return 0, 0, err
			}
		}
		c.data = c.seal.take()
	}
	c.n, c.failed = 0, nil
	if err := c.slot.raw.Control(c.sendFunc); err != nil {
		c.failed = err
	}
	n, size = c.n, len(c.data)
	if c.rest = c.data[n:]; n == size {
		c.reuse(c.data)
	}
	return n, size, c.failed
}

// reuse keeps the memory of a batch that was sent, and of its ciphertext. Only the sender calls it,
// and only the sender uses c.spare.
func (c *h2Conn) reuse(data []byte) {
	if c.seal != nil {
		if cap(data) > maxOutput*2 {
			data = nil
		}
		c.seal.giveBack(data)
	}
	if cap(c.batch) <= maxOutput*2 {
		c.spare = c.batch
	}
	c.batch, c.data = nil, nil
}

// finish sends the rest of a batch with calls that may block, and then the further output.
func (c *h2Conn) finish() {
	_ = c.slot.conn.SetWriteDeadline(time.Now().Add(c.pool.sendTimeout))
	_, err := c.slot.conn.Write(c.rest)
	c.rest = nil
	c.reuse(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		var timeout interface{ Timeout() bool }
		if errors.As(err, &timeout) && timeout.Timeout() {
			err = errSendTimeout
		}
		c.breakOff(err)
	}
	c.drain()
}

// breakOff ends sending after an error. What has arrived already is still read: an upstream
// may have responded before it closed the connection. c.mu is held.
func (c *h2Conn) breakOff(err error) {
	if c.broken || c.dead {
		return
	}
	c.broken, c.writeErr = true, err
	c.update()
	wait := finalReadTimeout
	if errors.Is(err, errSendTimeout) {
		c.die(err)
		wait = 0
	}
	_ = c.slot.conn.SetReadDeadline(time.Now().Add(wait))
}

// sendData is SendData. If blocking is set, c tells through s.more when to go on.
func (c *h2Conn) sendData(s *H2Stream, b []byte, end, blocking bool) (n int, ok bool) {
	if !c.usable(s) {
		return 0, false
	}
	for {
		piece, room := b[n:], maxOutput-c.http.Pending()
		if len(c.wanting) > 0 {
			room = min(room, http2.MaxFrame) // others wait
		}
		if len(piece) > room {
			piece = piece[:max(room, 0)]
		}
		last := n+len(piece) == len(b)
		m := 0
		if len(piece) > 0 || last {
			if m, ok = c.http.Data(s.id, piece, end && last); !ok {
				return n, false
			}
		}
		n += m
		full := c.flushing
		c.flush()
		switch {
		case n == len(b): // the exchange may be over already
			return n, true
		case !c.usable(s):
			return n, false
		case m == len(piece) && !full && !c.flushing && len(c.wanting) == 0:
			continue // there is room again
		}
		s.blocking = blocking
		if !s.wanting {
			s.wanting = true
			c.wanting = append(c.wanting, s)
		}
		if !c.flushing {
			c.wake() // the windows may have changed meanwhile
		}
		return n, true
	}
}

// canSend reports whether a stream in c.wanting has nothing to wait for. c.mu is held.
func (c *h2Conn) canSend(s *H2Stream) bool {
	return c.http.Pending() < maxOutput && c.http.Window(s.id) > 0 || !c.writable(s)
}

// writable reports whether more of the request may be sent at all. c.mu is held.
func (c *h2Conn) writable(s *H2Stream) bool {
	_, ok := c.http.Data(s.id, nil, false)
	return ok && c.usable(s)
}

// usable reports whether the connection still sends for a stream. c.mu is held.
func (c *h2Conn) usable(s *H2Stream) bool { return s.open && !c.dead && !c.broken }

// wake lets streams go on that wait to send, if they can. c.mu is held.
func (c *h2Conn) wake() {
	for i := 0; i < len(c.wanting); {
		s := c.wanting[i]
		switch {
		case !c.canSend(s):
			i++
		case s.blocking:
			c.unwant(i)
			s.notify()
		case c.offering:
			return
		default:
			c.offering = true
			go c.offer()
			return
		}
	}
}

// wakeGone lets the sender of a stream whose exchange is over go on. c.mu is held.
func (c *h2Conn) wakeGone(s *H2Stream) {
	if i := slices.Index(c.wanting, s); i >= 0 {
		c.unwant(i)
	}
	if s.more != nil {
		s.notify()
	}
}

func (c *h2Conn) unwant(i int) {
	c.wanting[i].wanting = false
	c.wanting = slices.Delete(c.wanting, i, i+1)
}

// notify lets Send go on.
func (s *H2Stream) notify() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// offer calls CanSend of the streams that can send, in turn.
func (c *h2Conn) offer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		i := slices.IndexFunc(c.wanting, func(s *H2Stream) bool { return !s.blocking && c.canSend(s) })
		if i < 0 {
			break
		}
		s := c.wanting[i]
		c.unwant(i)
		c.offered = s
		c.mu.Unlock()
		s.ex.CanSend()
		c.mu.Lock()
		c.offered = nil
	}
	c.offering = false
	c.wake()
}
