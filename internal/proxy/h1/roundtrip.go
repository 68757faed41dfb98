package h1

import (
	"cmp"
	"errors"
	"io"
	"syscall"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/nowait"
	"github.com/keygate/keygate/internal/upstream"
)

const (
	// spliceFrom is the smallest rest of a body, in bytes, that is worth moving from socket
	// to socket. The last bytes are always received, so that the upstream's connection is
	// free before a slow client has them.
	spliceFrom = 256 << 10
	spliceKeep = http1.MaxHead
)

// roundTrip is the upstream half of an exchange: it sends a request over a connection to an
// HTTP/1.1 upstream, and passes the response to a receiver as it arrives. It does not
// depend on the client's connection.
//
//	conn, to, out = …     what to send, and who takes the response
//	run                   sends out unless that was done, and reads to the end of the body
//	release or discard    what becomes of the connection
//	finish                the end of the response, for the receiver
//
// If a request's body does not fit into out, another goroutine writes it to the connection
// meanwhile.
type roundTrip struct {
	tripState
	body       framing // of the request
	reader     responseReader
	pools      *pools
	onReadable func(fd uintptr) bool // readable, made once
}

// tripState is the state of one request. reset zeroes it.
type tripState struct {
	conn  *upstream.H1Conn
	to    Receiver
	out   []byte // the first bytes to send, in buf or in a larger slice
	sent  bool   // an attempt to send out was made
	wrote bool   // and all of it was sent
	early bool   // bytes had arrived before the upstream had any of it
	got   bool   // a byte of a response has arrived

	buf       *buffer
	from, end int // the part of buf that is still to be relayed

	err    error // of the upstream
	lost   error // of the receiver: the client cannot be reached
	splice io.LimitedReader
}

// init makes the closure that all uses share.
func (t *roundTrip) init() { t.onReadable = t.readable }

// reset prepares t for the next request.
func (t *roundTrip) reset() {
	t.dropBuffer()
	t.tripState = tripState{}
	t.body.reset()
	t.reader.reset()
}

// restart prepares t to send the same request a second time.
func (t *roundTrip) restart(isHead bool) {
	t.err, t.lost, t.sent, t.wrote, t.early, t.got = nil, nil, false, false, false, false
	t.reader.reset()
	t.reader.isHead = isHead
}

// buffer returns the buffer. It takes one from the pool if there is none.
func (t *roundTrip) buffer() *buffer {
	if t.buf == nil {
		t.buf, t.from, t.end = t.pools.buffer(), front, front
	}
	return t.buf
}

func (t *roundTrip) dropBuffer() {
	if t.buf != nil {
		t.pools.release(t.buf)
		t.buf, t.out = nil, nil
	}
}

// run reads from the upstream until its response is complete, or a tunnel begins. Even
// within a callback for the client's socket it may block, because the goroutine belongs to
// the connection.
func (t *roundTrip) run() error {
	if t.early {
		return errUnasked
	}
	if t.conn.Blocks() {
		return t.runBlocking()
	}
	for {
		err := t.conn.Raw().Read(t.onReadable)
		switch {
		case t.err != nil:
			return t.err
		case t.lost != nil:
			return t.lost
		case err != nil:
			return err
		case t.reader.phase != readBody:
			return nil
		}
		if err := t.spliceBody(); err != nil {
			return err
		}
	}
}

// runBlocking is run with ordinary calls.
func (t *roundTrip) runBlocking() error {
	if !t.sent {
		if t.err = t.write(); t.early {
			return errUnasked
		}
	}
	for {
		t.buffer()
		n, err := t.conn.NetConn().Read(t.room())
		if t.received(n) {
			break
		}
		if errors.Is(err, io.EOF) {
			t.closed()
			break
		}
		if err != nil {
			return cmp.Or(t.err, err)
		}
	}
	return cmp.Or(t.err, t.lost)
}

// write sends out with ordinary calls.
func (t *roundTrip) write() error {
	t.sent = true
	_, err := t.conn.Write(t.out)
	t.written(err == nil)
	return err
}

// written records that out was written, completely if ok is set. It then checks for bytes that cannot be the
// response. Such bytes are never passed on: the exchange fails as if the upstream had closed a kept
// connection.
func (t *roundTrip) written(ok bool) {
	t.wrote = ok
	t.early = ok && t.conn.Unasked(len(t.out))
	t.dropBuffer()
}

// reusable reports whether the connection can serve another request: the upstream got exactly the
// request that the head declares, and its response is complete. An upload has ended.
func (t *roundTrip) reusable() bool { return t.wrote && t.body.whole() && t.reader.reusable() }

