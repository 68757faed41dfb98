package cost

import (
	"compress/gzip"
	"errors"
	"io"
	"iter"
)

// gunzip decodes gzip as it comes. A decoder reads from an io.Reader and cannot stop in the middle, so it runs in a
// coroutine (iter.Pull), to which each Write switches, and which switches back when it has used the piece. Nothing runs
// at the same time, and nothing waits for a scheduler. The coroutine is made for each response, since nothing ends one
// that a pool forgets; the decoder with its window of 32 KiB is kept. A piece decodes to maxRatio times its size and freeRead at most.
type gunzip struct {
	decoder gzip.Reader
	input   []byte
	atEnd   bool
	next    func() (struct{}, bool) // runs the coroutine until it needs input; nil before the first piece
	stop    func()
	output  [4 << 10]byte
}

// write decodes a piece of the body for r.
func (g *gunzip) write(r *Reader, b []byte) {
	g.input = b
	if g.next == nil {
		g.atEnd = false
		g.next, g.stop = iter.Pull(g.run(r))
	}
	g.next()
	g.input = nil
}

// end ends the body.
func (g *gunzip) end(r *Reader) {
	if g.next == nil { // there is no body
		return
	}
	g.atEnd = true
	g.next()
}

// close ends the coroutine.
func (g *gunzip) close() {
	if g.next != nil {
		g.stop()
		g.next, g.stop = nil, nil
	}
}

// run returns the coroutine. It ends when there is nothing more to read.
func (g *gunzip) run(r *Reader) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		in := &input{g, yield}
		err := g.decoder.Reset(in)
		for err == nil {
			var n int
			n, err = g.decoder.Read(g.output[:])
			if n > 0 && !r.read(g.output[:n]) {
				return
			}
			if r.isInflated() {
				r.stop(TooLong)
				return
			}
		}
		if !errors.Is(err, io.EOF) && r.form != formOther {
			r.stop(Encoding)
		}
	}
}

// input is what the decoder reads from.
type input struct {
	*gunzip
	yield func(struct{}) bool
}

// wait waits for input. It returns io.EOF at its end.
func (in *input) wait() error {
	for len(in.input) == 0 {
		if in.atEnd || !in.yield(struct{}{}) {
			in.atEnd = true
			return io.EOF
		}
	}
	return nil
}

func (in *input) Read(b []byte) (int, error) {
	if err := in.wait(); err != nil {
		return 0, err
	}
	n := copy(b, in.input)
	in.input = in.input[n:]
	return n, nil
}

// ReadByte makes the decoder read no more than it needs, without a buffer of its own.
func (in *input) ReadByte() (byte, error) {
	if err := in.wait(); err != nil {
		return 0, err
	}
	c := in.input[0]
	in.input = in.input[1:]
	return c, nil
}
