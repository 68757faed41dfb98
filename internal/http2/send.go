package http2

import "unsafe"

// Open begins the head of a request on a new stream, which it returns: pseudo-header fields
// and fields, each with Field, and then EndHead. head is set if the method is HEAD, so that
// the response has no body. ok is false if no stream can be opened now: see CanOpen.
func (c *Conn) Open(head bool) (id uint32, ok bool) {
	if !c.CanOpen() {
		return 0, false
	}
	if c.last++; c.last&1 == 0 { // the first is 1
		c.last++
	}
	s := c.streams.add(c.last)
	s.recv, s.send, s.length = int32(c.cfg.StreamWindow), c.peer.window, -1
	if head {
		s.flags |= bodiless
	}
	c.beginHead(s)
	return s.id, true
}

// CanOpen reports whether a client may open another stream now.
func (c *Conn) CanOpen() bool {
	return c.cfg.Role == Client && c.streams.n < c.Capacity()
}

// Capacity returns how many streams a client may have at the same time: 0 if the connection
// takes no more of them.
func (c *Conn) Capacity() int {
	if c.err != nil || c.gone || c.last >= MaxStreamID-1 {
		return 0
	}
	return int(min(uint32(c.cfg.MaxStreams), c.peer.streams))
}

// PeerConnects reports whether a server takes extended CONNECT requests (RFC 8441).
func (c *Conn) PeerConnects() bool { return c.peer.connect }

// SetOwner sets the Owner of the events of a stream.
func (c *Conn) SetOwner(id uint32, owner any) {
	if s := c.streams.find(id); s != nil {
		s.owner = owner
	}
}

// writable returns a stream on which this side may still send, or nil.
func (c *Conn) writable(id uint32) *stream {
	s := c.streams.find(id)
	if c.err != nil || s == nil || s.is(localEnd|weReset|wasReset) {
		return nil
	}
	return s
}

// BeginHead begins the head of a response, interim or final, or trailers. It reports false if that
// is impossible, because the stream was reset, or has ended on this side.
func (c *Conn) BeginHead(id uint32) bool {
	s := c.writable(id)
	if s == nil {
		return false
	}
	c.beginHead(s)
	return true
}

func (c *Conn) beginHead(s *stream) {
	c.headID, c.headStart = s.id, len(c.out)
	c.out = c.encoder.Start(BeginHeaders(c.out))
}

// Field adds a field to the head that was begun. Its name is sent in lower case. A sensitive
// field is compressed on no hop.
func (c *Conn) Field(name, value []byte, sensitive bool) {
	c.out = c.encoder.Append(c.out, name, value, sensitive)
}

// FieldString is Field for strings.
func (c *Conn) FieldString(name, value string, sensitive bool) {
	c.Field(bytesOf(name), bytesOf(value), sensitive)
}

// EndHead completes the head that was begun. end is set if nothing follows on the stream.
func (c *Conn) EndHead(end bool) {
	c.out = FinishHeaders(c.out, c.headStart, c.headID, end)
	if s := c.streams.find(c.headID); s != nil {
		s.flags |= sentHead
		if end {
			s.flags |= localEnd
		}
	}
	c.headID = 0
}

// Data sends data of a body, as much as the windows allow, and returns how many bytes that
// is. With end the stream ends behind the data, if all of it was sent. Otherwise a Window or
// SettingsChanged event says when to go on. ok is false if the stream was reset, or has ended on
// this side.
func (c *Conn) Data(id uint32, data []byte, end bool) (n int, ok bool) {
	s := c.writable(id)
	if s == nil {
		return 0, false
	}
	window := max(0, min(int64(s.send), c.send))
	n = int(min(int64(len(data)), window))
	end = end && n == len(data)
	s.send -= int32(n)
	c.send -= int64(n)
	for rest := data[:n]; len(rest) > 0; {
		piece := rest[:min(len(rest), MaxFrame)]
		rest = rest[len(piece):]
		c.out = AppendData(c.out, id, piece, end && len(rest) == 0)
		c.earnFree(len(piece))
	}
	if end {
		if n == 0 {
			c.out = AppendData(c.out, id, nil, true)
		}
		s.flags |= localEnd
	}
	return n, true
}

// earnFree lets the peer reply to n bytes of data: with a WINDOW_UPDATE for the stream and for
// the connection for each KiB, and with a PING to measure the round trip.
func (c *Conn) earnFree(n int) { c.free = min(c.free+3+n/512, maxFree) }

// Window returns how many bytes Data could send on a stream now.
func (c *Conn) Window(id uint32) int {
	s := c.writable(id)
	if s == nil {
		return 0
	}
	return int(max(0, min(int64(s.send), c.send)))
}

// Exhausted reports whether the peer's window for the connection is used up, so that no data
// can be sent on any stream. refills changes each time the peer opens it again.
func (c *Conn) Exhausted() (refills uint64, exhausted bool) { return c.refills, c.send <= 0 }

// Reset resets a stream. The exchange ends with Done.
func (c *Conn) Reset(id uint32, code Code) {
	s := c.streams.find(id)
	if s == nil || s.is(weReset|wasReset) {
		return
	}
	s.flags |= weReset
	if c.err == nil {
		c.out = AppendReset(c.out, id, code)
	}
}

// Done ends the exchange of a stream and frees its slot. A stream that has not ended is
// reset: with NO_ERROR if a server has sent its response, which asks the client to send no
// more of its request (RFC 9113, 8.1), and with CANCEL otherwise.
func (c *Conn) Done(id uint32) {
	s := c.streams.find(id)
	if s == nil {
		return
	}
	switch {
	case s.is(malformed) && !s.is(weReset|wasReset):
		s.flags |= weReset
		if c.err == nil {
			c.sendReset(id, ProtocolError)
		}
	case s.is(localEnd) && s.is(remoteEnd):
	case s.is(localEnd) && c.cfg.Role == Server:
		c.Reset(id, NoError)
	default:
		c.Reset(id, Cancel)
	}
	c.remove(s)
}

// remove frees the slot of a stream, and gives back what its owner has not consumed.
func (c *Conn) remove(s *stream) {
	if s.is(weReset) {
		c.recent.add(s.id)
	}
	held := int(s.held)
	c.streams.remove(s)
	if c.cfg.Role == Server {
		c.giveBack(held)
	}
}

// bytesOf returns s as bytes that must not be changed.
func bytesOf(s string) []byte {
	return unsafe.Slice(unsafe.StringData(s), len(s)) //nolint:gosec // they are only read
}
