package send

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/nowait"
	"github.com/keygate/keygate/internal/proxy/message"
	"github.com/keygate/keygate/internal/upstream"
)

// SpliceFrom is the smallest rest of a body, in bytes, that is worth moving from socket to socket. The last
// SpliceKeep bytes are always received, so that the upstream's connection is free before a slow client has
// them.
const (
	SpliceFrom = 256 << 10
	SpliceKeep = http1.MaxHead
)

// errUnasked reports bytes that an upstream sent before it had any byte of the request.
var errUnasked = fmt.Errorf("the upstream sent bytes before it had the request: %w", http1.ErrSyntax)

// H1Try is a try over a connection to an HTTP/1.1 upstream. It writes the request, and passes the
// response to a message.Receiver as it arrives. It does not depend on the client's connection.
//
//	write, AppendBody…, EndBody   the request, as far as it is known
//	begin                         with a connection
//	Send                          sends what was written, if more of the body is to come; run does
//	                              so otherwise
//	SendData, SendEnd             the rest of the body, from another goroutine while run runs
//	run                           reads the response, to the end of its body
//	release                       the connection can carry another request
//	finish                        the end of the response
//
// A H1Try serves one request after another, with reset between them.
type H1Try struct {
	tripState
	body       message.Framing // of the request
	reader     message.ResponseReader
	buffers    *message.Buffers
	onReadable func(fd uintptr) bool // readable, made once
}

// tripState is the state of one request. reset zeroes it.
type tripState struct {
	conn  *upstream.H1Conn
	to    message.Receiver
	out   []byte // the first bytes to send, in buf or in a larger slice
	head  int    // the length of the request's head in out
	sent  bool   // sending out has begun
	wrote bool   // and all of it was sent
	early bool   // bytes had arrived before the upstream had any byte of the request
	got   bool   // a byte of a response has arrived

	kept    *kept // of the body that was sent; nil keeps nothing
	resumed bool  // the body goes on where it was in an earlier try: kept has what was sent

	buf       *message.Buffer
	from, end int // the part of buf that is still to be relayed

	err    error // of the upstream
	lost   error // of the receiver: the client cannot be reached
	splice io.LimitedReader
}

// init prepares a H1Try that takes its memory from b.
func (t *H1Try) init(b *message.Buffers) { t.buffers, t.onReadable = b, t.readable }

// reset prepares t for the next request.
func (t *H1Try) reset() {
	t.dropBuffer()
	t.kept.giveUp()
	t.tripState = tripState{}
	t.body.Reset()
	t.reader.Reset()
}

// again prepares t to send the request over another connection. After Resume its body goes on where it was.
func (t *H1Try) again() {
	if !t.resumed {
		t.reset()
		return
	}
	t.dropBuffer()
	t.tripState = tripState{resumed: true, kept: t.kept}
	t.reader.Reset()
}

// write writes the head of a request, and what was sent of the body if that goes on. A body without a length will be
// chunked.
func (t *H1Try) write(r *Request, to *Target) {
	before := t.body
	t.out = r.append(t.buffer().Data[:0], to, &t.body)
	t.head = len(t.out)
	if t.resumed {
		t.body = before
		t.out = t.kept.appendTo(t.out)
	}
}

// keep makes t keep what it sends of the body, from what was written so far on.
func (t *H1Try) keep() {
	if !t.resumed {
		t.kept = newKept(t.conn.Pool(), t.out[t.head:])
	}
}

// KeepPart keeps a part of the body that is about to be sent to the connection, if t keeps the body.
func (t *H1Try) KeepPart(part []byte) { t.kept.add(part) }

// KeepNothing gives up what was kept, and keeps nothing more.
func (t *H1Try) KeepNothing() { t.kept.giveUp() }

// Resume makes the next try go on with the body where this one was, after it was sent in parts. It reports false if what was
// sent was not kept.
func (t *H1Try) Resume() bool {
	t.resumed = t.kept.has()
	return t.resumed
}

