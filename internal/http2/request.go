package http2

import (
	"bytes"

	"github.com/keygate/keygate/internal/http1"
)

// ReadRequest reads the head of the request that the last event has announced.
//
// The errors are http1.ErrHead and http1.ErrTarget for a head beyond the limits, where r has
// the fields that were read before, and the owner responds with 431 or 414; a
// MalformedError, after which the owner may respond with 400 and calls Done, which resets the
// stream; and the error of Err.
func (c *Conn) ReadRequest(r *Request) error {
	var h requestReader
	scratch, err := c.start(&h.headReader)
	if err != nil {
		return err
	}
	h.text, h.extended = r.Text[:0], c.cfg.ExtendedConnect
	err = h.read(r)
	if err != nil || c.decoder.TooLarge() {
		h.findType(r)
	}
	s, err := c.finish(scratch, err)
	if s != nil && err == nil {
		err = h.frameBody(r, s)
	}
	if isMalformed(err) {
		c.reject(s)
	}
	if s != nil {
		s.flags |= hasHead
	}
	return err
}

// requestReader reads the head of a request.
type requestReader struct {
	headReader
	text      []byte     // the values of the pseudo-header fields, before the fields
	method    http1.Span // in text, as all of these
	path      http1.Span
	authority http1.Span
	protocol  http1.Span
	extended  bool // :protocol is allowed
	tooLong   bool // :path exceeds the limit
}

// read reads the header block. Even if it fails, r has what was read before.
func (h *requestReader) read(r *Request) error {
	r.Protocol, r.LateType = http1.Span{}, http1.Span{}
	err := h.readPseudo()
	if err == nil {
		err = h.check()
	}
	h.begin(r)
	if err == nil {
		err = h.readFields(r)
	}
	if err == nil && h.tooLong {
		err = http1.ErrTarget
	}
	r.End = h.End()
	r.Text = h.Text
	return err
}

// readPseudo reads the pseudo-header fields, and the first field behind them.
func (h *requestReader) readPseudo() error {
	for {
		p, ok, err := h.next()
		if !ok || p == 0 {
			return err
		}
		var span *http1.Span
		switch p {
		case pseudoMethod:
			span = &h.method
		case pseudoAuthority:
			span = &h.authority
		case pseudoPath:
			if h.tooLong = len(h.field.Value) > http1.MaxTarget; h.tooLong {
				continue
			}
			span = &h.path
		case pseudoProtocol:
			span = &h.protocol
		case pseudoScheme:
			continue
		default:
			return errPseudo
		}
		span.Start = uint32(len(h.text))
		h.text = append(h.text, h.field.Value...)
		span.End = uint32(len(h.text))
	}
}

// check validates the pseudo-header fields together (RFC 9113, 8.3.1 and 8.5; RFC 8441, 4).
func (h *requestReader) check() error {
	if !h.has(pseudoMethod) {
		return errMissing
	}
	method := h.method.Of(h.text)
	connect := string(method) == "CONNECT"
	switch {
	case h.has(pseudoProtocol) && (!connect || !h.extended || !h.has(pseudoAuthority)):
		return errMissing
	case connect && !h.has(pseudoProtocol):
		if h.has(pseudoScheme) || h.has(pseudoPath) || !h.has(pseudoAuthority) {
			return errMissing
		}
	case !h.has(pseudoScheme) || !h.has(pseudoPath):
		return errMissing
	case string(h.path.Of(h.text)) == "*" && string(method) != "OPTIONS":
		return errPseudo
	}
	return nil
}

// begin prepares r for the fields, of which :authority is the first.
func (h *requestReader) begin(r *Request) {
	method, target := h.method, h.path
	switch {
	case h.has(pseudoProtocol):
		method.Start = uint32(len(h.text))
		h.text = append(h.text, "GET"...)
		method.End = uint32(len(h.text))
		r.Protocol = h.protocol
	case !h.has(pseudoPath):
		target = h.authority
	}
	room := http1.MaxHead - method.Len() - target.Len() - len("  HTTP/1.1\r\n")
	h.Assembler = r.Assemble(h.text, room)
	r.Method, r.Target = method, target
}

// readFields reads the fields. The first may have been read already.
func (h *requestReader) readFields(r *Request) error {
	if h.has(pseudoAuthority) {
		if err := h.Add([]byte("host"), h.authority.Of(h.Text), http1.Host, false); err != nil {
			return err
		}
	}
	if h.has(pseudoProtocol) {
		if err := h.Add([]byte("upgrade"), h.protocol.Of(h.Text), http1.Upgrade, false); err != nil {
			return err
		}
		r.SetUpgrade()
	}
	hosts := 0
	for ok := h.late; ok; {
		isHost := http1.Name(h.field.Tag&tagName) == http1.Host
		if isHost {
			hosts++
		}
		switch {
		case isHost && hosts > 1:
			return errHost
		case isHost && h.has(pseudoAuthority):
			if !bytes.EqualFold(h.field.Value, h.authority.Of(h.Text)) {
				return errHost
			}
		default:
			if err := h.add(); err != nil {
				return err
			}
		}
		var err error
		if _, ok, err = h.next(); err != nil {
			return err
		}
	}
	if hosts == 0 && !h.has(pseudoAuthority) {
		return errMissing
	}
	return nil
}

// maxLateType is the longest content-type that findType finds, in bytes with its name.
const maxLateType = 256

// findType looks for content-type in the rest of a head that cannot be read to its end, beginning with the
// field that was decoded last: the form of the refusal depends on it.
func (h *requestReader) findType(r *Request) {
	for ok := true; ok; ok = h.decoder.Rest(&h.field, maxLateType) {
		if string(h.field.Name) != "content-type" || len(h.field.Value) > maxLateType {
			continue
		}
		r.LateType.Start = uint32(len(r.Text))
		r.Text = append(r.Text, h.field.Value...)
		r.LateType.End = uint32(len(r.Text))
		return
	}
}

// frameBody sets how the head declares the body (RFC 9113, 8.1.1). A CONNECT has no body (RFC 9110,
// 9.3.6) and must not declare one: the data after it belongs to the other protocol (RFC 8441, 5).
func (h *requestReader) frameBody(r *Request, s *stream) error {
	length := r.ContentLength()
	switch ended := s.is(remoteEnd); {
	case h.has(pseudoProtocol) || !h.has(pseudoPath):
		if length >= 0 {
			return errConnect
		}
	case ended && length > 0:
		return errLength
	case ended:
		s.length = 0
	case length < 0:
		r.SetUnknownLength()
	default:
		s.length = length
	}
	return nil
}
