package http1

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// message is a request as the parsers of this package read it.
type message struct {
	method, target string
	minor          byte
	fields         []string // "name: value"
	body           string
	trailers       []string
}

// reading is everything that the parsers find in a stream of bytes: the complete
// messages, and how the stream ends.
type reading struct {
	messages []message
	err      error
	rest     bool // the stream ends within a message
	closed   bool // bytes follow a message that closes the connection
}

func (r reading) String() string {
	return fmt.Sprintf("%+v, rest %v, closed %v, error %v", r.messages, r.rest, r.closed, r.err)
}

// streamReader reads requests from a stream as a server does.
type streamReader struct {
	buf     []byte // received and not yet used
	parser  RequestParser
	req     Request
	inBody  bool
	left    int64 // bytes of a body with a Content-Length still to come
	chunked Chunked
	trailer TrailerParser
	fields  Trailers
	current message
	closing bool // the last message closes the connection
	out     reading
}

// readAll reads requests from a stream that arrives in pieces.
func readAll(pieces [][]byte) reading {
	r := &streamReader{}
	for _, piece := range pieces {
		r.buf = append(r.buf, piece...)
		for r.step() {
		}
		if r.out.err != nil {
			return r.out
		}
	}
	r.out.rest = r.inBody || len(r.buf) > 0
	return r.out
}

// step reads the next part of the buffer. It returns false if it needs more bytes or
// met an error.
func (r *streamReader) step() bool {
	switch {
	case !r.inBody && r.closing:
		r.out.closed = r.out.closed || len(r.buf) > 0
		return false
	case !r.inBody:
		return r.head()
	case r.req.Chunked() && r.chunked.InTrailer():
		return r.trailers()
	case r.req.Chunked():
		used, data, err := r.chunked.Next(r.buf)
		r.current.body += string(data)
		r.use(used)
		r.out.err = err
		return used > 0 && err == nil
	default:
		n := min(r.left, int64(len(r.buf)))
		r.current.body += string(r.buf[:n])
		r.left -= n
		r.use(int(n))
		if r.left > 0 {
			return false
		}
		r.finish()
		return true
	}
}

func (r *streamReader) head() bool {
	done, err := r.parser.Parse(r.buf, &r.req)
	if r.out.err = err; err != nil || !done {
		return false
	}
	r.current = message{
		method: string(r.req.Method.Of(r.buf)), target: string(r.req.Target.Of(r.buf)), minor: r.req.Minor,
		fields: fieldLines(r.buf, r.req.Fields()),
	}
	r.use(r.req.End)
	r.inBody, r.closing = true, !r.req.KeepAlive()
	r.left, r.chunked, r.trailer = max(r.req.ContentLength(), 0), Chunked{}, TrailerParser{}
	return true
}

func (r *streamReader) trailers() bool {
	done, err := r.trailer.Parse(r.buf, &r.fields)
	if r.out.err = err; err != nil || !done {
		return false
	}
	r.current.trailers = fieldLines(r.buf, r.fields.Fields())
	r.use(r.fields.End)
	r.finish()
	return true
}

// finish ends the current message.
func (r *streamReader) finish() {
	r.out.messages = append(r.out.messages, r.current)
	r.inBody = false
	r.parser.Reset()
}

// use removes the first n bytes of the buffer. The rest is copied, so that a parser
// that kept a reference to the buffer would be noticed.
func (r *streamReader) use(n int) { r.buf = append([]byte(nil), r.buf[n:]...) }

// fieldLines returns fields as "name: value".
func fieldLines(buf []byte, fields []Field) (out []string) {
	for _, f := range fields {
		out = append(out, string(f.Name.Of(buf))+": "+string(f.Value.Of(buf)))
	}
	return out
}

// splits returns b whole, b byte by byte, and n random splits of b.
func splits(r *rand.Rand, b []byte, n int) (out [][][]byte) {
	var single [][]byte
	for i := range b {
		single = append(single, b[i:i+1])
	}
	out = [][][]byte{{b}, single}
	for range n {
		var pieces [][]byte
		for rest := b; len(rest) > 0; {
			k := 1 + r.IntN(len(rest))
			if r.IntN(2) == 0 {
				k = min(k, 1+r.IntN(5))
			}
			pieces = append(pieces, rest[:k])
			rest = rest[k:]
		}
		out = append(out, pieces)
	}
	return out
}

// sameReading reports whether two readings of one stream are the same.
func sameReading(a, b reading) bool {
	return errors.Is(a.err, b.err) && a.rest == b.rest && a.closed == b.closed && fmt.Sprint(a.messages) == fmt.Sprint(b.messages)
}
