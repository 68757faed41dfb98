package h1

import (
	"errors"
	"io"

	"github.com/keygate/keygate/internal/http1"
)

// errNoResponse is an upstream that closes the connection instead of responding.
var errNoResponse = errors.New("the upstream closed the connection without a response")

// receiver takes a response from a roundTrip: interim heads, the final head, data, and
// then the end, unless the round trip fails. Heads are valid during the call. An error of
// takeInterim, takeData or takeEnd means that the client cannot be reached; the round trip fails with
// it.
type receiver interface {
	// takeInterim takes the head of a 1xx response other than 101.
	takeInterim(head []byte, r *http1.Response) error
	// takeHead takes the final head, or that of a 101. Data, perhaps none, follows at once,
	// or the end. An error means that the response cannot be relayed.
	takeHead(head []byte, r *http1.Response, body http1.Framing) error
	// takeData takes the data buf[from:to] of the body. The receiver may use 20 bytes before
	// it and tailRoom behind it; where a head came just before, front bytes before it.
	takeData(buf []byte, from, to int) error
	// takeEnd takes the last data and the trailers. The connection to the upstream may serve
	// another request by then.
	takeEnd(buf []byte, from, to int, section []byte, trailers []http1.Field) error
	// canSplice reports whether splice works, which moves data from the upstream's socket.
	canSplice() bool
	splice(from *io.LimitedReader) (n int64, err error)
}

// readerPhase is where a responseReader stands.
type readerPhase uint8

const (
	readHead   readerPhase = iota // before the final head
	readBody                      // in the body
	readDone                      // the response is complete
	readTunnel                    // behind a 101
)

// responseReader reads a response from what an upstream sends and gives it to a receiver,
// however it was split. It does no I/O.
type responseReader struct {
	readerState
	parser http1.ResponseParser
	resp   http1.Response
	body   decoder
}

type readerState struct {
	isHead bool // the request's method is HEAD: no body follows
	phase  readerPhase
	extra  bool // the upstream sent more than its response
	lost   bool // an error of step is of the receiver: the client cannot be reached
	// The last data, for the end.
	buf      []byte
	from, to int
}

// reset makes r ready for the response to the next request.
func (r *responseReader) reset() {
	r.readerState = readerState{}
	r.parser.Reset()
	r.body.start(http1.NoBody, 0)
}

// reusable reports whether the upstream's connection can serve another request after the
// response.
func (r *responseReader) reusable() bool {
	return r.phase == readDone && !r.extra && r.body.in != http1.UntilClose && r.resp.KeepAlive()
}

// step takes what the upstream sent, buf[start:end]. next is start if a head is
// incomplete, and otherwise where the bytes begin that were not used.
func (r *responseReader) step(buf []byte, start, end int, to receiver) (next int, err error) {
	for r.phase == readHead {
		done, err := r.parser.Parse(buf[start:end], &r.resp)
		if err != nil || !done {
			return start, err
		}
		head := buf[start : start+r.resp.End]
		start += r.resp.End
		switch status := r.resp.Status; {
		case status == 101:
			if err := to.takeHead(head, &r.resp, http1.NoBody); err != nil {
				return start, err
			}
			r.phase = readTunnel
			return start, r.receiver(to.takeData(buf, start, start))
		case status < 200:
			if err := r.receiver(to.takeInterim(head, &r.resp)); err != nil {
				return start, err
			}
			r.parser.Reset()
			if start == end {
				return start, nil
			}
			continue
		}
		framing := r.resp.Framing(r.isHead)
		r.body.start(framing, r.resp.ContentLength())
		if err := to.takeHead(head, &r.resp, framing); err != nil {
			return start, err
		}
		r.phase = readBody
	}
	p, err := r.body.decode(buf, start, end)
	if err != nil {
		return start, err
	}
	if r.body.done {
		r.phase = readDone
		r.extra = p.used < end
		r.buf, r.from, r.to = buf, p.from, p.to
		return end, nil
	}
	return end, r.receiver(to.takeData(buf, p.from, p.to))
}

// receiver notes that an error is the receiver's.
func (r *responseReader) receiver(err error) error {
	r.lost = err != nil
	return err
}

// finish gives the receiver the end of a response that is complete.
func (r *responseReader) finish(to receiver) error {
	section, trailers := r.body.trailerSection()
	return to.takeEnd(r.buf, r.from, r.to, section, trailers)
}

// closed takes the end of the upstream's connection. pending says that bytes of a head
// were not used.
func (r *responseReader) closed(pending bool) error {
	switch {
	case r.phase == readHead && !pending:
		return errNoResponse
	case r.phase == readHead:
		return errTruncated
	}
	if err := r.body.closed(); err != nil {
		return err
	}
	r.phase = readDone
	return nil
}
