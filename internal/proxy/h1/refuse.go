package h1

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/ratelimit"
)

// request decides on a request whose head is complete, and does what the
// decision says.
func (c *conn) request(x *exchange) step {
	x.known, x.answered, x.taken, x.course = true, false, false, course{}
	h := x.head
	x.ask = admit.Request{Method: text(x.req.Method.Of(h)), Target: text(x.req.Target.Of(h))}
	fields := x.req.Fields()
	for i := range fields {
		f := &fields[i]
		switch f.ID {
		case http1.Host:
			x.ask.Host = text(f.Value.Of(h))
		case http1.Authorization:
			if x.ask.Authorizations++; x.ask.Authorizations == 1 {
				x.ask.Authorization = text(f.Value.Of(h))
			}
		case http1.Origin:
			x.ask.Origin = text(f.Value.Of(h))
		case http1.AccessControl:
			x.ask.PreflightMethod = text(f.Value.Of(h))
		}
	}
	c.engine.cfg.Admit.Decide(&x.ask, &x.verdict)
	x.course.open(x.verdict.Now)
	x.name()
	if x.verdict.Action == admit.Wait {
		if next := c.awaitCap(x); next != stepReady {
			return next
		}
	}
	switch x.verdict.Action {
	case admit.Forward:
		return c.forward(x)
	case admit.Preflight:
		x.course.decision = accesslog.Preflight
		return c.answer(x, http.StatusNoContent, nil)
	default:
		return c.refuse(x, x.verdict.Fault())
	}
}

// name gives the request its identifier.
func (x *exchange) name() {
	x.course.id = x.c.engine.cfg.NewRequestID(x.course.began.Wall / int64(time.Millisecond))
	x.id = id.Append(x.idRoom[:0], id.Request, x.course.id)
}

// awaitCap decides again until the daily cap of the route has told. It returns
// stepReady once the verdict can be acted on.
func (c *conn) awaitCap(x *exchange) step {
	c.up.Store(nil)
	c.main.enter(phaseWait, 0)
	ctx, done := c.context()
	defer done()
	for x.verdict.Action == admit.Wait {
		if err := c.engine.cfg.Admit.Wait(ctx, &x.verdict); err != nil {
			if ctx.Err() != nil {
				return c.gone(x, c.main.enter(phaseNone, 0))
			}
			return c.fail(x, err)
		}
		c.engine.cfg.Admit.Decide(&x.ask, &x.verdict)
	}
	c.main.enter(phaseNone, 0)
	x.course.sent = c.engine.cfg.Mono()
	return stepReady
}

// refuseSyntax answers what is no request, or a body that is none. What follows
// on the connection cannot be read.
func (c *conn) refuseSyntax(x *exchange, err error) step {
	var e *fault.Error
	large := errors.Is(err, http1.ErrTarget) || errors.Is(err, http1.ErrHead)
	switch method := x.neverAllowed(); {
	case large && method != "":
		c.unread(x)
		x.ask.Method = method
		c.engine.cfg.Admit.Decide(&x.ask, &x.verdict)
		return c.refuse(x, x.verdict.Fault())
	case errors.Is(err, http1.ErrTarget):
		e = proxy.TargetTooLong()
	case errors.Is(err, http1.ErrHead):
		e = proxy.HeadTooLarge()
	case errors.Is(err, http1.ErrVersion):
		e = proxy.VersionNotSupported()
	default:
		e = proxy.Malformed("it does not follow the syntax of HTTP/1.1")
	}
	if !x.known {
		c.unread(x)
	}
	x.verdict.Close = true
	return c.refuse(x, e)
}

// neverAllowed returns the method of a request whose head cannot be read, if it
// is one that is refused whatever the rest says.
func (x *exchange) neverAllowed() string {
	if x.known {
		return ""
	}
	head := bytes.TrimLeft(x.head, "\r\n")
	for _, method := range [...]string{http.MethodTrace, http.MethodConnect} {
		if len(head) > len(method) && string(head[:len(method)]) == method && head[len(method)] == ' ' {
			return method
		}
	}
	return ""
}

// refuse answers with the error body of err, without waiting for the request's
// body.
func (c *conn) refuse(x *exchange, err error) step {
	status, body := fault.Response(err, string(x.id))
	x.course.failed(&x.verdict, err)
	return c.answer(x, status, body)
}

// unread makes x the exchange of what is no request: all that is known of it is
// that it came.
func (c *conn) unread(x *exchange) {
	x.verdict, x.ask, x.answered, x.taken, x.course = admit.Verdict{}, admit.Request{}, false, false, course{}
	x.course.open(ratelimit.Instant{Wall: time.Now().UnixNano(), Mono: c.engine.cfg.Mono()})
	x.name()
}

