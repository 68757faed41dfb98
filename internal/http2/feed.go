package http2

import "encoding/binary"

// phase is what the next bytes are.
type phase uint8

const (
	phasePreface   phase = iota
	phaseHeader          // the header of a frame
	phasePadLength       // of DATA
	phaseData
	phasePrefix // of HEADERS: the length of the padding, and the priority
	phaseFragment
	phaseSetting // one setting of SETTINGS
	phaseControl // the payload of a short frame
	phaseSkip    // padding, and what is ignored
)

// input is what was fed and the state of the frame at its beginning.
type input struct {
	now      int64
	in       []byte
	phase    phase
	frame    FrameHeader
	left     int    // bytes of the part of the frame that is being read
	pad      int    // bytes of padding after it
	begun    uint64 // frames that have begun, CONTINUATION aside
	discard  bool   // the data is not for the owner
	received peerSettings
	small    [FrameHeaderLen]byte // the beginning of a part that was fed in pieces
	n        int                  // length of small; in phasePreface, of the matched part
}

// Feed passes the bytes that were received next. now is the time in nanoseconds of a
// monotonic clock. The owner calls Next until it returns false; b must not change until then, and
// nothing of it is kept afterwards.
func (c *Conn) Feed(now int64, b []byte) { c.now, c.in = now, b }

// BetweenFrames reports whether the next byte begins a frame. The first byte of a frame causes no
// event, so an owner may wait for it alone.
func (c *Conn) BetweenFrames() bool { return c.phase == phaseHeader && c.n == 0 }

// Next stores the next event in ev and reports whether there was one. There is none if everything
// that was fed is consumed, or if the connection has ended: see Err.
func (c *Conn) Next(ev *Event) bool {
	c.dropHead()
	*ev = Event{}
	for c.err == nil {
		if c.refused >= 0 && c.nextRefused(ev) {
			return true
		}
		if !c.step(ev) {
			return false
		}
		if ev.Kind != 0 && c.err == nil {
			return true
		}
	}
	c.in = nil
	return false
}

// step reads the next part of a frame. It returns false if that has not been fed.
func (c *Conn) step(ev *Event) bool {
	switch c.phase {
	case phasePreface:
		return c.preface()
	case phaseHeader:
		if c.n == 0 && len(c.in) > 0 && !c.block.open {
			c.begun++
		}
		b, ok := c.take(FrameHeaderLen)
		if !ok {
			return false
		}
		c.frame = ParseFrameHeader(b)
		c.left, c.pad = c.frame.Length, 0
		c.beginFrame(ev)
	case phasePadLength:
		b, ok := c.take(1)
		if !ok {
			return false
		}
		c.left--
		if c.pad = int(b[0]); c.pad > c.left {
			c.fail(ProtocolError, "padding exceeds the frame")
			return true
		}
		c.left -= c.pad
		c.beginData(ev)
	case phaseData:
		return c.data(ev)
	case phasePrefix:
		return c.prefix()
	case phaseFragment:
		return c.fragment(ev)
	case phaseSetting:
		if c.left == 0 {
			c.phase = phaseHeader
			c.applySettings(ev)
			return true
		}
		b, ok := c.take(settingLen)
		if !ok {
			return false
		}
		c.left -= settingLen
		c.setting(b)
	case phaseControl:
		return c.shortFrame(ev)
	case phaseSkip:
		n := min(c.left, len(c.in))
		c.in, c.left = c.in[n:], c.left-n
		if c.left > 0 {
			return false
		}
		c.phase = phaseHeader
		if c.block.whole {
			c.headDone(ev)
		}
	}
	return true
}

// preface compares what was fed with the connection preface.
func (c *Conn) preface() bool {
	n := min(len(Preface)-c.n, len(c.in))
	if string(c.in[:n]) != Preface[c.n:c.n+n] {
		c.fail(ProtocolError, "invalid connection preface")
		return true
	}
	c.in, c.n = c.in[n:], c.n+n
	if c.n < len(Preface) {
		return false
	}
	c.phase, c.n = phaseHeader, 0
	return true
}

