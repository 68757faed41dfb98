package h1

import (
	"errors"
	"slices"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
)

// validates reports whether the request is to be held against the document of its gateway.
func (x *exchange) validates() bool {
	return (x.Verdict.Action == admit.Forward || x.Verdict.Action == admit.Respond) && x.Validates()
}

// validate holds a request against the document of its gateway, with its body if need be. Then it goes on with it.
func (c *conn) validate(x *exchange) step {
	c.upstream.Store(nil)
	c.phase.enter(phaseWait, 0)
	ctx, done := c.context()
	length := int64(0)
	if x.req.HasBody() {
		length = x.req.ContentLength()
	}
	err := x.BeginCheck(ctx, x.ask.Method, proxy.Head{Fields: x.req.Fields(), Text: x.head, Named: x.req.Named()}, length)
	stopped := ctx.Err() != nil
	done()
	if why := c.phase.enter(phaseNone, 0); stopped || why != notCut {
		return x.emitNoResponse(why)
	}
	if err != nil {
		return c.refuse(x, err)
	}
	var body []byte
	end := x.after
	if x.Check().WantsBody() {
		body, end, err = c.holdBody(x)
		if why := c.phase.wasCut(); why != notCut {
			return x.emitNoResponse(why)
		}
		switch {
		case err == nil:
		case errors.Is(err, http1.ErrChunk), errors.Is(err, http1.ErrSyntax), errors.Is(err, http1.ErrHead):
			x.Verdict.Close = true
			return c.refuse(x, proxy.MalformedBody(err))
		default: // the client hung up, or stalled
			return x.emitNoResponse(notCut)
		}
	}
	if err := x.EndCheck(body); err != nil {
		if end > x.after { // the whole body has come
			x.after, x.bodyRead = end, true
		}
		return c.refuse(x, err)
	}
	if x.Verdict.Action == admit.Respond {
		if end > x.after {
			x.after, x.bodyRead = end, true
		}
		status, response := x.RespondByRoute()
		return c.respond(x, status, response)
	}
	if next := c.forward(x); next != stepBlock || x.refused {
		return next
	}
	return c.exchange(x)
}

// holdBody receives the body of a request, which stays in the input as it came, with blocking calls. It stops when the check does not
// want more of it: end is then not behind x.after, and body nil. Otherwise the input behind the body begins at end.
func (c *conn) holdBody(x *exchange) (body []byte, end int, err error) {
	if x.req.ExpectsContinue() && x.after == x.stop && x.req.Minor > 0 {
		x.continued = true
		if err := c.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return nil, x.after, err
		}
	}
	if !x.req.Chunked() {
		return c.holdLength(x, int(x.req.ContentLength()))
	}
	var decoder message.Decoder
	decoder.Start(http1.ByChunks, 0)
	b := c.engine.buffers.Get()
	defer c.engine.buffers.Put(b)
	for at := x.after; !decoder.Done(); {
		if at == x.stop {
			if err := c.receiveHeld(x, inputSize); err != nil {
				return nil, x.after, err
			}
		}
		n := copy(b.Area(), x.in[at:x.stop])
		p, err := decoder.Decode(b.Data, message.Front, message.Front+n)
		if err != nil {
			return nil, x.after, err
		}
		body = append(body, b.Data[p.From:p.To]...)
		if at += n; decoder.Done() {
			at += p.Used - message.Front - n
		}
		end = at
		if bound := x.Verdict.Gateway.MaxBodyBytes; bound > 0 && decoder.Moved() > bound { // forwarding refuses it
			return nil, x.after, nil
		}
		if !x.Check().Hold(decoder.Moved(), int64(len(body)+at-x.after)) {
			return nil, x.after, nil
		}
	}
	return body, end, nil
}

// holdLength is holdBody for a body with a declared length, which is then part of the input.
func (c *conn) holdLength(x *exchange, length int) (body []byte, end int, err error) {
	for {
		size := min(x.stop-x.after, length)
		if !x.Check().Hold(int64(size), int64(size)) {
			return nil, x.after, nil
		}
		if size == length {
			return x.in[x.after : x.after+length : x.after+length], x.after + length, nil
		}
		if err := c.receiveHeld(x, length-size); err != nil {
			return nil, x.after, err
		}
	}
}

// receiveHeld receives a further part, of at most so many bytes, of a body that is held. What has come stays where it is, because the head
// is there too.
func (c *conn) receiveHeld(x *exchange, most int) error {
	if x.stop >= len(x.in)-1 { // free space stays: see input.space
		grown := make([]byte, 2*len(x.in))
		copy(grown, x.in[:x.stop])
		x.in = grown
	}
	space := x.in[x.stop : len(x.in)-1]
	space = space[:min(len(space), most)]
	c.reading.enter(phaseReading, c.engine.clock.In(stallTime))
	n, err := c.nc.Read(space)
	c.reading.enter(phaseNone, 0)
	if n == 0 {
		return readError(err)
	}
	x.stop += n
	return nil
}

// dropHeld gives up a body that was held, once nothing of it is sent any more.
func (x *exchange) dropHeld() {
	x.ReleaseBody()
	if len(x.in) <= inputSize || x.upload != nil || !x.body.Done() {
		return // an upload may still use it
	}
	rest := slices.Clone(x.in[x.after:x.stop])
	x.in = make([]byte, max(inputSize, len(rest)+1))
	x.start, x.after, x.stop = 0, 0, copy(x.in, rest)
}

// shrink gives up the memory of a body that was held, between two requests.
func (i *input) shrink() {
	if n := i.stop - i.start; len(i.in) > 2*inputSize && n < inputSize {
		rest := i.in[i.start:i.stop]
		i.in = i.own[:]
		i.start, i.stop = 0, copy(i.in, rest)
	}
}