// answer sends an answer of the gateway's own and disposes of the request's
// body.
func (c *conn) answer(x *exchange, status int, body []byte) step {
	received := int64(x.end - x.after)
	remains := x.known && x.req.HasBody() && !(x.upload != nil && x.upload.complete.Load()) && !(x.taken && x.body.done)
	length := x.req.ContentLength()
	last := x.verdict.Close || c.engine.draining.Load() || !x.req.KeepAlive() ||
		remains && (x.upload != nil || x.taken || length > proxy.DrainBytes || x.req.ExpectsContinue() && received == 0)

	if x.buf == nil {
		x.buf = c.engine.pools.buffer()
	}
	out := appendStatusLine(x.buf[:0], status, http.StatusText(status))
	out = append(append(append(out, "Date: "...), *c.engine.clock.date.Load()...), "\r\n"...)
	if body != nil {
		out = append(out, "Content-Type: application/json\r\nContent-Length: "...)
		out = append(strconv.AppendInt(out, int64(len(body)), 10), "\r\n"...)
	}
	switch {
	case last:
		out = append(out, "Connection: close\r\n"...)
	case x.req.Minor == 0:
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	out = append(append(append(out, "X-Request-Id: "...), x.id...), "\r\n"...)
	if x.verdict.Gateway != nil || x.verdict.Code != "" {
		out = x.verdict.AppendFields(out)
	}
	out = append(out, "\r\n"...)
	if x.ask.Method == http.MethodHead {
		body = nil
	}
	out = append(out, body...)
	c.answered(x, status, len(body))
	err := c.write(out)
	x.dropBuffer()
	why := c.main.enter(phaseIdle, c.engine.clock.in(idleTime))
	switch {
	case err != nil || why == cutGone:
		return stepClose
	case last || why != notCut:
		return stepLinger
	case !remains:
		return stepIdle
	case !x.req.Chunked() && received >= length:
		x.after += int(length)
		return stepIdle
	}
	x.mode = modeDrain
	return stepBlock
}

// fail answers a request that was not refused by a check but could not be
// served, and logs why.
func (c *conn) fail(x *exchange, err error) step {
	c.log(x, "request failed", err)
	return c.refuse(x, err)
}

// broken ends an exchange that its upstream, its client or the sweeper ended.
func (c *conn) broken(x *exchange, err error) step {
	up := x.up
	c.endUpload(x)
	why := c.main.enter(phaseNone, 0)
	up.Discard()
	x.up = nil
	x.dropBuffer()
	var uploadErr error
	if x.upload != nil {
		uploadErr = x.upload.err
	}
	switch {
	case x.answered:
		if uploadErr == nil && x.clientErr == nil && why != cutGone && why != cutDrain {
			c.log(x, "the upstream broke off", err)
		}
		c.forwarded(x)
		return c.abort(x.relay.reset)
	case x.clientErr != nil || why == cutGone || why == cutDrain:
		c.gone(x, why)
		return c.abort(x.relay.reset)
	case errors.Is(uploadErr, errBodyTooLarge):
		return c.refuse(x, proxy.BodyTooLarge(x.verdict.Gateway.MaxBodyBytes))
	case errors.Is(uploadErr, http1.ErrChunk), errors.Is(uploadErr, http1.ErrSyntax), errors.Is(uploadErr, http1.ErrHead):
		x.verdict.Close = true
		return c.refuse(x, proxy.MalformedBody(uploadErr))
	case uploadErr != nil: // the client left, or stalled
		return c.gone(x, why)
	case why == cutLate:
		return c.fail(x, proxy.TimedOut(err))
	}
	return c.fail(x, unanswered(err))
}

// unanswered returns the public error for an upstream that gave no response, or none that
// can be relayed.
func unanswered(err error) error {
	var public *fault.Error
	switch {
	case errors.As(err, &public):
		return public
	case errors.Is(err, http1.ErrSyntax), errors.Is(err, http1.ErrVersion), errors.Is(err, http1.ErrHead), errors.Is(err, http1.ErrChunk):
		return proxy.BadResponse(err)
	}
	return proxy.Unreachable(err)
}

// log writes one line about the request: never a field of it, never its query.
func (c *conn) log(x *exchange, message string, err error) {
	args := []any{"request_id", string(x.id), "method", string(x.req.Method.Of(x.head)), "path", x.verdict.Path, "error", err}
	if g := x.verdict.Gateway; g != nil {
		args = append(args, "gateway_id", g.ID)
	}
	if r := x.verdict.Route; r != nil {
		args = append(args, "route_id", r.ID)
	}
	if k := x.verdict.Key; k != nil {
		args = append(args, "key_id", k.ID())
	}
	c.engine.cfg.Log.Warn(message, args...)
}
