package h1

import (
	"fmt"
	"io"

	"github.com/keygate/keygate/internal/http1"
)

// errNoResponse reports an upstream that closed the connection instead of responding.
var errNoResponse = fmt.Errorf("the upstream closed the connection without a response: %w", io.EOF)

// errUnasked reports bytes that an upstream sent before it had any of the request.
var errUnasked = fmt.Errorf("the upstream sent bytes before it had the request: %w", http1.ErrSyntax)

// Receiver takes a response from a roundTrip: interim heads, the final head, data, and then
// the end, unless the round trip fails. Heads are valid only during the call. An error of
// TakeInterim, TakeData or TakeEnd means that the client cannot be reached; the round trip
// then fails with that error.
type Receiver interface {
	// TakeInterim takes the head of a 1xx response other than 101.
	TakeInterim(head []byte, r *http1.Response) error
	// TakeHead takes the final head, or that of a 101. A call of TakeData, perhaps with no
	// data, or of TakeEnd follows at once. An error means that the response cannot be
	// relayed.
	TakeHead(head []byte, r *http1.Response, body http1.Framing) error
	// TakeData takes the data buf[from:to] of the body. The receiver may use 20 bytes
	// before it and tailRoom after it, and front bytes before it if a head has just been
	// taken.
	TakeData(buf []byte, from, to int) error
	// TakeEnd takes the last data and the trailers. By then, the connection to the upstream
	// may serve another request.
	TakeEnd(buf []byte, from, to int, section []byte, trailers []http1.Field) error
	// CanSplice reports whether Splice works, which moves data from the upstream's socket.
	CanSplice() bool
	Splice(from *io.LimitedReader) (n int64, err error)
}

// readerPhase is the part of a response that a responseReader is reading.
type readerPhase uint8

const (
	readHead   readerPhase = iota // before the final head
	readBody                      // in the body
	readDone                      // the response is complete
	readTunnel                    // after a 101
)

// responseReader parses the bytes that an upstream sends and passes the response to a
// receiver. The result does not depend on how the bytes are split. It does no I/O.
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
	lost   bool // the error of step is the receiver's: the client cannot be reached
	// The last data, for TakeEnd.
	buf      []byte
	from, to int
}

// reset prepares r for the response to the next request.
func (r *responseReader) reset() {
	r.readerState = readerState{}
	r.parser.Reset()
	r.body.start(http1.NoBody, 0)
}

// reusable reports whether the upstream's connection can serve another request after the
// response.
func (r *responseReader) reusable() bool {
	return r.phase == readDone && !r.extra && r.keeps()
}

// keeps reports whether the upstream's connection may stay open after the response, judging by its head.
func (r *responseReader) keeps() bool {
	return r.body.in != http1.UntilClose && r.resp.KeepAlive()
}

// step takes bytes that the upstream sent, buf[start:end]. next is start if a head is
// incomplete, and otherwise the index of the first byte that was not used.
func (r *responseReader) step(buf []byte, start, end int, to Receiver) (next int, err error) {
	for r.phase == readHead {
		done, err := r.parser.Parse(buf[start:end], &r.resp)
		if err != nil || !done {
			return start, err
		}
		head := buf[start : start+r.resp.End]
		start += r.resp.End
		switch status := r.resp.Status; {
		case status == 101:
			if err := to.TakeHead(head, &r.resp, http1.NoBody); err != nil {
				return start, err
			}
			r.phase = readTunnel
			return start, r.receiver(to.TakeData(buf, start, start))
		case status < 200:
			if err := r.receiver(to.TakeInterim(head, &r.resp)); err != nil {
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
		if err := to.TakeHead(head, &r.resp, framing); err != nil {
			return start, err
		}
		r.phase = readBody
	}
	p, err := r.body.decode(buf, start, end)
	if err != nil {
		if p.to > p.from { // what comes before the error is relayed
			if err := r.receiver(to.TakeData(buf, p.from, p.to)); err != nil {
				return start, err
			}
		}
		return start, err
	}
	if r.body.done {
		r.phase = readDone
		r.extra = p.used < end
		r.buf, r.from, r.to = buf, p.from, p.to
		return end, nil
	}
	return end, r.receiver(to.TakeData(buf, p.from, p.to))
}

// receiver records that an error came from the receiver.
func (r *responseReader) receiver(err error) error {
	r.lost = err != nil
	return err
}

// finish passes the end of a complete response to the receiver.
func (r *responseReader) finish(to Receiver) error {
	section, trailers := r.body.trailerSection()
	return to.TakeEnd(r.buf, r.from, r.to, section, trailers)
}

// closed handles the end of the upstream's connection. pending is set if bytes of an
// incomplete head are left, and cutShort if the upstream may not have ended it.
func (r *responseReader) closed(pending, cutShort bool) error {
	switch {
	case r.phase == readHead && !pending:
		return errNoResponse
	case r.phase == readHead:
		return errTruncated
	}
	if err := r.body.closed(); err != nil || cutShort {
		return errTruncated
	}
	r.phase = readDone
	return nil
}
