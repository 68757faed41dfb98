package http1

import "bytes"

// Response is the head of a response.
type Response struct {
	fields
	Status int
	Line   Span // the whole status line, without CRLF
	Reason Span
	Minor  byte // minor version: the x of HTTP/1.x
	End    int  // index of the first byte after the head
}

// KeepAlive reports whether the connection persists after the response, judging by
// the head alone. It does not if the Framing is UntilClose.
func (r *Response) KeepAlive() bool {
	return !r.close && (r.Minor > 0 || r.keep)
}

// Framing is how the end of a response's body is determined (RFC 9112, 6.3).
type Framing uint8

// The framings.
const (
	NoBody     Framing = iota // there is no body, whatever the fields say
	ByLength                  // ContentLength bytes, possibly 0
	ByChunks                  // the chunked transfer coding
	UntilClose                // the body ends when the connection is closed
)

// Framing returns how the body of r is framed. head says that r is the response to a
// HEAD request.
func (r *Response) Framing(head bool) Framing {
	switch {
	case head || r.Status < 200 || r.Status == 204 || r.Status == 304:
		return NoBody
	case r.chunked:
		return ByChunks
	case r.length >= 0:
		return ByLength
	default:
		return UntilClose
	}
}

// ResponseParser parses the head of a response. The zero value is ready to use; Reset
// makes it ready for the next response.
type ResponseParser struct {
	lineScanner
	started bool // the status line has been parsed
}

// Reset makes the parser ready for a response that begins at the first byte of the
// buffer.
func (p *ResponseParser) Reset() { *p = ResponseParser{} }

// Parse parses buf, which holds all bytes received since the start of the response,
// into r, as RequestParser.Parse does. The errors are ErrSyntax, ErrHead and ErrVersion.
func (p *ResponseParser) Parse(buf []byte, r *Response) (done bool, err error) {
	for {
		line, ok, err := p.nextLine(buf)
		if err != nil {
			return false, err
		}
		if !ok {
			if len(buf) >= MaxResponseHead {
				return false, ErrHead
			}
			return false, nil
		}
		if p.line > MaxResponseHead {
			return false, ErrHead
		}
		switch {
		case !p.started:
			r.reset(MaxResponseFields)
			if err := r.statusLine(buf, line); err != nil {
				return false, err
			}
			p.started = true
		case line.Len() == 0:
			r.End = p.line
			return true, r.checkFraming()
		default:
			if err := r.addField(buf, line); err != nil {
				return false, err
			}
		}
	}
}

// statusLine parses "version SP status SP reason" (RFC 9112, 4). Without a reason, the
// space before it may be missing, because some servers omit it.
func (r *Response) statusLine(buf []byte, line Span) error {
	b := line.Of(buf)
	const fixed = len("HTTP/1.1 200")
	if len(b) < fixed || b[8] != ' ' || len(b) > fixed && b[fixed] != ' ' {
		return ErrSyntax
	}
	minor, err := version(b[:8])
	if err != nil {
		return err
	}
	status := 0
	for _, c := range b[9:fixed] {
		if c < '0' || c > '9' {
			return ErrSyntax
		}
		status = status*10 + int(c-'0')
	}
	if status < 100 || status > 599 || !isFieldText(b[fixed:]) {
		return ErrSyntax
	}
	r.Minor, r.Status, r.Line = minor, status, line
	r.Reason = Span{min(line.Start+uint32(fixed)+1, line.End), line.End}
	return nil
}

// HasPreface compares buf with the HTTP/2 connection preface (RFC 9113, 3.4). possible says that
// buf is a beginning of the preface or begins with the preface; whole says that it begins with the
// whole preface.
func HasPreface(buf []byte) (possible, whole bool) {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	n := min(len(buf), len(preface))
	if !bytes.Equal(buf[:n], []byte(preface)[:n]) {
		return false, false
	}
	return true, n == len(preface)
}
