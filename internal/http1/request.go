package http1

import "bytes"

// Request is the head of a request.
type Request struct {
	fields
	Method Span
	Target Span
	Minor  byte // minor version: the x of HTTP/1.x
	End    int  // index of the first byte after the head
}

// KeepAlive reports whether the connection persists after the request: in HTTP/1.1
// unless Connection contains close, in HTTP/1.0 only if it contains keep-alive and not
// close (RFC 9112, 9.3).
func (r *Request) KeepAlive() bool {
	return !r.close && (r.Minor > 0 || r.keep)
}

// HasBody reports whether a body follows the head.
func (r *Request) HasBody() bool { return r.chunked || r.length > 0 }

// RequestParser parses the head of a request. The zero value is ready to use; Reset
// makes it ready for the next request.
type RequestParser struct {
	lineScanner
	started bool // the request line has been parsed
	skipped int  // empty lines before the request line
}

// Reset makes the parser ready for a request that begins at the first byte of the
// buffer.
func (p *RequestParser) Reset() { *p = RequestParser{} }

// Parse parses buf, which holds all bytes received since the start of the request,
// into r. If the head is complete, done is true and the body begins at r.End.
// Otherwise call Parse again once the buffer holds more bytes.
//
// The errors are ErrSyntax, ErrTarget, ErrHead, ErrVersion and ErrUpgradeFirst. After
// an error the connection must be closed.
func (p *RequestParser) Parse(buf []byte, r *Request) (done bool, err error) {
	for {
		line, ok, err := p.nextLine(buf)
		if err != nil {
			return false, err
		}
		if !ok {
			return false, p.checkSize(buf)
		}
		if p.line > MaxHead {
			return false, ErrHead
		}
		switch {
		case !p.started && line.Len() == 0:
			// Some clients send an empty line or two after a body (RFC 9112, 2.2).
			if p.skipped++; p.skipped > 2 {
				return false, ErrSyntax
			}
		case !p.started:
			r.reset(MaxFields)
			if err := r.requestLine(buf, line); err != nil {
				return false, err
			}
			p.started = true
		case line.Len() == 0:
			r.End = p.line
			return true, r.check()
		default:
			if err := r.addField(buf, line); err != nil {
				return false, err
			}
		}
	}
}

// checkSize returns an error if an incomplete head already exceeds a limit.
func (p *RequestParser) checkSize(buf []byte) error {
	if !p.started {
		// In "METHOD target HTTP/1.1" only the target can be this long.
		if rest := buf[p.line:]; len(rest) > maxMethod+1+MaxTarget+len(" HTTP/1.1\r") {
			if sp := bytes.IndexByte(rest, ' '); sp <= 0 || sp > maxMethod || !isToken(rest[:sp]) {
				return ErrSyntax
			}
			return ErrTarget
		}
	}
	if len(buf) >= MaxHead {
		return ErrHead
	}
	return nil
}

// requestLine parses "method SP target SP version" (RFC 9112, 3).
func (r *Request) requestLine(buf []byte, line Span) error {
	b := line.Of(buf)
	sp := bytes.IndexByte(b, ' ')
	if sp <= 0 || sp > maxMethod || !isToken(b[:sp]) {
		return ErrSyntax
	}
	rest := b[sp+1:]
	last := bytes.LastIndexByte(rest, ' ')
	if last <= 0 {
		return ErrSyntax
	}
	target := rest[:last]
	if !isTargetText(target) {
		return ErrSyntax
	}
	if string(b) == "PRI * HTTP/2.0" {
		return ErrUpgradeFirst
	}
	minor, err := version(rest[last+1:])
	if err != nil {
		return err
	}
	if len(target) > MaxTarget {
		return ErrTarget
	}
	r.Minor = minor
	r.Method = Span{line.Start, line.Start + uint32(sp)}
	r.Target = Span{line.Start + uint32(sp) + 1, line.Start + uint32(sp) + 1 + uint32(last)}
	return nil
}

// check validates the head as a whole (contract, 4.5).
func (r *Request) check() error {
	if r.hosts != 1 {
		return ErrSyntax
	}
	if r.chunked && r.Minor == 0 {
		// A transfer coding in an HTTP/1.0 message means that a sender on the way may
		// not have understood it (RFC 9112, 6.1).
		return ErrSyntax
	}
	return r.checkFraming()
}
