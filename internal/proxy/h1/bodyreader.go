package h1

import (
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
)

// bodyReader reads the body of a refused request with blocking calls, piece by piece.
type bodyReader struct {
	c   *conn
	x   *exchange
	rec message.Decoder
	b   *message.Buffer
	// b[from:to] is the data of the last piece.
	from, to int
	asked    bool
}

func newBodyReader(c *conn, x *exchange) *bodyReader {
	r := &bodyReader{c: c, x: x, b: c.engine.buffers.Get(), from: message.Front, to: message.Front}
	in := http1.ByLength
	if x.req.Chunked() {
		in = http1.ByChunks
	}
	r.rec.Start(in, x.req.ContentLength())
	return r
}

// fill takes the bytes that were received with the head, then reads from the client.
func (r *bodyReader) fill() error {
	n := copy(r.b.Area(), r.x.in[r.x.after:r.x.stop])
	received := n > 0
	if !received {
		var err error
		if r.asked || !r.x.req.ExpectsContinue() {
			r.c.reading.enter(phaseReading, r.c.engine.clock.In(stallTime))
		}
		n, err = r.c.nc.Read(r.b.Area())
		r.c.reading.enter(phaseNone, 0)
		if n == 0 {
			return readError(err)
		}
		r.asked = true
	}
	p, err := r.rec.Decode(r.b.Data, message.Front, message.Front+n)
	if err != nil {
		return err
	}
	r.from, r.to = p.From, p.To
	switch {
	case received && r.rec.Done():
		r.x.after += p.Used - message.Front
	case received:
		r.x.after += n
	case r.rec.Done() && p.Used < message.Front+n:
		rest := r.b.Data[p.Used : message.Front+n]
		r.x.after = r.x.stop
		r.x.add(rest)
	}
	return nil
}

func (r *bodyReader) free() {
	r.c.engine.buffers.Put(r.b)
	r.b = nil
}

// chunkedLength returns the length of the chunked body that b begins with, framing included. It is -1 if b has no end of it.
func chunkedLength(b []byte) int64 {
	var chunks http1.Chunked
	at := 0
	for at < len(b) && !chunks.InTrailer() {
		used, _, err := chunks.Next(b[at:])
		if err != nil {
			return -1
		}
		at += used
	}
	if !chunks.InTrailer() {
		return -1
	}
	var parser http1.TrailerParser
	var section http1.Trailers
	if done, err := parser.Parse(b[at:], &section); !done || err != nil {
		return -1
	}
	return int64(at + section.End)
}

// drain reads the rest of the body of a refused request, so that the connection can serve
// the next request. The response has already been sent.
func (c *conn) drain(x *exchange) step {
	end := c.engine.clock.In(proxy.LingerTime)
	body := newBodyReader(c, x)
	defer body.free()
	for total := 0; !body.rec.Done(); {
		if !c.discards(end) || body.fill() != nil {
			return stepClose
		}
		if total += body.to - body.from; total > proxy.DrainBytes {
			return stepLinger
		}
	}
	if c.phase.enter(phaseIdle, c.engine.clock.In(idleTime)) != notCut {
		return stepClose
	}
	return stepIdle
}
