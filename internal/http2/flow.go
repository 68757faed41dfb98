package http2

// creditStep is how many bytes of credit are collected before a WINDOW_UPDATE: half of the
// smallest window, so that a peer always has the other half.
const creditStep = defaultWindow/2 + 1

// beginDataFrame handles the header of DATA. The whole payload counts for flow control,
// padding included (RFC 9113, 6.1).
func (c *Conn) beginDataFrame(ev *Event) {
	f := &c.frame
	if f.Flags&FlagPadded != 0 && f.Length == 0 {
		c.fail(FrameSizeError, "padded DATA without a length of padding")
		return
	}
	if c.isIdle(f.Stream) {
		c.fail(ProtocolError, "DATA on an idle stream")
		return
	}
	if int64(f.Length) > c.recv {
		c.fail(FlowControlError, "DATA exceeds the window of the connection")
		return
	}
	c.recv -= int64(f.Length)
	c.discard = true
	switch s := c.streams.find(f.Stream); {
	case s == nil:
		if f.Stream <= c.accepted && !c.recent.has(f.Stream) {
			c.sendReset(f.Stream, StreamClosed)
			c.recent.add(f.Stream)
		}
	case s.is(weReset):
	case s.is(wasReset | remoteEnd):
		c.streamError(ev, s, StreamClosed)
	case f.Length > int(s.recv):
		c.streamError(ev, s, FlowControlError)
	default:
		s.recv -= int32(f.Length)
		c.discard = false
	}
	if f.Flags&FlagPadded != 0 {
		c.phase = phasePadLength
		return
	}
	c.beginData(ev)
}

// beginData handles a DATA frame with left bytes of data and pad bytes of padding.
func (c *Conn) beginData(ev *Event) {
	f := &c.frame
	c.phase = phaseData
	if c.left == 0 && f.Flags&FlagEndStream == 0 {
		c.countControl(1)
	}
	if s := c.streams.find(f.Stream); !c.discard && s != nil {
		c.checkData(ev, s)
	}
	if c.discard || c.cfg.Role == Client {
		c.giveBack(f.Length)
		return
	}
	c.giveBack(f.Length - c.left) // the padding, which the owner never gets
}

// checkData checks DATA against what is known of the body.
func (c *Conn) checkData(ev *Event, s *stream) {
	f := &c.frame
	switch {
	case s.is(weReset | wasReset):
	case c.cfg.Role == Client && !s.is(hasHead): // data before a response
		c.streamError(ev, s, ProtocolError)
	case s.length >= 0 && (int64(c.left) > s.length || f.Flags&FlagEndStream != 0 && int64(c.left) < s.length):
		c.streamError(ev, s, ProtocolError) // RFC 9113, 8.1.1
	default:
		s.credit += int32(f.Length - c.left) // padding
		c.renewStream(s)
		return
	}
	c.discard = true
}

// data passes on the data that has been fed.
func (c *Conn) data(ev *Event) bool {
	n := min(c.left, len(c.in))
	if n == 0 && c.left > 0 {
		return false
	}
	b := c.in[:n]
	c.in, c.left = c.in[n:], c.left-n
	last := c.left == 0
	if last {
		c.left, c.pad, c.phase = c.pad, 0, phaseSkip
	}
	if !c.discard {
		// The owner may have reset the stream, or ended it, since the frame began.
		if s := c.streams.find(c.frame.Stream); s != nil && !s.is(weReset|wasReset) {
			c.pass(ev, s, b, last && c.frame.Flags&FlagEndStream != 0)
			return true
		}
		if c.cfg.Role == Server {
			c.giveBack(n)
		}
	}
	return true
}

// pass gives data to the owner.
func (c *Conn) pass(ev *Event, s *stream, b []byte, end bool) {
	if s.length >= 0 {
		s.length -= int64(len(b))
	}
	s.held += int32(len(b))
	if end {
		s.flags |= remoteEnd
	}
	if len(b) > 0 || end {
		*ev = Event{Kind: Data, Stream: s.id, Data: b, End: end, Owner: s.owner}
	}
}

// giveBack gives n bytes of the connection's window back to the peer.
func (c *Conn) giveBack(n int) {
	if c.credit += int64(n); c.credit < creditStep || c.err != nil {
		return
	}
	c.out = AppendWindowUpdate(c.out, 0, uint32(c.credit))
	c.recv += c.credit
	c.credit = 0
}

// renewStream gives credit of a stream back to the peer, if it is enough for a frame.
func (c *Conn) renewStream(s *stream) {
	if s.credit < creditStep || s.is(remoteEnd|weReset|wasReset) || c.err != nil {
		return
	}
	c.out = AppendWindowUpdate(c.out, s.id, uint32(s.credit))
	s.recv += s.credit
	s.credit = 0
}

// Consumed lets the peer send n more bytes on a stream. n must not exceed the bytes that the owner
// has got on the stream and not given back yet. On a closed stream it does nothing.
func (c *Conn) Consumed(id uint32, n int) {
	s := c.streams.find(id)
	if s == nil {
		return
	}
	n = min(n, int(s.held))
	s.held -= int32(n)
	s.credit += int32(n)
	c.renewStream(s)
	if c.cfg.Role == Server {
		c.giveBack(n)
	}
}

// windowUpdate handles WINDOW_UPDATE.
func (c *Conn) windowUpdate(ev *Event, n uint32) {
	id := c.frame.Stream
	c.countReply()
	if id == 0 {
		switch {
		case n == 0:
			c.fail(ProtocolError, "WINDOW_UPDATE of 0")
		case c.send+int64(n) > MaxWindow:
			c.fail(FlowControlError, "window of the connection too large")
		default:
			if c.send == 0 {
				*ev = Event{Kind: Window}
			}
			c.send += int64(n)
			c.refills++
		}
		return
	}
	if c.isIdle(id) {
		c.fail(ProtocolError, "WINDOW_UPDATE on an idle stream")
		return
	}
	s := c.streams.find(id)
	if s == nil || s.is(weReset|wasReset) {
		return
	}
	switch {
	case n == 0:
		c.streamError(ev, s, ProtocolError)
	case int64(s.send)+int64(n) > MaxWindow:
		c.streamError(ev, s, FlowControlError)
	default:
		before := s.send
		s.send += int32(n)
		if before <= 0 && s.send > 0 {
			*ev = Event{Kind: Window, Stream: id, Owner: s.owner}
		}
	}
}