// take returns the next n bytes, at most FrameHeaderLen, once they have been fed.
func (c *Conn) take(n int) (b []byte, ok bool) {
	if c.n == 0 && len(c.in) >= n {
		b, c.in = c.in[:n], c.in[n:]
		return b, true
	}
	m := copy(c.small[c.n:n], c.in)
	c.in, c.n = c.in[m:], c.n+m
	if c.n < n {
		return nil, false
	}
	c.n = 0
	return c.small[:n], true
}

// skip ignores the rest of the frame.
func (c *Conn) skip() {
	c.phase, c.left, c.pad = phaseSkip, c.left+c.pad, 0
}

// beginFrame validates the header of a frame and says how to read the rest of it.
func (c *Conn) beginFrame(ev *Event) {
	f := &c.frame
	switch {
	case f.Length > MaxFrame:
		c.fail(FrameSizeError, "frame too long")
		return
	case !c.peer.known && (f.Type != FrameSettings || f.Flags&FlagAck != 0):
		c.fail(ProtocolError, "the first frame is not SETTINGS")
		return
	case c.block.open && (f.Type != FrameContinuation || f.Stream != c.block.stream):
		c.fail(ProtocolError, "a header block is interrupted")
		return
	}
	onStream := f.Type <= FrameReset || f.Type == FrameContinuation
	if onStream != (f.Stream != 0) && f.Type <= FrameContinuation && f.Type != FrameWindowUpdate {
		c.fail(ProtocolError, "frame on the wrong stream")
		return
	}
	switch f.Type {
	case FrameData:
		c.beginDataFrame(ev)
	case FrameHeaders:
		c.beginHeaders()
	case FrameContinuation:
		c.beginContinuation()
	case FrameSettings:
		c.beginSettings()
	case FramePriority:
		if f.Length != priorityLen {
			c.priorityError(ev, FrameSizeError, "PRIORITY of the wrong length")
			return
		}
		c.countControl(1)
		c.phase = phaseControl
	case FrameReset, FrameWindowUpdate:
		c.beginControl(4)
	case FramePing:
		c.beginControl(pingLen)
	case FrameGoAway:
		if f.Length < 8 {
			c.fail(FrameSizeError, "GOAWAY too short")
			return
		}
		c.countControl(1)
		c.phase = phaseControl
	case FramePushPromise:
		c.fail(ProtocolError, "PUSH_PROMISE although push is disabled")
	default:
		c.countControl(1)
		c.skip()
	}
}

func (c *Conn) beginControl(length int) {
	if c.frame.Length != length {
		c.fail(FrameSizeError, "control frame of the wrong length")
		return
	}
	c.phase = phaseControl
}

func (c *Conn) beginSettings() {
	f := &c.frame
	switch {
	case f.Flags&FlagAck != 0 && f.Length != 0 || f.Length%settingLen != 0:
		c.fail(FrameSizeError, "SETTINGS of the wrong length")
	case f.Flags&FlagAck == 0:
		c.countControl(1 + f.Length/(16*settingLen))
		c.received = c.peer
		c.received.minTable = c.peer.table
		c.phase = phaseSetting
	case c.unacked == 0:
		c.fail(ProtocolError, "unexpected acknowledgement of settings")
	default:
		c.unacked--
		c.phase = phaseHeader
	}
}

