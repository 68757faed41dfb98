package message

import (
	"errors"
	"fmt"
	"io"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

var (
	// ErrTruncated reports a message that ended too early for its framing.
	ErrTruncated = fmt.Errorf("the message was cut off: %w", io.ErrUnexpectedEOF)
	// ErrBodyTooLarge reports a body larger than max_body_bytes.
	ErrBodyTooLarge = errors.New("the body is larger than max_body_bytes")
)

// Decoder extracts the data of a body from its framing, in place. It takes the received
// bytes piece by piece. The result does not depend on how they are split.
type Decoder struct {
	decoderState
	section http1.Trailers
	partial []byte // the trailer section, as far as received
}

type decoderState struct {
	in     http1.Framing
	left   int64 // ByLength: bytes still to come
	room   int64 // bytes of data that may still come; negative means no limit
	moved  int64 // bytes of data so far
	done   bool  // the body has ended
	chunks http1.Chunked
	parser http1.TrailerParser
}

// Start begins a body. length is the one for http1.ByLength.
func (d *Decoder) Start(in http1.Framing, length int64) {
	d.decoderState = decoderState{in: in, left: length, room: -1, done: in == http1.NoBody || in == http1.ByLength && length == 0}
	if d.partial = d.partial[:0]; cap(d.partial) > KeepRoom {
		d.partial = nil
	}
}

// Piece is what a Decoder or Encoder makes of one piece of input.
type Piece struct {
	From, To int    // the part of the buffer to send
	End      []byte // to send after it; valid until the next call
	Used     int    // where in the buffer the next message begins, if the body has ended
}

// Decode decodes buf[start:end]. It uses all of it unless the body ends before end.
func (d *Decoder) Decode(buf []byte, start, end int) (p Piece, err error) {
	p = Piece{From: start, To: start, Used: start}
	switch d.in {
	case http1.ByLength:
		n := int(min(int64(end-start), d.left))
		d.left -= int64(n)
		p.To, p.Used = start+n, start+n
		d.done = d.left == 0
	case http1.UntilClose:
		p.To, p.Used = end, end
	case http1.ByChunks:
		if p, err = d.unchunk(buf, start, end); err != nil {
			return p, err
		}
	}
	d.moved += int64(p.To - p.From)
	if d.room >= 0 {
		if int64(p.To-p.From) > d.room {
			return p, ErrBodyTooLarge
		}
		d.room -= int64(p.To - p.From)
	}
	return p, nil
}

// unchunk removes the chunked framing in buf[start:end] and moves the data together.
func (d *Decoder) unchunk(buf []byte, start, end int) (p Piece, err error) {
	at, w := start, -1
	p = Piece{From: start, To: start}
	for at < end && !d.chunks.InTrailer() {
		used, data, err := d.chunks.Next(buf[at:end])
		if err != nil {
			return p, err
		}
		at += used
		if len(data) == 0 {
			continue
		}
		from := at - len(data)
		switch {
		case w < 0: // the first piece of data stays where it is
			p.From, w = from, at
		case w == from:
			w = at
		default:
			w += copy(buf[w:], data)
		}
		p.To = w
	}
	p.Used = at
	if d.chunks.InTrailer() && at < end {
		return p, d.trailer(buf, &p, end)
	}
	return p, nil
}

// trailer parses the trailer section, which begins or continues at p.Used.
func (d *Decoder) trailer(buf []byte, p *Piece, end int) error {
	before := len(d.partial)
	d.partial = append(d.partial, buf[p.Used:end]...)
	done, err := d.parser.Parse(d.partial, &d.section)
	if err != nil {
		return err
	}
	if !done {
		p.Used = end
		return nil
	}
	p.Used += d.section.End - before
	d.done = true
	return nil
}

// Done reports whether the body has ended.
func (d *Decoder) Done() bool { return d.done }

// Moved returns how many bytes of data there were so far.
func (d *Decoder) Moved() int64 { return d.moved }

// Limit makes more than n bytes of data an error, ErrBodyTooLarge.
func (d *Decoder) Limit(n int64) { d.room = n }

// Left returns how many bytes of a body with a declared length are still to come. It is 0 for any
// other body.
func (d *Decoder) Left() int64 {
	if d.in != http1.ByLength {
		return 0
	}
	return d.left
}

// Skip notes that n bytes of a body with a declared length bypassed the Decoder. More bytes of the body must follow.
func (d *Decoder) Skip(n int64) {
	d.left -= n
	d.moved += n
}

// Trailers returns the trailer section once the body has ended.
func (d *Decoder) Trailers() (buf []byte, fields []http1.Field) {
	if d.in != http1.ByChunks || !d.done {
		return nil, nil
	}
	return d.partial, d.section.Fields()
}

// Closed handles the end of the connection.
func (d *Decoder) Closed() error {
	if d.in != http1.UntilClose {
		return ErrTruncated
	}
	d.done = true
	return nil
}

// Encoder encodes a body's data as chunks, in place, or leaves the data as it is.
type Encoder struct {
	EncoderState
	end []byte // the end of a chunked body
}

// EncoderState says how an Encoder encodes a body.
type EncoderState struct {
	Chunked  bool
	Response bool           // the body is of a response, otherwise of a request
	Trailers bool           // trailers may be forwarded
	Withheld proxy.Withheld // fields that are dropped from trailers
}

// Start begins a body.
func (e *Encoder) Start(s EncoderState) {
	e.EncoderState = s
	if cap(e.end) > KeepRoom {
		e.end = nil
	}
}

// Encode writes the size of a chunk before the data of p and CRLF after it. It uses up to
// 20 bytes before the data and 2 after it.
func (e *Encoder) Encode(buf []byte, p *Piece) {
	if !e.Chunked || p.To == p.From {
		return
	}
	size := p.To - p.From
	p.From -= 2
	copy(buf[p.From:], "\r\n")
	for ; size > 0; size >>= 4 {
		p.From--
		buf[p.From] = "0123456789abcdef"[size&15]
	}
	p.To += copy(buf[p.To:p.To+2], "\r\n")
}

// Finish returns the end of a chunked body with the trailers that may be forwarded. For any other
// body it returns nothing. The result is valid until the next call.
func (e *Encoder) Finish(section []byte, fields []http1.Field) []byte {
	if !e.Chunked {
		return nil
	}
	e.end = append(e.end[:0], "0\r\n"...)
	if e.Trailers {
		e.end = proxy.AppendTrailers(e.end, section, fields, e.Response, e.Withheld)
	}
	e.end = append(e.end, "\r\n"...)
	return e.end
}

// Recoder converts a request's body, in place, from its framing on the client's connection to its
// framing on the upstream's.
type Recoder struct {
	Decoder
	to *Framing // nil if the data is only extracted
}

// Start begins a body. length is the one for http1.ByLength.
func (r *Recoder) Start(in http1.Framing, length int64, to *Framing) {
	r.Decoder.Start(in, length)
	r.to = to
}

// GoOn makes the rest of a body go on as to says.
func (r *Recoder) GoOn(to *Framing) { r.to = to }

// Step converts buf[start:end]. It uses all of it unless the body ends before end. It may
// write up to 20 bytes before start and 2 after end.
func (r *Recoder) Step(buf []byte, start, end int) (p Piece, err error) {
	if p, err = r.Decode(buf, start, end); err != nil || r.to == nil {
		return p, err
	}
	if err = r.to.Data(buf, &p); err == nil && r.done {
		p.End, err = r.to.Finish(r.Trailers())
	}
	return p, err
}
