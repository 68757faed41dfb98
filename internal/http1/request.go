package http1

import "bytes"

// Request is the head of a request.
type Request struct {
	fields
	Method Span
	Target Span
	Minor  byte // of the version HTTP/1.x
	End    int  // where the head ends and the body begins
}

// KeepAlive reports whether the client will use the connection again: always
// in HTTP/1.1 unless it said close, in HTTP/1.0 only if it said keep-alive
// (RFC 9112, 9.3).
func (r *Request) KeepAlive() bool {
	return !r.close && (r.Minor > 0 || r.keep)
}

// HasBody reports whether a body follows the head.
func (r *Request) HasBody() bool { return r.chunked || r.length > 0 }

// RequestParser parses the head of one request after another. The zero value
// is ready.
type RequestParser struct {
	scanner
	begun bool // the request line is done
	skip  int  // empty lines before the request line
}

// Reset makes the parser ready for the next request, which begins at the
// buffer's first byte.
func (p *RequestParser) Reset() { *p = RequestParser{} }

// Parse continues with buf, which holds everything since the message's first
// byte. done tells that r is complete; r.End is where the body begins. Without
// done and error, call again with more bytes. The errors are those of this
// package; none can be recovered from.
func (p *RequestParser) Parse(buf []byte, r *Request) (done bool, err error) {
	for {
		line, ok, err := p.next(buf)
		if err != nil {
			return false, err
		}
		if !ok {
			return false, p.tooLong(buf)
		}
		if p.line > MaxHead {
			return false, ErrHead
		}
		switch {
		case !p.begun && line.Len() == 0:
			// RFC 9112, 2.2: an empty line or two before a request are
			// what some clients leave behind a body.
			if p.skip++; p.skip > 2 {
				return false, ErrSyntax
			}
		case !p.begun:
			r.reset()
			if err := r.requestLine(buf, line); err != nil {
				return false, err
			}
			p.begun = true
		case line.Len() == 0:
			r.End = p.line
			return true, r.check()
		default:
			if err := r.add(buf, line); err != nil {
				return false, err
			}
		}
	}
}

// Begun reports whether a byte of a request was seen; without it, an idle
// connection may be closed without a word.
func (p *RequestParser) Begun() bool { return p.begun || p.seen > 0 }

// tooLong tells whether an incomplete head can still become one.
func (p *RequestParser) tooLong(buf []byte) error {
	if !p.begun {
		// "METHOD target HTTP/1.1": what is too long can only be the target.
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

// check makes sure of what only the whole head tells (contract, 4.5).
func (r *Request) check() error {
	if r.hosts != 1 {
		return ErrSyntax
	}
	if r.chunked && r.Minor == 0 {
		// RFC 9112, 6.1: a coding in a message of HTTP/1.0 means that
		// somebody on the way did not understand it.
		return ErrSyntax
	}
	return r.framed()
}
