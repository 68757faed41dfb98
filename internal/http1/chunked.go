package http1

import "errors"

// ErrChunk reports a malformed chunked body.
var ErrChunk = errors.New("http1: malformed chunked body")

// maxExtension is the maximum length of a chunk's extensions, in bytes. They are
// discarded, so without a limit they could carry any amount of data uncounted.
const maxExtension = 4 << 10

// chunkState is the next element that a Chunked expects.
type chunkState uint8

const (
	chunkSize     chunkState = iota // a digit of the size, or the byte after the size
	chunkName                       // the first byte of an extension's name
	chunkNameRest                   // the rest of the name
	chunkValue                      // the first byte of an extension's value
	chunkToken                      // the rest of a value that is a token
	chunkQuoted                     // a byte within a quoted value
	chunkEscaped                    // the byte after a backslash in a quoted value
	chunkExtEnd                     // what follows a quoted value
	chunkLF                         // the LF of the size line
	chunkData                       // data
	chunkDataCR                     // the CR after the data
	chunkDataLF                     // the LF after the data
	chunkTrailer                    // the trailer section
)

// Chunked is an incremental decoder of the chunked coding (RFC 9112, 7.1). The zero
// value is ready for the start of a body.
type Chunked struct {
	state  chunkState
	digits int   // number of digits of the current size
	ext    int   // bytes of the current extensions
	left   int64 // bytes of the current chunk's data still to come
}

// Next decodes the next part of b. It returns how many bytes of b it used, and the data of the body
// in these bytes, which is empty if they are only framing. Call it again with the rest of b.
//
// Next stops before the trailer section, which begins with the first field line and ends
// with the empty line: InTrailer then reports true, and a TrailerParser parses the
// section. used is 0 only if b is empty or InTrailer reports true. The error is
// ErrChunk.
func (c *Chunked) Next(b []byte) (used int, data []byte, err error) {
	for used < len(b) {
		ch := b[used]
		switch c.state {
		case chunkSize:
			v := unhex(ch)
			if v < 0 {
				if c.digits == 0 {
					return used, nil, ErrChunk
				}
				c.ext = 0
				switch ch {
				case '\r':
					c.state = chunkLF
				case ';':
					c.state = chunkName
				default:
					return used, nil, ErrChunk
				}
				break
			}
			if c.digits++; c.digits > 15 {
				return used, nil, ErrChunk
			}
			c.left = c.left<<4 | int64(v)
		case chunkName, chunkNameRest, chunkValue, chunkToken, chunkQuoted, chunkEscaped, chunkExtEnd:
			if c.ext++; c.ext > maxExtension {
				return used, nil, ErrChunk
			}
			next, ok := c.state.extension(ch)
			if !ok {
				return used, nil, ErrChunk
			}
			c.state = next
		case chunkLF:
			if ch != '\n' {
				return used, nil, ErrChunk
			}
			c.digits = 0
			if c.left == 0 {
				c.state = chunkTrailer
				return used + 1, nil, nil
			}
			c.state = chunkData
		case chunkData:
			n := min(int64(len(b)-used), c.left)
			data = b[used : used+int(n)]
			if c.left -= n; c.left == 0 {
				c.state = chunkDataCR
			}
			return used + int(n), data, nil
		case chunkDataCR:
			if ch != '\r' {
				return used, nil, ErrChunk
			}
			c.state = chunkDataLF
		case chunkDataLF:
			if ch != '\n' {
				return used, nil, ErrChunk
			}
			c.state = chunkSize
		default:
			return used, nil, nil
		}
		used++
	}
	return used, nil, nil
}

// extension returns the state after the byte ch of a chunk's extensions (RFC 9112, 7.1.1).
// ok is false if ch is not allowed there. White space around ";" and "=", which the RFC calls bad,
// is not allowed.
func (s chunkState) extension(ch byte) (next chunkState, ok bool) {
	switch s {
	case chunkName:
		return chunkNameRest, token[ch]
	case chunkValue:
		if ch == '"' {
			return chunkQuoted, true
		}
		return chunkToken, token[ch]
	case chunkQuoted:
		switch ch {
		case '"':
			return chunkExtEnd, true
		case '\\':
			return chunkEscaped, true
		}
		return chunkQuoted, isText(ch)
	case chunkEscaped:
		return chunkQuoted, isText(ch)
	}
	switch { // between a name or value and what follows it
	case ch == '\r':
		return chunkLF, true
	case ch == ';':
		return chunkName, true
	case ch == '=' && s == chunkNameRest:
		return chunkValue, true
	}
	return s, s != chunkExtEnd && token[ch]
}

// isText reports whether ch may be in a quoted string.
func isText(ch byte) bool { return ch >= 0x20 && ch != 0x7f || ch == '\t' }

// InTrailer reports whether the last chunk has been read, so that the trailer section
// comes next.
func (c *Chunked) InTrailer() bool { return c.state == chunkTrailer }

// unhex returns the value of a hexadecimal digit, -1 for any other byte.
func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}

// Trailers is the trailer section of a chunked body.
type Trailers struct {
	fields
	End int // index of the first byte after the section
}

// TrailerParser parses a trailer section. The zero value is ready to use.
type TrailerParser struct {
	lineScanner
	started bool
}

// Parse parses buf, which holds all bytes received since the start of the section, as
// RequestParser.Parse does. Fields that describe framing or routing have no effect in a
// trailer section; a proxy that forwards the section must drop them (RFC 9110, 6.5.1).
// The errors are ErrSyntax and ErrHead.
func (p *TrailerParser) Parse(buf []byte, t *Trailers) (done bool, err error) {
	if !p.started {
		t.reset(MaxFields)
		p.started = true
	}
	for {
		line, ok, err := p.nextLine(buf)
		if err != nil {
			return false, err
		}
		if p.line > MaxHead || !ok && len(buf) >= MaxHead {
			return false, ErrHead
		}
		switch {
		case !ok:
			return false, nil
		case line.Len() == 0:
			t.End = p.line
			return true, nil
		default:
			if _, err := t.parseField(buf, line); err != nil {
				return false, err
			}
		}
	}
}
