package http2

import (
	"errors"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/http2/hpack"
)

// Request is the head of a request, in the form that it would have over HTTP/1.1. Its memory
// is used again by the next ReadRequest. Its zero value is ready to use.
type Request struct {
	http1.Request
	// Text is what the spans refer to.
	Text []byte
	// Protocol is :protocol, which makes the request an extended CONNECT (RFC 8441), or empty.
	// Such a request reads as a GET that asks for an upgrade to the protocol.
	Protocol http1.Span
	// LateType is the content-type of a head that exceeds the limits, if it is short and follows
	// the field that exceeded them.
	LateType http1.Span
}

// Response is the head of a response, like Request.
type Response struct {
	http1.Response
	Text []byte
}

// TrailerFields are the trailers of a message, like Request.
type TrailerFields struct {
	http1.Trailers
	Text []byte
}

// errNotReady is the error of ReadRequest and the like if there is nothing to read: a mistake
// of the owner.
var errNotReady = errors.New("http2: there is no head to read")

// headReader reads the fields of a header block.
type headReader struct {
	http1.Assembler
	decoder *hpack.Decoder
	field   hpack.Field
	seen    uint16 // pseudo-header fields, one bit for each
	late    bool   // a field was read: no pseudo-header field may follow
}

// next reads the next field. ok is false at the end, and if err is not nil.
func (r *headReader) next() (p pseudo, ok bool, err error) {
	if !r.decoder.Next(&r.field) {
		return 0, false, nil
	}
	if d := r.field.Tag >> tagDefect; d != 0 {
		return 0, false, defects[d]
	}
	p = pseudo(r.field.Tag >> tagPseudo & 15)
	switch {
	case p == 0:
		r.late = true
		return 0, true, nil
	case r.late:
		return 0, false, errLate
	case r.has(p):
		return 0, false, errTwice
	}
	r.seen |= 1 << p
	return p, true, nil
}

// has reports whether a pseudo-header field was read.
func (r *headReader) has(p pseudo) bool { return r.seen>>p&1 != 0 }

// add adds the field that was read last to the head.
func (r *headReader) add() error {
	f := &r.field
	id := http1.Name(f.Tag & tagName)
	if id == http1.Cookie {
		return r.AddCookie(f.Name, f.Value, f.NeverIndexed)
	}
	return fieldError(r.Add(f.Name, f.Value, id, f.NeverIndexed))
}

// fieldError returns the error for a field that is valid on its own but not in its head.
func fieldError(err error) error {
	if errors.Is(err, http1.ErrSyntax) {
		return errLength // of no other field can package http1 say so
	}
	return err
}

// start begins to read the header block of the last event.
func (c *Conn) start(r *headReader) (*hpack.Scratch, error) {
	if !c.block.ready {
		return nil, errNotReady
	}
	r.decoder = c.decoder
	return c.startBlock(), nil
}

// finish ends the reading of a header block, which returned err. It returns the error for the
// owner, and the stream, unless the owner has ended it.
func (c *Conn) finish(scratch *hpack.Scratch, err error) (*stream, error) {
	end := c.finishBlock(scratch)
	s := c.streams.find(c.block.stream)
	switch {
	case c.err != nil:
		return s, c.err
	case end != nil && (err == nil || errors.Is(err, errMissing)): // what is missing was not decoded
		err = http1.ErrHead
	}
	return s, err
}

// reject resets the stream of a malformed message. The stream of a request is reset by Done, so
// that the owner can respond first (RFC 9113, 8.1.1).
func (c *Conn) reject(s *stream) {
	if s == nil || s.is(weReset) {
		return
	}
	if c.cfg.Role == Server && !s.is(hasHead) {
		s.flags |= malformed
		return
	}
	c.sendReset(s.id, ProtocolError)
	s.flags |= weReset
}

// isMalformed reports whether err is a MalformedError.
func isMalformed(err error) bool {
	_, malformed := err.(MalformedError) //nolint:errorlint // it is not wrapped here
	return malformed
}

// Copy makes r a copy of from that shares no memory with it.
func (r *Response) Copy(from *Response) {
	r.Text = append(r.Text[:0], from.Text...)
	r.Response.Copy(&from.Response)
}

// Copy makes t a copy of from that shares no memory with it.
func (t *TrailerFields) Copy(from *TrailerFields) {
	t.Text = append(t.Text[:0], from.Text...)
	t.Trailers.Copy(&from.Trailers)
}
