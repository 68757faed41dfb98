package h1

import (
	"errors"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// serveHolder lets a service respond to the holder of a key (admit.Serve), or leaves this to block if the request's body
// must be read first.
func (c *conn) serveHolder(x *exchange) step {
	if !x.ReadsBody() || !x.req.HasBody() {
		return c.respondToHolder(x, nil)
	}
	if x.req.ContentLength() > proxy.MaxHolderBody {
		return c.refuse(x, proxy.BodyTooLarge(proxy.MaxHolderBody))
	}
	return stepBlock
}

// readHolder reads the body of a request of the holder of a key, and responds.
func (c *conn) readHolder(x *exchange) step {
	c.phase.enter(phaseNone, 0)
	body, err := c.holderBody(x)
	why := c.phase.wasCut()
	switch {
	case why != notCut:
		return x.emitNoResponse(why)
	case err == nil:
		x.bodyRead = true
		return c.respondToHolder(x, body)
	case errors.Is(err, errTooLong):
		x.Verdict.Close = true // what is left of it is not read
		return c.refuse(x, proxy.BodyTooLarge(proxy.MaxHolderBody))
	case errors.Is(err, http1.ErrChunk), errors.Is(err, http1.ErrSyntax), errors.Is(err, http1.ErrHead):
		x.Verdict.Close = true
		return c.refuse(x, proxy.MalformedBody(err))
	default: // the client hung up, or stalled
		return x.emitNoResponse(why)
	}
}

// errTooLong is the error of a body of more than proxy.MaxHolderBody bytes.
var errTooLong = errors.New("h1: the body is too long")

// holderBody reads the body of a request with blocking calls.
func (c *conn) holderBody(x *exchange) (body []byte, err error) {
	r := newBodyReader(c, x)
	defer r.free()
	if x.req.ExpectsContinue() && x.after == x.stop && x.req.Minor > 0 {
		if err := c.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
			return nil, err
		}
		r.asked = true
	}
	for !r.rec.Done() {
		if err := r.fill(); err != nil {
			return nil, err
		}
		if body = append(body, r.b.Data[r.from:r.to]...); len(body) > proxy.MaxHolderBody {
			return nil, errTooLong
		}
	}
	return body, nil
}

// respondToHolder responds to the holder of a key. It waits for the service.
func (c *conn) respondToHolder(x *exchange, body []byte) step {
	c.upstream.Store(nil)
	c.phase.enter(phaseWait, 0)
	ctx, done := c.context()
	defer done()
	status, response, err := x.Serve(ctx, body)
	if why := c.phase.enter(phaseNone, 0); why != notCut {
		return x.emitNoResponse(why)
	}
	if err != nil {
		return c.refuse(x, err)
	}
	return c.respond(x, status, response)
}
