package http2

import (
	"github.com/keygate/keygate/internal/http1"
)

// ReadResponse reads the head of the response that the last event has announced: an interim head,
// after which another follows, or the final head. A body whose length is unknown reads as chunked.
//
// The errors are http1.ErrHead for a head beyond the limits, after which the owner ends the stream
// with Done; a MalformedError, after which the owner calls Done as well; and the error of Err.
func (c *Conn) ReadResponse(r *Response) error {
	var h headReader
	scratch, err := c.start(&h)
	if err != nil {
		return err
	}
	s, err := c.finish(scratch, h.readResponse(r))
	if s != nil && err == nil {
		err = r.frameBody(s)
	}
	if isMalformed(err) {
		c.reject(s)
	}
	return err
}

// readResponse reads the header block. HTTP/2 has no reason phrase, so the status line gets the
// usual phrase of the status.
func (h *headReader) readResponse(r *Response) error {
	p, _, err := h.next()
	if err == nil && p != pseudoStatus {
		err = errMissing
	}
	r.Text = append(r.Text[:0], "HTTP/1.1 "...)
	status, reason := 0, len(r.Text)
	if err == nil {
		status = statusOf(h.field.Value)
		r.Text = append(append(r.Text, h.field.Value...), ' ')
		reason = len(r.Text)
		r.Text = append(r.Text, http1.StatusText(status)...)
	}
	end := uint32(len(r.Text))
	r.Text = append(r.Text, "\r\n"...)
	h.Assembler = r.Assemble(r.Text, http1.MaxResponseHead-len(r.Text))
	defer func() {
		r.End = h.End()
		r.Text = h.Text
	}()
	r.Status, r.Line, r.Reason = status, http1.Span{Start: 0, End: end}, http1.Span{Start: uint32(reason), End: end}
	if err != nil {
		return err
	}
	return h.readRest()
}

// readRest reads fields to the end of the block, which has no further pseudo-header field.
func (h *headReader) readRest() error {
	for {
		p, ok, err := h.next()
		switch {
		case !ok:
			return err
		case p != 0:
			return errPseudo
		}
		if err := h.add(); err != nil {
			return err
		}
	}
}

// frameBody sets how the head declares the body, and whether more heads follow.
func (r *Response) frameBody(s *stream) error {
	ended := s.is(remoteEnd)
	if r.Status < 200 {
		if ended {
			return errStatus
		}
		return nil
	}
	s.flags |= hasHead
	length := r.ContentLength()
	switch {
	case s.is(bodiless) || r.Status == 204 || r.Status == 304:
		s.length = 0
	case ended && length > 0:
		return errLength
	case length < 0:
		r.SetUnknownLength()
	default:
		s.length = length
	}
	return nil
}

// ReadTrailers reads the trailers that the last event has announced. The errors are the same as
// from ReadResponse; after http1.ErrHead, t has the fields that were read before.
func (c *Conn) ReadTrailers(t *TrailerFields) error {
	var h headReader
	scratch, err := c.start(&h)
	if err != nil {
		return err
	}
	room := http1.MaxHead
	if c.cfg.Role == Client {
		room = http1.MaxResponseHead
	}
	h.Assembler = t.Assemble(t.Text[:0], room)
	s, err := c.finish(scratch, h.readRest())
	t.End = h.End()
	t.Text = h.Text
	if isMalformed(err) {
		c.reject(s)
	}
	return err
}
