package nethttp

import "encoding/binary"

const (
	prefaceSize     = 24 // of the client's connection preface
	frameHeaderSize = 9

	frameHeaders      = 0x1
	frameContinuation = 0x9
	flagEndHeaders    = 0x4
)

// headScanner follows the bytes that an HTTP/2 client sends, from the connection preface
// on, to tell whether a head is incomplete: it has begun with a HEADERS frame, and the
// last byte of the frame with END_HEADERS is yet to come. The start of a frame counts as
// a head as long as its type is unknown. The scanner checks nothing: that is up to the
// server, which closes the connection after a malformed frame. It copies only the frame
// headers that arrive in pieces. The zero value is ready for use.
type headScanner struct {
	open  bool   // a head is incomplete
	begun uint64 // number of heads that were incomplete at any time, or whose frames were

	inBlock bool // the last HEADERS or CONTINUATION frame has no END_HEADERS
	head    bool // the frame is HEADERS or CONTINUATION
	seen    uint8
	preface uint8  // bytes of the preface seen
	rest    uint32 // bytes of the frame's payload to come
	header  [frameHeaderSize]byte
}

// scan takes the next bytes of the client.
func (s *headScanner) scan(p []byte) {
	if s.preface < prefaceSize {
		n := min(len(p), prefaceSize-int(s.preface))
		s.preface += uint8(n)
		p = p[n:]
	}
	for len(p) > 0 {
		if s.rest > 0 {
			n := min(uint32(min(len(p), 1<<24)), s.rest)
			s.rest -= n
			p = p[n:]
			if s.rest == 0 {
				s.endFrame()
			}
			continue
		}
		if s.seen == 0 && len(p) >= frameHeaderSize {
			s.beginFrame(p)
			p = p[frameHeaderSize:]
			continue
		}
		n := copy(s.header[s.seen:], p)
		s.seen += uint8(n)
		p = p[n:]
		switch {
		case s.seen == frameHeaderSize:
			s.seen = 0
			s.beginFrame(s.header[:])
		case s.inBlock: // whatever the frame is
		case s.seen > 3 && !isHead(s.header[3]):
			s.open = false
		default:
			s.begin()
		}
	}
}

// begin notes that a head is incomplete.
func (s *headScanner) begin() {
	if !s.open {
		s.open = true
		s.begun++
	}
}

// beginFrame takes a whole frame header.
func (s *headScanner) beginFrame(header []byte) {
	s.rest = binary.BigEndian.Uint32(header) >> 8
	s.head = isHead(header[3])
	if s.head {
		s.inBlock = header[4]&flagEndHeaders == 0
		if s.inBlock || s.rest > 0 {
			s.begin()
		}
	} else if !s.inBlock {
		s.open = false
	}
	if s.rest == 0 {
		s.endFrame()
	}
}

func (s *headScanner) endFrame() {
	if s.head && !s.inBlock {
		s.open = false
	}
}

func isHead(frameType byte) bool {
	return frameType == frameHeaders || frameType == frameContinuation
}
