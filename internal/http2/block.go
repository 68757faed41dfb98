package http2

import (
	"encoding/binary"
	"sync"

	"github.com/keygate/keygate/internal/http2/hpack"
)

// blockState is the header block that is being received, or that was received last.
type blockState struct {
	open   bool // it is not complete
	whole  bool // it is complete, and padding follows
	ready  bool // the owner may read it
	stream uint32
	end    bool   // END_STREAM
	bad    bool   // the stream depends on itself
	frames int    // CONTINUATION frames, where an empty one counts as two
	size   int    // of the payloads so far
	buf    []byte // what was fed in pieces
	direct []byte // a block that was fed in one piece
}

// keepBlock is the capacity of buf in bytes that is kept for the next block.
const keepBlock = 1 << 10

// scratches holds memory for strings that are being decoded.
var scratches = sync.Pool{New: func() any { return new(hpack.Scratch) }} //nolint:gochecknoglobals // a cache

// beginHeaders handles the header of HEADERS.
func (c *Conn) beginHeaders() {
	f := &c.frame
	if f.Length < c.prefixLen() {
		c.fail(FrameSizeError, "HEADERS too short for its flags")
		return
	}
	if f.Stream&1 == 0 {
		c.fail(ProtocolError, "HEADERS on a stream that a server would open")
		return
	}
	c.block = blockState{open: true, stream: f.Stream, end: f.Flags&FlagEndStream != 0, size: f.Length, buf: c.block.buf[:0]}
	c.phase = phasePrefix
}

// prefixLen returns the length of the bytes before the header block in HEADERS.
func (c *Conn) prefixLen() (n int) {
	if c.frame.Flags&FlagPadded != 0 {
		n++
	}
	if c.frame.Flags&FlagPriority != 0 {
		n += priorityLen
	}
	return n
}

// prefix reads what comes before the header block in HEADERS.
func (c *Conn) prefix() bool {
	n := c.prefixLen()
	b, ok := c.take(n)
	if !ok {
		return false
	}
	c.left -= n
	if c.frame.Flags&FlagPadded != 0 {
		c.pad = int(b[0])
		b = b[1:]
	}
	if c.frame.Flags&FlagPriority != 0 {
		c.block.bad = binary.BigEndian.Uint32(b)&MaxStreamID == c.frame.Stream
	}
	if c.pad > c.left {
		c.fail(ProtocolError, "padding exceeds the frame")
		return true
	}
	c.left -= c.pad
	c.phase = phaseFragment
	return true
}

// beginContinuation handles the header of CONTINUATION.
func (c *Conn) beginContinuation() {
	f, b := &c.frame, &c.block
	if !b.open {
		c.fail(ProtocolError, "CONTINUATION without HEADERS")
		return
	}
	b.frames++
	if f.Length == 0 {
		b.frames++
	}
	if b.size += f.Length; b.size > c.limits.block || b.frames > c.limits.continuations {
		c.fail(EnhanceYourCalm, "header block too long")
		return
	}
	c.phase = phaseFragment
}

// fragment reads a part of the header block.
func (c *Conn) fragment(ev *Event) bool {
	b, last := &c.block, c.frame.Flags&FlagEndHeaders != 0
	if last && len(b.buf) == 0 && len(c.in) >= c.left+c.pad {
		b.direct = c.in[:c.left]
		c.in = c.in[c.left+c.pad:]
		c.left, c.pad, c.phase = 0, 0, phaseHeader
		c.headDone(ev)
		return true
	}
	n := min(c.left, len(c.in))
	b.buf = append(b.buf, c.in[:n]...)
	c.in, c.left = c.in[n:], c.left-n
	if c.left > 0 {
		return false
	}
	b.whole = last
	c.skip()
	return true
}

// headDone handles a complete header block. Every block must be decoded, even if it has no further
// effect, because later blocks depend on it.
func (c *Conn) headDone(ev *Event) {
	b := &c.block
	b.open, b.whole, b.ready = false, false, true
	s := c.streams.find(b.stream)
	switch {
	case s != nil:
		c.nextHead(ev, s)
	case b.stream > c.last && c.cfg.Role == Client:
		c.fail(ProtocolError, "HEADERS on an idle stream")
	case b.stream > c.last:
		c.last = b.stream
		c.firstHead(ev)
	case !c.recent.has(b.stream) && b.stream <= c.accepted:
		c.fail(StreamClosed, "HEADERS on a closed stream")
	}
	if ev.Kind != Head && ev.Kind != Trailers {
		c.skipBlock()
	}
}

// firstHead handles the header block that opens a stream.
func (c *Conn) firstHead(ev *Event) {
	b := &c.block
	switch {
	case b.stream > c.accepted: // after GOAWAY
	case b.bad:
		c.sendReset(b.stream, ProtocolError)
		c.recent.add(b.stream)
	case c.streams.n >= c.cfg.MaxStreams:
		c.sendReset(b.stream, RefusedStream)
		c.recent.add(b.stream)
	default:
		s := c.streams.add(b.stream)
		s.recv, s.send, s.length = int32(c.cfg.StreamWindow), c.peer.window, -1
		c.emitHead(ev, s, Head)
	}
}

// nextHead handles a header block on a stream that exists.
func (c *Conn) nextHead(ev *Event, s *stream) {
	b := &c.block
	switch {
	case s.is(weReset):
	case s.is(wasReset | remoteEnd):
		c.streamError(ev, s, StreamClosed)
	case b.bad:
		c.streamError(ev, s, ProtocolError)
	case c.cfg.Role == Client && !s.is(hasHead):
		c.emitHead(ev, s, Head)
	case !b.end || s.length > 0: // trailers must end the stream, and the body must be whole
		c.streamError(ev, s, ProtocolError)
	default:
		c.emitHead(ev, s, Trailers)
	}
}

func (c *Conn) emitHead(ev *Event, s *stream, kind EventKind) {
	if c.block.end {
		s.flags |= remoteEnd
	}
	*ev = Event{Kind: kind, Stream: s.id, End: c.block.end, Owner: s.owner}
}

// startBlock begins to decode the block.
func (c *Conn) startBlock() *hpack.Scratch {
	b := &c.block
	b.ready = false
	block := b.direct
	if len(b.buf) > 0 {
		block = b.buf
	}
	scratch, _ := scratches.Get().(*hpack.Scratch)
	c.decoder.Start(block, scratch)
	return scratch
}

// finishBlock ends what startBlock began. The error is nil, hpack.ErrTooLarge, or the error that
// ended the connection.
func (c *Conn) finishBlock(scratch *hpack.Scratch) error {
	err := c.decoder.Finish()
	scratches.Put(scratch)
	c.block.direct = nil
	if cap(c.block.buf) > keepBlock {
		c.block.buf = nil
	}
	if compression, failed := err.(hpack.CompressionError); failed { //nolint:errorlint // it is not wrapped
		c.fail(CompressionError, compression.Error())
		return c.err
	}
	return err
}

// skipBlock decodes the block for the dynamic table alone.
func (c *Conn) skipBlock() {
	_ = c.finishBlock(c.startBlock()) // it ends the connection
}

// dropHead skips a block that the owner has not read. A head must be read.
func (c *Conn) dropHead() {
	if !c.block.ready {
		return
	}
	c.skipBlock()
	if s := c.streams.find(c.block.stream); s != nil && !s.is(hasHead) {
		c.Reset(s.id, InternalError)
	}
}
