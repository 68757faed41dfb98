package http1

import "bytes"

// Response is the head of a response.
type Response struct {
	fields
	Status int
	Line   Span // the whole status line, without CRLF
	Reason Span
	Minor  byte
	End    int // where the head ends and the body begins
}

// KeepAlive reports whether the upstream will use the connection again, as far
// as the head tells; a body that ends with the connection says otherwise.
func (r *Response) KeepAlive() bool {
	return !r.close && (r.Minor > 0 || r.keep)
}

// Framing is how the end of a response's body is found (RFC 9112, 6.3).
type Framing uint8

// The framings.
const (
	NoBody     Framing = iota // none can follow, whatever the fields say
	ByLength                  // ContentLength bytes, maybe none
	ByChunks                  // chunked
	UntilClose                // up to the end of the connection
)

// Framing returns how the body of r, an answer to a request with the given
// method, is framed.
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

// ResponseParser parses the head of one response after another. The zero value
// is ready.
type ResponseParser struct {
	scanner
	begun bool
}

// Reset makes the parser ready for the next response, which begins at the
// buffer's first byte.
func (p *ResponseParser) Reset() { *p = ResponseParser{} }

// Parse continues with buf as RequestParser.Parse does.
func (p *ResponseParser) Parse(buf []byte, r *Response) (done bool, err error) {
	for {
		line, ok, err := p.next(buf)
		if err != nil {
			return false, err
		}
		if !ok {
			if len(buf) >= MaxHead {
				return false, ErrHead
			}
			return false, nil
		}
		if p.line > MaxHead {
			return false, ErrHead
		}
		switch {
		case !p.begun:
			r.reset()
			if err := r.statusLine(buf, line); err != nil {
				return false, err
			}
			p.begun = true
		case line.Len() == 0:
			r.End = p.line
			return true, r.framed()
		default:
			if err := r.add(buf, line); err != nil {
				return false, err
			}
		}
	}
}

// statusLine parses "version SP status SP reason" (RFC 9112, 4). The space
// before an absent reason may be missing, as it is from some servers.
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

// HasPreface reports whether buf may still be, or is, the connection preface
// of HTTP/2 (RFC 9113, 3.4): whole tells that it is.
func HasPreface(buf []byte) (possible, whole bool) {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	n := min(len(buf), len(preface))
	if !bytes.Equal(buf[:n], []byte(preface)[:n]) {
		return false, false
	}
	return true, n == len(preface)
}
