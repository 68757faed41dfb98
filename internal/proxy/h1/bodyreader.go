package h1

import (
	"io"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// bodyReader reads a request's body with blocking calls. Only one goroutine at a time may
// use it.
type bodyReader struct {
	c   *conn
	x   *exchange
	rec decoder
	b   *buffer
	// b[from:to] is data that Read has not returned yet.
	from, to int
	asked    bool
	err      error
}

func newBodyReader(c *conn, x *exchange) *bodyReader {
	r := &bodyReader{c: c, x: x, b: c.engine.pools.buffer(), from: front, to: front}
	in := http1.ByLength
	if x.req.Chunked() {
		in = http1.ByChunks
	}
	r.rec.start(in, x.req.ContentLength())
	return r
}

// Read reads data of the body.
func (r *bodyReader) Read(p []byte) (int, error) {
	for r.from == r.to {
		switch {
		case r.err != nil:
			return 0, r.err
		case r.rec.done:
			return 0, io.EOF
		}
		r.err = r.fill()
	}
	n := copy(p, r.b.data[r.from:r.to])
	r.from += n
	return n, nil
}

// fill takes the bytes that were received with the head, then reads from the client.
func (r *bodyReader) fill() error {
	n := copy(r.b.area(), r.x.in[r.x.after:r.x.stop])
	received := n > 0
	if !received {
		var err error
		if r.asked || !r.x.req.ExpectsContinue() {
			r.c.reading.enter(phaseReading, r.c.engine.clock.In(stallTime))
		}
		n, err = r.c.nc.Read(r.b.area())
		r.c.reading.enter(phaseNone, 0)
		if n == 0 {
			return readErrorUnexpected(err)
		}
		r.asked = true
	}
	p, err := r.rec.decode(r.b.data, front, front+n)
	if err != nil {
		return err
	}
	r.from, r.to = p.from, p.to
	if r.rec.done {
		r.c.uploading.Store(false)
	}
	switch {
	case received && r.rec.done:
		r.x.after += p.used - front
	case received:
		r.x.after += n
	case r.rec.done && p.used < front+n:
		rest := r.b.data[p.used : front+n]
		r.x.after = r.x.stop
		r.x.add(rest)
	}
	return nil
}

func readErrorUnexpected(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // Read returns it bare
		return io.ErrUnexpectedEOF
	}
	return err
}

// Close does nothing: the connection discards the rest of the body.
func (r *bodyReader) Close() error { return nil }

// Ended reports whether the body was read to its end.
func (r *bodyReader) Ended() bool { return r.rec.done && r.from == r.to }

// Trailers returns the trailer section, once the body has ended.
func (r *bodyReader) Trailers() (buf []byte, fields []http1.Field) {
	return r.rec.trailerSection()
}

func (r *bodyReader) free() {
	r.c.engine.pools.release(r.b)
	r.b = nil
}

// drain reads the rest of the body of a refused request, so that the connection can serve
// the next request. The response has already been sent.
func (c *conn) drain(x *exchange) step {
	if c.phase.enter(phaseDrain, c.engine.clock.In(drainTime)) != notCut {
		return stepClose
	}
	body := newBodyReader(c, x)
	defer body.free()
	for total := 0; !body.rec.done; {
		if body.fill() != nil {
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
