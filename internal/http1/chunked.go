package http1

import "errors"

// ErrChunk is a malformed chunked body.
var ErrChunk = errors.New("http1: malformed chunked body")

// maxExtension bounds the bytes that a chunk's line may have behind its size,
// which are dropped: without a bound they are a body that nobody counts.
const maxExtension = 4 << 10

// chunkState is where a Chunked stands.
type chunkState uint8

const (
	chunkSize  chunkState = iota // in the digits
	chunkName                    // where the name of an extension must begin
	chunkExt                     // in an extension, to the CR
	chunkLF                      // the LF of the size line
	chunkData                    // in the data
	chunkCR                      // the CR behind the data
	chunkEnd                     // the LF behind the data
	chunkTrail                   // in the trailer section
	chunkDone
)

// Chunked finds the data in a chunked body (RFC 9112, 7.1). The zero value
// stands at the first chunk's size.
type Chunked struct {
	state  chunkState
	digits int
	ext    int
	left   int64 // bytes of data to come in this chunk
}

// Next takes the next piece of b. It returns how many bytes it used and which
// of them are data of the body; data is empty for what is framing. It stops
// before the trailer section: InTrailer then holds, and the rest of the
// section, from the first field line to the empty line, is the caller's to
// parse with a TrailerParser. used is 0 only if b is empty or InTrailer.
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
		case chunkName:
			if !token[ch] {
				return used, nil, ErrChunk
			}
			c.state = chunkExt
		case chunkExt:
			if ch == '\r' {
				c.state = chunkLF
			} else if c.ext++; c.ext > maxExtension || ch < 0x20 && ch != '\t' || ch == 0x7f {
				return used, nil, ErrChunk
			}
		case chunkLF:
			if ch != '\n' {
				return used, nil, ErrChunk
			}
			c.digits = 0
			if c.left == 0 {
				c.state = chunkTrail
				return used + 1, nil, nil
			}
			c.state = chunkData
		case chunkData:
			n := min(int64(len(b)-used), c.left)
			data = b[used : used+int(n)]
			if c.left -= n; c.left == 0 {
				c.state = chunkCR
			}
			return used + int(n), data, nil
		case chunkCR:
			if ch != '\r' {
				return used, nil, ErrChunk
			}
			c.state = chunkEnd
		case chunkEnd:
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

// InTrailer reports whether the last chunk was read and the trailer section
// begins.
func (c *Chunked) InTrailer() bool { return c.state == chunkTrail }

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
	End int // where the section ends
}

// TrailerParser parses a trailer section. The zero value is ready.
type TrailerParser struct {
	scanner
	begun bool
}

// Parse continues with buf, which holds everything since the section's first
// byte, as RequestParser.Parse does. What a field would declare in a head it
// declares to nobody here: whoever passes the section on drops those of framing
// (RFC 9110, 6.5.1).
func (p *TrailerParser) Parse(buf []byte, t *Trailers) (done bool, err error) {
	if !p.begun {
		t.reset()
		p.begun = true
	}
	for {
		line, ok, err := p.next(buf)
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
			if _, err := t.read(buf, line); err != nil {
				return false, err
			}
		}
	}
}
