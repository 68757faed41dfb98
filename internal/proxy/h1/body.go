package h1

import (
	"errors"
	"fmt"
	"io"

	"github.com/keygate/keygate/internal/http1"
)

var (
	// errTruncated reports a message that ended before its framing allows it to.
	errTruncated = fmt.Errorf("the message was cut off: %w", io.ErrUnexpectedEOF)
	// errBodyTooLarge reports a body larger than max_body_bytes.
	errBodyTooLarge = errors.New("the body is larger than max_body_bytes")
)

// decoder extracts the data of a body from its framing, in place. It takes the received
// bytes piece by piece. The result does not depend on how they are split.
type decoder struct {
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

// start begins a body. length is the one for http1.ByLength.
func (d *decoder) start(in http1.Framing, length int64) {
	d.decoderState = decoderState{in: in, left: length, room: -1, done: in == http1.NoBody || in == http1.ByLength && length == 0}
	if d.partial = d.partial[:0]; cap(d.partial) > keepRoom {
		d.partial = nil
	}
}

// piece is what a decoder or encoder makes of one piece of input.
type piece struct {
	from, to int    // the part of the buffer to send
	end      []byte // to send after it; valid until the next call
	used     int    // where in the buffer the next message begins, if the body has ended
}

// decode decodes buf[start:end]. It uses all of it unless the body ends before end.
func (d *decoder) decode(buf []byte, start, end int) (p piece, err error) {
	p = piece{from: start, to: start, used: start}
	switch d.in {
	case http1.ByLength:
		n := int(min(int64(end-start), d.left))
		d.left -= int64(n)
		p.to, p.used = start+n, start+n
		d.done = d.left == 0
	case http1.UntilClose:
		p.to, p.used = end, end
	case http1.ByChunks:
		if p, err = d.unchunk(buf, start, end); err != nil {
			return p, err
		}
	}
	d.moved += int64(p.to - p.from)
	if d.room >= 0 {
		if int64(p.to-p.from) > d.room {
			return p, errBodyTooLarge
		}
		d.room -= int64(p.to - p.from)
	}
	return p, nil
}

// unchunk removes the chunked framing in buf[start:end] and moves the data together.
func (d *decoder) unchunk(buf []byte, start, end int) (p piece, err error) {
	at, w := start, -1
	p = piece{from: start, to: start}
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
			p.from, w = from, at
		case w == from:
			w = at
		default:
			w += copy(buf[w:], data)
		}
		p.to = w
	}
	p.used = at
	if d.chunks.InTrailer() && at < end {
		return p, d.trailer(buf, &p, end)
	}
	return p, nil
}

// trailer parses the trailer section, which begins or continues at p.used.
func (d *decoder) trailer(buf []byte, p *piece, end int) error {
	before := len(d.partial)
	d.partial = append(d.partial, buf[p.used:end]...)
	done, err := d.parser.Parse(d.partial, &d.section)
	if err != nil {
		return err
	}
	if !done {
		p.used = end
		return nil
	}
	p.used += d.section.End - before
	d.done = true
	return nil
}

// trailerSection returns the trailer section once the body has ended.
func (d *decoder) trailerSection() (buf []byte, fields []http1.Field) {
	if d.in != http1.ByChunks || !d.done {
		return nil, nil
	}
	return d.partial, d.section.Fields()
}

// closed handles the end of the connection.
func (d *decoder) closed() error {
	if d.in != http1.UntilClose {
		return errTruncated
	}
	d.done = true
	return nil
}

// encoder encodes a body's data as chunks, in place, or leaves the data as it is.
type encoder struct {
	encoderState
	end []byte // the end of a chunked body
}

type encoderState struct {
	chunked  bool
	response bool     // the body is of a response, otherwise of a request
	trailers bool     // trailers may be forwarded
	withheld []string // fields that are dropped from trailers: Gateway.Withheld
}

// start begins a body.
func (e *encoder) start(s encoderState) {
	e.encoderState = s
	if cap(e.end) > keepRoom {
		e.end = nil
	}
}

// encode writes the size of a chunk before the data of p and CRLF after it. It uses up to
// 20 bytes before the data and 2 after it.
func (e *encoder) encode(buf []byte, p *piece) {
	if !e.chunked || p.to == p.from {
		return
	}
	size := p.to - p.from
	p.from -= 2
	copy(buf[p.from:], "\r\n")
	for ; size > 0; size >>= 4 {
		p.from--
		buf[p.from] = "0123456789abcdef"[size&15]
	}
	p.to += copy(buf[p.to:p.to+2], "\r\n")
}

// finish returns the end of a chunked body with the trailers that may be forwarded, or
// nothing for any other body. The result is valid until the next call.
func (e *encoder) finish(section []byte, fields []http1.Field) []byte {
	if !e.chunked {
		return nil
	}
	e.end = append(e.end[:0], "0\r\n"...)
	if e.trailers {
		e.end = appendTrailers(e.end, section, fields, e.response, e.withheld)
	}
	e.end = append(e.end, "\r\n"...)
	return e.end
}

// recoder converts a request's body, in place, from its framing on the client's connection to its
// framing on the upstream's.
type recoder struct {
	decoder
	to *framing // nil if the data is only extracted
}

// start begins a body. length is the one for http1.ByLength.
func (r *recoder) start(in http1.Framing, length int64, to *framing) {
	r.decoder.start(in, length)
	r.to = to
}

// step converts buf[start:end]. It uses all of it unless the body ends before end. It may
// write up to 20 bytes before start and 2 after end.
func (r *recoder) step(buf []byte, start, end int) (p piece, err error) {
	if p, err = r.decode(buf, start, end); err != nil || r.to == nil {
		return p, err
	}
	if err = r.to.data(buf, &p); err == nil && r.done {
		p.end, err = r.to.finish(r.trailerSection())
	}
	return p, err
}