// Resumed reports whether the body goes on where it was in an earlier try, and Write writes nothing of it.
func (t *H1Try) Resumed() bool { return t.resumed }

// AppendBody appends data of the body to the bytes to send. The error reports a body that differs
// from what the head declares; the request must then not be sent.
func (t *H1Try) AppendBody(data []byte) (err error) {
	t.out, err = t.body.AppendData(t.out, data)
	return err
}

// EndBody appends the end of the body with its trailers, which are spans of text. The error is as for
// AppendBody.
func (t *H1Try) EndBody(text []byte, trailers []http1.Field) error {
	end, err := t.body.Finish(text, trailers)
	t.out = append(t.out, end...)
	return err
}

// appendReceived appends what was received of a body, as r recodes it. used is how much of received
// belongs to the body.
func (t *H1Try) appendReceived(r *message.Recoder, received []byte) (used int, err error) {
	// The body is recoded behind the head, with room around it for the recoding, and then moved up
	// to the head.
	const before, behind = 24, 8
	out, head := t.out, len(t.out)
	out = append(out, make([]byte, before)...)
	out = append(out, received...)
	out = append(out, make([]byte, behind)...)
	start := head + before
	p, err := r.Step(out, start, start+len(received))
	if err != nil {
		return 0, err
	}
	n := copy(out[head:], out[p.From:p.To])
	out = append(out[:head+n], p.End...)
	t.out = out
	return p.Used - start, nil
}

// begin prepares to exchange the request over a connection, and to pass the response to a receiver.
// isHead is set for a HEAD request.
func (t *H1Try) begin(conn *upstream.H1Conn, to message.Receiver, isHead bool) {
	t.err, t.lost, t.sent, t.wrote, t.early, t.got = nil, nil, false, false, false, false
	t.reader.Reset()
	t.reader.IsHead = isHead
	t.conn, t.to = conn, to
}

// buffer returns the buffer. It takes one from the cache if there is none.
func (t *H1Try) buffer() *message.Buffer {
	if t.buf == nil {
		t.buf, t.from, t.end = t.buffers.Get(), message.Front, message.Front
	}
	return t.buf
}

func (t *H1Try) dropBuffer() {
	if t.buf != nil {
		t.buffers.Put(t.buf)
		t.buf, t.out = nil, nil
	}
}

// SendData sends more data of the body. Another goroutine may call it while the response is read. room
// is memory for it, which SendData returns, perhaps grown. If the body differs from what the head
// declares, the try fails.
func (t *H1Try) SendData(room, data []byte) ([]byte, error) {
	room, err := t.body.AppendData(room[:0], data)
	return room, t.sendPart(room, err)
}

// SendEnd sends the end of the body, like SendData.
func (t *H1Try) SendEnd(text []byte, trailers []http1.Field) error {
	end, err := t.body.Finish(text, trailers)
	return t.sendPart(end, err)
}

// sendPart sends a part of the body, which was framed with the error err.
func (t *H1Try) sendPart(part []byte, err error) error {
	if err != nil {
		t.conn.Interrupt()
		return err
	}
	if len(part) > 0 {
		t.kept.add(part)
		_, err = t.conn.Write(part)
	}
	return err
}

// run reads from the upstream until its response is complete, or a tunnel begins. Even
// within a callback for the client's socket it may block, because the goroutine belongs to
// the connection.
func (t *H1Try) run() error {
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
		case t.reader.Phase != message.ReadBody:
			return nil
		}
		if err := t.spliceBody(); err != nil {
			return err
		}
	}
}