// shortFrame reads a frame of a fixed length, or the beginning of GOAWAY.
func (c *Conn) shortFrame(ev *Event) bool {
	b, ok := c.take(min(c.left, 8))
	if !ok {
		return false
	}
	c.left -= len(b)
	c.phase = phaseHeader
	switch c.frame.Type {
	case FramePriority:
		if binary.BigEndian.Uint32(b)&MaxStreamID == c.frame.Stream {
			c.priorityError(ev, ProtocolError, "a stream depends on itself")
		}
	case FrameReset:
		c.resetFrame(ev, Code(binary.BigEndian.Uint32(b)))
	case FrameWindowUpdate:
		c.windowUpdate(ev, binary.BigEndian.Uint32(b)&MaxWindow)
	case FramePing:
		c.pingFrame(ev, b)
	case FrameGoAway:
		c.goAwayFrame(ev, binary.BigEndian.Uint32(b)&MaxStreamID, Code(binary.BigEndian.Uint32(b[4:])))
		c.skip()
	}
	return true
}

// priorityError handles an invalid PRIORITY frame, a stream error. Such a frame may come on any
// stream, but only an existing stream can be reset.
func (c *Conn) priorityError(ev *Event, code Code, reason string) {
	s := c.streams.find(c.frame.Stream)
	if s == nil {
		c.fail(code, reason)
		return
	}
	c.skip()
	if !s.is(weReset) {
		c.streamError(ev, s, code)
	}
}

// resetFrame handles RST_STREAM.
func (c *Conn) resetFrame(ev *Event, code Code) {
	c.countControl(1)
	if c.isIdle(c.frame.Stream) {
		c.fail(ProtocolError, "RST_STREAM on an idle stream")
		return
	}
	if c.cfg.Role == Server {
		c.countReset()
	}
	s := c.streams.find(c.frame.Stream)
	if s == nil || s.is(wasReset|weReset) {
		return
	}
	s.flags |= wasReset
	if s.is(remoteEnd) && s.is(localEnd) {
		return
	}
	*ev = Event{Kind: Reset, Stream: s.id, Code: code, Owner: s.owner}
}

// pingFrame handles PING.
func (c *Conn) pingFrame(ev *Event, b []byte) {
	switch {
	case c.frame.Flags&FlagAck == 0:
		c.countReply()
		n := len(c.out)
		c.out = AppendPing(c.out, true, [pingLen]byte(b))
		c.reply(n)
	case c.pings == 0:
		c.countControl(1)
	default:
		c.pings--
		*ev = Event{Kind: PingReply, Data: b}
	}
}

// goAwayFrame handles GOAWAY.
func (c *Conn) goAwayFrame(ev *Event, last uint32, code Code) {
	c.gone = true
	if c.cfg.Role == Client {
		c.lastOur = min(c.lastOur, last)
		c.refused = 0
	}
	*ev = Event{Kind: GoAway, Last: last, Code: code}
}

// nextRefused finds the next stream that the peer will not serve, after GOAWAY.
func (c *Conn) nextRefused(ev *Event) bool {
	for ; c.refused < len(c.streams.slots); c.refused++ {
		s := &c.streams.slots[c.refused]
		if s.id > c.lastOur && !s.is(wasReset|weReset) && !(s.is(remoteEnd) && s.is(localEnd)) {
			s.flags |= wasReset
			*ev = Event{Kind: Reset, Stream: s.id, Code: RefusedStream, Owner: s.owner}
			return true
		}
	}
	c.refused = -1
	return false
}

// isIdle reports whether a stream has not been opened.
func (c *Conn) isIdle(id uint32) bool { return id&1 == 0 || id > c.last }

// streamError resets a stream for an error of the peer.
func (c *Conn) streamError(ev *Event, s *stream, code Code) {
	informed := s.is(wasReset | weReset)
	c.sendReset(s.id, code)
	s.flags |= weReset
	if !informed {
		*ev = Event{Kind: Reset, Local: true, Stream: s.id, Code: code, Owner: s.owner}
	}
}

// sendReset resets a stream for an error of the peer.
func (c *Conn) sendReset(id uint32, code Code) {
	n := len(c.out)
	c.out = AppendReset(c.out, id, code)
	c.reply(n)
	c.countReset()
}
