package h1

import (
	"errors"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/snapshot"
)

// errCut is a message that ended before its end.
var errCut = errors.New("the message was cut off")

// errBodyTooLarge is a body that crosses max_body_bytes.
var errBodyTooLarge = errors.New("the body is larger than max_body_bytes")

// recoder turns a body's framing on one connection into its framing on the next,
// in place. It is given what was received piece by piece and answers the same
// data however that was split.
type recoder struct {
	in       http1.Framing
	chunked  bool              // out: in chunks, else as it is
	answer   bool              // the body of an answer, else of a request
	trailers bool              // trailers may pass
	set      []snapshot.Header // what the gateway sets itself, which no trailer may
	left     int64             // ByLength: bytes to come
	room     int64             // bytes of data that may still come; negative is no bound
	moved    int64             // bytes of data that came
	done     bool              // the body has ended

	chunks  http1.Chunked
	parser  http1.TrailerParser
	section http1.Trailers
	partial []byte // the trailer section, as long as it is incomplete
	end     []byte // the end of a chunked body
}

// start makes r ready for a body. length counts for http1.ByLength.
func (r *recoder) start(in http1.Framing, length int64, chunked bool) {
	r.in, r.chunked, r.left, r.room, r.moved = in, chunked, length, -1, 0
	r.done = in == http1.NoBody || in == http1.ByLength && length == 0
	r.answer, r.trailers, r.set = false, false, nil
	if in == http1.ByChunks {
		r.chunks, r.parser, r.partial = http1.Chunked{}, http1.TrailerParser{}, r.partial[:0]
	}
	r.end = r.end[:0]
}

// piece is what comes out of what went in.
type piece struct {
	from, to int    // the part of the buffer to send
	end      []byte // to send behind it; valid until the next call
	used     int    // where in the buffer the next message begins, if the body has ended
}

// step takes buf[start:end], all of it unless the body ends there. It may use 20
// bytes before start and 2 behind end.
func (r *recoder) step(buf []byte, start, end int) (p piece, err error) {
	p = piece{from: start, to: start, used: start}
	switch r.in {
	case http1.ByLength:
		n := int(min(int64(end-start), r.left))
		r.left -= int64(n)
		p.to, p.used = start+n, start+n
		r.done = r.left == 0
	case http1.UntilClose:
		p.to, p.used = end, end
	case http1.ByChunks:
		if p, err = r.unchunk(buf, start, end); err != nil {
			return p, err
		}
	}
	r.moved += int64(p.to - p.from)
	if r.room >= 0 {
		if int64(p.to-p.from) > r.room {
			return p, errBodyTooLarge
		}
		r.room -= int64(p.to - p.from)
	}
	if r.chunked {
		r.rechunk(buf, &p)
	}
	return p, nil
}

// unchunk brings the data in buf[start:end] together.
func (r *recoder) unchunk(buf []byte, start, end int) (p piece, err error) {
	at, w := start, -1
	p = piece{from: start, to: start}
	for at < end && !r.chunks.InTrailer() {
		used, data, err := r.chunks.Next(buf[at:end])
		if err != nil {
			return p, err
		}
		at += used
		if len(data) == 0 {
			continue
		}
		from := at - len(data)
		switch {
		case w < 0: // the first stays where it is
			p.from, w = from, at
		case w == from:
			w = at
		default:
			w += copy(buf[w:], data)
		}
		p.to = w
	}
	p.used = at
	if r.chunks.InTrailer() && at < end {
		return p, r.trailer(buf, &p, end)
	}
	return p, nil
}

// trailer parses the trailer section, which begins or goes on at p.used.
func (r *recoder) trailer(buf []byte, p *piece, end int) error {
	section, before := buf[p.used:end], len(r.partial)
	if before > 0 {
		r.partial = append(r.partial, section...)
		section = r.partial
	}
	done, err := r.parser.Parse(section, &r.section)
	if err != nil {
		return err
	}
	if !done {
		if before == 0 {
			r.partial = append(r.partial, section...)
		}
		p.used = end
		return nil
	}
	p.used += r.section.End - before
	r.done = true
	if !r.chunked {
		if r.trailers && before == 0 {
			r.partial = append(r.partial, section...) // for who reads the data alone
		}
		return nil
	}
	r.end = append(r.end[:0], "0\r\n"...)
	if r.trailers {
		r.end = appendTrailers(r.end, section, r.section.Fields(), r.answer, r.set)
	}
	r.end = append(r.end, "\r\n"...)
	return nil
}

// rechunk puts the size of a chunk before the data of p and CRLF behind it.
func (r *recoder) rechunk(buf []byte, p *piece) {
	if p.to > p.from {
		size := p.to - p.from
		p.from -= 2
		copy(buf[p.from:], "\r\n")
		for ; size > 0; size >>= 4 {
			p.from--
			buf[p.from] = "0123456789abcdef"[size&15]
		}
		p.to += copy(buf[p.to:p.to+2], "\r\n")
	}
	if r.done {
		p.end = r.end
	}
}

// closed takes the end of the connection. It returns what is to be sent for it.
func (r *recoder) closed() (end []byte, err error) {
	if r.in != http1.UntilClose {
		return nil, errCut
	}
	r.done = true
	if r.chunked {
		r.end = append(r.end[:0], "0\r\n\r\n"...)
		return r.end, nil
	}
	return nil, nil
}
