package message

import (
	"fmt"
	"io"

	"github.com/keygate/keygate/internal/http1"
)

// errNoResponse reports an upstream that closed the connection instead of responding.
var errNoResponse = fmt.Errorf("the upstream closed the connection without a response: %w", io.EOF)

// Receiver takes a response from an upstream: interim heads, the final head, data, and then
// the end, unless the exchange fails. Heads are valid only during the call. An error of
// TakeInterim, TakeData or TakeEnd means that the client cannot be reached; the exchange
// then fails with that error.
type Receiver interface {
	// TakeInterim takes the head of a 1xx response other than 101.
	TakeInterim(head []byte, r *http1.Response) error
	// TakeHead takes the final head, or the head of a 101. A call of TakeData, perhaps with no
	// data, or of TakeEnd follows at once. An error means that the response cannot be relayed.
	TakeHead(head []byte, r *http1.Response, body http1.Framing) error
	// TakeData takes the data buf[from:to] of the body. The receiver may use 20 bytes before the
	// data and TailRoom bytes after it; if a head has just been taken, it may use Front bytes
	// before the data.
	TakeData(buf []byte, from, to int) error
	// TakeEnd takes the last data and the trailers. By then, the connection to the upstream
	// may serve another request.
	TakeEnd(buf []byte, from, to int, section []byte, trailers []http1.Field) error
	// CanSplice reports whether Splice works, which moves data from the upstream's socket.
	CanSplice() bool
	Splice(from *io.LimitedReader) (n int64, err error)
}

// ReaderPhase is the part of a response that a ResponseReader is reading.
type ReaderPhase uint8

// The parts of a response.
const (
	ReadHead   ReaderPhase = iota // before the final head
	ReadBody                      // in the body
	ReadDone                      // the response is complete
	ReadTunnel                    // after a 101
)

// ResponseReader parses the bytes that an upstream sends and passes the response to a
// receiver. The result does not depend on how the bytes are split. It does no I/O.
type ResponseReader struct {
	readerState
	parser http1.ResponseParser
	resp   http1.Response
	body   Decoder
}

type readerState struct {
	IsHead bool // the request's method is HEAD: no body follows
	Phase  ReaderPhase
	Extra  bool // the upstream sent more than its response
	Lost   bool // the error of Step is the receiver's: the client cannot be reached
	// The last data, for TakeEnd.
	buf      []byte
	from, to int
}

// Reset prepares r for the response to the next request.
func (r *ResponseReader) Reset() {
	r.readerState = readerState{}
	r.parser.Reset()
	r.body.Start(http1.NoBody, 0)
}

// Reusable reports whether the upstream's connection can serve another request after the
// response.
func (r *ResponseReader) Reusable() bool {
	return r.Phase == ReadDone && !r.Extra && r.Keeps()
}

// Keeps reports whether the upstream's connection may stay open after the response, judging by its head.
func (r *ResponseReader) Keeps() bool {
	return !r.UntilClose() && r.resp.KeepAlive()
}

// UntilClose reports whether the body ends with the connection.
func (r *ResponseReader) UntilClose() bool { return r.body.in == http1.UntilClose }

// Bodyless reports whether the response has no body because of its status or the request's method.
func (r *ResponseReader) Bodyless() bool { return r.body.in == http1.NoBody }

// Body returns what decodes the body.
func (r *ResponseReader) Body() *Decoder { return &r.body }

// Response returns the response whose head has arrived.
func (r *ResponseReader) Response() *http1.Response { return &r.resp }

// Step takes bytes that the upstream sent, buf[start:end]. next is start if a head is
// incomplete, and otherwise the index of the first byte that was not used.
func (r *ResponseReader) Step(buf []byte, start, end int, to Receiver) (next int, err error) {
	for r.Phase == ReadHead {
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
			r.Phase = ReadTunnel
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
		framing := r.resp.Framing(r.IsHead)
		r.body.Start(framing, r.resp.ContentLength())
		if err := to.TakeHead(head, &r.resp, framing); err != nil {
			return start, err
		}
		r.Phase = ReadBody
	}
	p, err := r.body.Decode(buf, start, end)
	if err != nil {
		if p.To > p.From { // what comes before the error is relayed
			if err := r.receiver(to.TakeData(buf, p.From, p.To)); err != nil {
				return start, err
			}
		}
		return start, err
	}
	if r.body.done {
		r.Phase = ReadDone
		r.Extra = p.Used < end
		r.buf, r.from, r.to = buf, p.From, p.To
		return end, nil
	}
	return end, r.receiver(to.TakeData(buf, p.From, p.To))
}

// receiver records that an error came from the receiver.
func (r *ResponseReader) receiver(err error) error {
	r.Lost = err != nil
	return err
}

// Finish passes the end of a complete response to the receiver.
func (r *ResponseReader) Finish(to Receiver) error {
	section, trailers := r.body.Trailers()
	return to.TakeEnd(r.buf, r.from, r.to, section, trailers)
}

// Closed handles the end of the upstream's connection. pending is set if bytes of an
// incomplete head are left, and cutShort if something other than the upstream may have ended it.
func (r *ResponseReader) Closed(pending, cutShort bool) error {
	switch {
	case r.Phase == ReadHead && !pending:
		return errNoResponse
	case r.Phase == ReadHead:
		return ErrTruncated
	}
	if err := r.body.Closed(); err != nil || cutShort {
		return ErrTruncated
	}
	r.Phase = ReadDone
	return nil
}