// runBlocking is run with ordinary calls.
func (t *H1Try) runBlocking() error {
	if !t.sent {
		if t.err = t.Send(); t.early {
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

// Send sends what was written with ordinary calls. After an error the response is still read: the
// upstream may have responded before it closed the connection.
func (t *H1Try) Send() error {
	t.sent = true
	_, err := t.conn.Write(t.out)
	t.written(err == nil)
	return err
}

// written records that out was written, completely if ok is set. It then checks for bytes that cannot be the
// response. Such bytes are never passed on: the exchange fails as if the upstream had closed a kept
// connection.
func (t *H1Try) written(ok bool) {
	t.wrote = ok
	t.early = ok && t.conn.Unasked(len(t.out))
	t.dropBuffer()
}

// reusable reports whether the connection can serve another request: the upstream got exactly the
// request that the head declares, and its response is complete. It must be called after an upload
// has ended.
func (t *H1Try) reusable() bool { return t.wrote && t.body.Whole() && t.reader.Reusable() }

// torn reports whether a body that has ended with the connection is not whole, because the upstream has reset the
// connection. Perhaps only a write has noticed that. It must be called after an upload has ended.
func (t *H1Try) torn() bool { return t.reader.UntilClose() && t.conn.WasReset() }

// release ends the use of a connection that can serve another request.
func (t *H1Try) release() {
	if t.reader.Bodyless() {
		t.conn.Rest()
		return
	}
	t.conn.Release()
}

// spliceBody moves most of the rest of a long body from socket to socket.
func (t *H1Try) spliceBody() error {
	body := t.reader.Body()
	t.splice = io.LimitedReader{R: t.conn.Plain(), N: body.Left() - SpliceKeep}
	n, err := t.to.Splice(&t.splice)
	body.Skip(n)
	if err != nil {
		t.lost = err
		return err
	}
	if t.splice.N > 0 {
		t.err = message.ErrTruncated
		return message.ErrTruncated
	}
	return nil
}

// canSplice reports whether the rest of the body can go from socket to socket.
func (t *H1Try) canSplice() bool {
	return t.reader.Body().Left() >= SpliceFrom+SpliceKeep && t.conn.Plain() != nil && t.to.CanSplice()
}

// readable is called once at the start, when it sends the request, and then each time the
// upstream's connection becomes readable. It returns false to wait for the next time.
func (t *H1Try) readable(fd uintptr) (finished bool) {
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
func (t *H1Try) received(n int) (finished bool) {
	if n <= 0 {
		return false
	}
	t.end += n
	t.got = true
	return t.relay()
}

// send sends out.
func (t *H1Try) send(fd int) (ok bool) {
	if t.conn.Plain() == nil {
		t.err = t.Send()
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
func (t *H1Try) room() []byte {
	limit := len(t.buf.Data) - message.TailRoom
	if t.end == limit && t.from > message.Front {
		t.end = message.Front + copy(t.buf.Data[message.Front:], t.buf.Data[t.from:t.end])
		t.from = message.Front
	}
	if t.end == limit && t.reader.Phase == message.ReadHead {
		t.buf.Grow()
		limit = len(t.buf.Data) - message.TailRoom
	}
	return t.buf.Data[t.end:limit]
}

// closed handles the end of the upstream's connection. A body that ends with the connection is not
// whole if something other than the upstream may have ended it.
func (t *H1Try) closed() {
	switch err := t.reader.Closed(t.end > t.from, t.conn.CutShort()); {
	case err == nil:
		t.err = nil
	case t.err == nil:
		t.err = err
	}
}

// relay passes the received bytes to the receiver. It returns false if more must be read.
func (t *H1Try) relay() (finished bool) {
	r := &t.reader
	next, err := r.Step(t.buf.Data, t.from, t.end, t.to)
	t.from = next
	switch {
	case err != nil && r.Lost:
		t.lost = err
		return true
	case err != nil:
		t.err = err
		return true
	case r.Phase == message.ReadDone:
		// The connection is released before the client, which may be slow, has got the rest.
		t.err = nil
		return true
	case r.Phase == message.ReadTunnel:
		return true
	case r.Phase == message.ReadHead && t.from < t.end:
		return false // the head is incomplete
	}
	t.from, t.end = message.Front, message.Front
	return r.Phase == message.ReadBody && t.canSplice()
}

// finish passes the end of the response to the receiver.
func (t *H1Try) finish() error {
	err := t.reader.Finish(t.to)
	t.dropBuffer()
	return err
}
