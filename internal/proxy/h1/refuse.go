package h1

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/message"
)

// refuseSyntax rejects a malformed head or body. The connection is closed, since it is
// unknown where the next request begins.
func (c *conn) refuseSyntax(x *exchange, err error) step {
	var e *fault.Error
	large := errors.Is(err, http1.ErrTarget) || errors.Is(err, http1.ErrHead)
	switch method := x.neverAllowed(); {
	case large && method != "":
		c.beginUndecided(x)
		x.ask.Method, x.Method = method, method
		c.engine.cfg.Admit.Decide(&x.ask, &x.Verdict)
		return c.refuse(x, x.Verdict.Fault())
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
		c.beginUndecided(x)
	}
	x.Verdict.Close = true
	return c.refuse(x, e)
}

// neverAllowed returns the method of a request whose head cannot be parsed, if that method
// is never allowed (contract, 4.5).
func (x *exchange) neverAllowed() string {
	if x.known {
		return ""
	}
	head := bytes.TrimLeft(x.head, "\r\n")
	for _, method := range [...]string{"TRACE", "CONNECT"} {
		if len(head) > len(method) && string(head[:len(method)]) == method && head[len(method)] == ' ' {
			return method
		}
	}
	return ""
}

// refuseBody rejects a request because of an error in the part of its body that was received with the head. The
// connection is closed, because the end of a chunked body is known only once all of it was read.
func (c *conn) refuseBody(x *exchange, err error) step {
	if err == message.ErrBodyTooLarge { //nolint:errorlint // never wrapped
		x.Verdict.Close = true
		return c.refuse(x, proxy.BodyTooLarge(x.Verdict.Gateway.MaxBodyBytes))
	}
	return c.refuseSyntax(x, err)
}

// refuse responds with the error body of err, without waiting for the request's body.
func (c *conn) refuse(x *exchange, err error) step {
	status, body := x.Respond(err, !x.attempt.Sent())
	return c.respond(x, status, body)
}

// beginUndecided begins the exchange of a request whose head cannot be parsed.
func (c *conn) beginUndecided(x *exchange) {
	x.Client, x.Major, x.Minor = c.client, 1, 1
	x.BeginUndecided(&c.engine.cfg.Config)
}

// respond sends a response of the gateway itself and discards the request's body.
func (c *conn) respond(x *exchange, status int, body []byte) step {
	received := x.in[x.after:x.stop]
	remains := x.known && x.req.HasBody() && !x.bodyRead && !(x.upload != nil && x.upload.complete.Load()) && !(x.bodyTaken && x.body.Done())
	length := x.req.ContentLength()
	if remains && x.req.Chunked() && x.upload == nil && !x.bodyTaken {
		length = chunkedLength(received) // perhaps more than is discarded: then the client must know that the connection closes
	}
	last := x.Verdict.Close || x.attempt.Parted() || c.engine.drain.Announced() || !x.req.KeepAlive() ||
		remains && (x.upload != nil || x.bodyTaken || length < 0 || length > proxy.DrainBytes || x.req.ExpectsContinue() && len(received) == 0)

	buf := c.engine.buffers.Get()
	out := appendStatusLine(buf.Data[:0], status, http1.StatusText(status))
	out = append(append(append(out, "Date: "...), c.engine.clock.Date()...), "\r\n"...)
	if body != nil {
		if own := x.OwnType(); own != "" {
			out = append(append(append(out, "Content-Type: "...), own...), "\r\n"...)
		}
		out = append(out, "Content-Length: "...)
		out = append(strconv.AppendInt(out, int64(len(body)), 10), "\r\n"...)
	}
	switch {
	case last:
		out = append(out, "Connection: close\r\n"...)
	case x.req.Minor == 0:
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	out = x.AppendOwnFields(out)
	out = append(append(append(out, "X-Request-Id: "...), x.RequestID()...), "\r\n"...)
	if x.Verdict.Gateway != nil || x.Verdict.Code != "" {
		out = x.Verdict.AppendFields(out)
	}
	out = append(out, "\r\n"...)
	if x.ask.Method == "HEAD" {
		body = nil
	}
	out = append(out, body...)
	x.Emit(x.endOf(x.Result, status, int64(len(body))))
	err := c.write(out)
	c.engine.buffers.Put(buf)
	why := c.phase.enter(phaseIdle, c.engine.clock.In(idleTime))
	switch {
	case err != nil || why == cutClientClosed:
		return stepClose
	case last || why != notCut:
		return stepLinger
	case !remains:
		return stepIdle
	case int64(len(received)) >= length:
		x.after += int(length)
		return stepIdle
	}
	x.refused = true
	return stepBlock
}

// fail ends an exchange that failed with err: because of its upstream, its client or the second look, or
// because the sweeper has cut it off.
func (c *conn) fail(x *exchange, err error) step {
	c.endUpload(x)
	why := c.phase.enter(phaseNone, 0)
	if x.why != notCut {
		why, err = x.why, nil
	}
	c.dropCall(x)
	lost, begun := x.attempt.Lost(), x.attempt.Open()
	if why == cutTimeout {
		x.attempt.TimedOut()
	}
	err = x.attempt.Fail(err)
	var uploadErr error
	if x.upload != nil {
		uploadErr = x.upload.err
	}
	var denied *proxy.AccessError
	switch {
	case x.responded:
		if uploadErr == nil && !lost && (why == notCut || why == cutTimeout) {
			x.LogBrokenOff(err)
		}
		x.noteCut(why)
		x.emitForwarded()
		return c.abort(x.response.reset)
	case lost || why == cutClientClosed || why == cutShutdown:
		x.emitNoResponse(why)
		return c.abort(x.response.reset)
	case why == cutAccess:
		return c.refuse(x, x.Withdraw(c.denied, !x.attempt.Sent(), x.bytesIn()))
	case errors.As(err, &denied): // at the second look
		return c.refuse(x, x.Withdraw(denied.Result, !x.attempt.Sent(), x.bytesIn()))
	case errors.Is(uploadErr, message.ErrBodyTooLarge):
		x.Verdict.Close = true // as in refuseBody
		return c.refuse(x, proxy.BodyTooLarge(x.Verdict.Gateway.MaxBodyBytes))
	case errors.Is(uploadErr, http1.ErrChunk), errors.Is(uploadErr, http1.ErrSyntax), errors.Is(uploadErr, http1.ErrHead):
		x.Verdict.Close = true
		return c.refuse(x, proxy.MalformedBody(uploadErr))
	case uploadErr != nil: // the client hung up, or stalled
		return x.emitNoResponse(why)
	case why == cutTimeout:
		return c.refuse(x, proxy.TimedOut(err))
	case !begun && errors.As(err, new(*fault.Error)):
		return c.refuse(x, err)
	}
	return c.refuse(x, proxy.Unreachable(err))
}
