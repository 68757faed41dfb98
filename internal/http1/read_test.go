package http1

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// message is a request as the parsers read it.
type message struct {
	method, target string
	minor          byte
	fields         []string // "name: value"
	body           string
	trailers       []string
}

// reading is everything that is found in a stream of bytes: the messages that
// are whole, and how it ends.
type reading struct {
	messages []message
	err      error
	rest     bool // bytes of an incomplete message follow
	closed   bool // bytes follow a message after which the connection ends
}

func (r reading) String() string {
	return fmt.Sprintf("%+v, rest %v, error %v", r.messages, r.rest, r.err)
}

// readAll reads requests from pieces, in the way a connection gives them.
func readAll(pieces [][]byte) (out reading) {
	var (
		buf     []byte
		p       RequestParser
		req     Request
		inBody  bool
		left    int64
		chunked Chunked
		tp      TrailerParser
		ts      Trailers
		cur     message
		closing bool // the last message said that the connection ends
	)
	for _, piece := range pieces {
		buf = append(buf, piece...)
		for progress := true; progress; {
			progress = false
			switch {
			case !inBody && closing:
				out.closed = out.closed || len(buf) > 0
			case !inBody:
				done, err := p.Parse(buf, &req)
				if err != nil {
					out.err = err
					return out
				}
				if !done {
					break
				}
				cur = message{method: string(req.Method.Of(buf)), target: string(req.Target.Of(buf)), minor: req.Minor}
				cur.fields = lines(buf, req.Fields())
				buf = append([]byte(nil), buf[req.End:]...)
				inBody, progress = true, true
				closing = !req.KeepAlive()
				left, chunked, tp = max(req.ContentLength(), 0), Chunked{}, TrailerParser{}
			case req.Chunked() && chunked.InTrailer():
				done, err := tp.Parse(buf, &ts)
				if err != nil {
					out.err = err
					return out
				}
				if done {
					cur.trailers = lines(buf, ts.Fields())
					buf = append([]byte(nil), buf[ts.End:]...)
					out.messages = append(out.messages, cur)
					inBody, progress = false, true
					p.Reset()
				}
			case req.Chunked():
				used, data, err := chunked.Next(buf)
				if err != nil {
					out.err = err
					return out
				}
				cur.body += string(data)
				buf = append([]byte(nil), buf[used:]...)
				progress = used > 0
			default:
				n := min(left, int64(len(buf)))
				cur.body += string(buf[:n])
				left -= n
				buf = append([]byte(nil), buf[n:]...)
				if left == 0 {
					out.messages = append(out.messages, cur)
					inBody, progress = false, true
					p.Reset()
				}
			}
		}
	}
	out.rest = inBody || len(buf) > 0
	return out
}

func lines(buf []byte, fields []Field) (out []string) {
	for _, f := range fields {
		out = append(out, string(f.Name.Of(buf))+": "+string(f.Value.Of(buf)))
	}
	return out
}

// splits returns whole, byte by byte, and n random splits of b.
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

// sameReading reports whether two readings agree. Of an error only its being
// one counts in a stream that was cut differently.
func sameReading(a, b reading) bool {
	return errors.Is(a.err, b.err) && a.rest == b.rest && a.closed == b.closed && fmt.Sprint(a.messages) == fmt.Sprint(b.messages)
}