// torn reports whether a body that has ended with the connection is not whole, because the upstream has reset the
// connection. Only a write may have found that out. An upload has ended.
func (t *roundTrip) torn() bool { return t.reader.body.in == http1.UntilClose && t.conn.WasReset() }

// release ends the use of a connection that can serve another request.
func (t *roundTrip) release() {
	if t.reader.body.in == http1.NoBody {
		t.conn.Rest()
		return
	}
	t.conn.Release()
}

// spliceBody moves most of what is left of a long body from socket to socket.
func (t *roundTrip) spliceBody() error {
	body := &t.reader.body
	t.splice = io.LimitedReader{R: t.conn.Plain(), N: body.left - spliceKeep}
	n, err := t.to.Splice(&t.splice)
	body.left -= n
	body.moved += n
	if err != nil {
		t.lost = err
		return err
	}
	if t.splice.N > 0 {
		t.err = errTruncated
		return errTruncated
	}
	return nil
}

// canSplice reports whether the rest of the body can go from socket to socket.
func (t *roundTrip) canSplice() bool {
	body := &t.reader.body
	return body.in == http1.ByLength && body.left >= spliceFrom+spliceKeep && t.conn.Plain() != nil && t.to.CanSplice()
}

// readable is called once at the start, when it sends the request, and then each time the
// upstream's connection becomes readable. It returns false to wait for the next time.
func (t *roundTrip) readable(fd uintptr) (finished bool) {
	if !t.sent {
		switch sent := t.send(int(fd)); {
		case t.early:
			t.err = errUnasked
			return true
		case sent:
			return false
		}
		// The upstream has closed the connection, possibly after a response.
	}
	for {
		t.buffer()
		n, err := t.conn.Receive(fd, t.room())
		switch {
		case err == io.EOF: //nolint:errorlint // it is not wrapped
			t.closed()
			return true
		case err != nil:
			t.err = err
			return true
		case n == 0:
			if t.from == t.end {
				t.dropBuffer()
			}
			return t.err != nil
		}
		if t.received(n) {
			return true
		}
	}
}

// received takes n more bytes. It returns false if more must be read.
func (t *roundTrip) received(n int) (finished bool) {
	if n <= 0 {
		return false
	}
	t.end += n
	t.got = true
	return t.relay()
}

// send sends out.
func (t *roundTrip) send(fd int) (ok bool) {
	if t.conn.Plain() == nil {
		t.err = t.write()
		return t.err == nil
	}
	t.sent = true
	n, errno := nowait.Send(fd, t.out)
	if errno == nowait.Again {
		errno = 0
		if _, err := t.conn.Write(t.out[n:]); err != nil { // which notes the error
			errno = syscall.EPIPE
		}
	}
	if t.written(errno == 0); !t.wrote {
		t.conn.NoteWrite(errno)
		t.err = errno
	}
	return t.wrote
}

// room returns the free part of the buffer. It would be empty only if a body filled the
// buffer, but by then all of the body has been relayed.
func (t *roundTrip) room() []byte {
	limit := len(t.buf.data) - tailRoom
	if t.end == limit && t.from > front {
		t.end = front + copy(t.buf.data[front:], t.buf.data[t.from:t.end])
		t.from = front
	}
	if t.end == limit && t.reader.phase == readHead {
		t.buf.grow()
		limit = len(t.buf.data) - tailRoom
	}
	return t.buf.data[t.end:limit]
}

// closed handles the end of the upstream's connection. A body that ends with it is not whole if
// somebody else may have ended it.
func (t *roundTrip) closed() {
	switch err := t.reader.closed(t.end > t.from, t.conn.CutShort()); {
	case err == nil:
		t.err = nil
	case t.err == nil:
		t.err = err
	}
}

// relay passes the received bytes to the receiver. It returns false if more must be read.
func (t *roundTrip) relay() (finished bool) {
	r := &t.reader
	next, err := r.step(t.buf.data, t.from, t.end, t.to)
	t.from = next
	switch {
	case err != nil && r.lost:
		t.lost = err
		return true
	case err != nil:
		t.err = err
		return true
	case r.phase == readDone:
		// The connection is released before the client, which may be slow, has the rest.
		t.err = nil
		return true
	case r.phase == readTunnel:
		return true
	case r.phase == readHead && t.from < t.end:
		return false // the head is incomplete
	}
	t.from, t.end = front, front
	return r.phase == readBody && t.canSplice()
}

// finish passes the end of the response to the receiver.
func (t *roundTrip) finish() error {
	err := t.reader.finish(t.to)
	t.dropBuffer()
	return err
}

// discard closes the connection, if there is one.
func (t *roundTrip) discard() {
	if t.conn != nil {
		t.conn.Discard()
		t.conn = nil
	}
}
