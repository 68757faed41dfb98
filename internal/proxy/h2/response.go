package h2

import (
	"errors"
	"io"
	"strconv"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/send"
)

// TakeInterim implements message.Receiver: it relays a 1xx response. An upstream may send any number of them, so it waits
// until the client has taken most of what was sent before.
func (s *stream) TakeInterim(head []byte, r *http1.Response) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Status == http1.StatusContinue {
		s.continueAt = 0
		if s.continued {
			return nil // the client already has one
		}
		s.continued = true
	}
	s.awaitRoom()
	if s.why != notCut || !s.beginHead(r.Status) {
		return errCut
	}
	proxy.EachResponseField(head, r, proxy.ResponseDrop(r.Status, false), proxy.Hidden(&s.Verdict), func(f *http1.Field) {
		s.pass(f, head)
	})
	c.proto.EndHead(false)
	c.flushLocked()
	return nil
}

// pass passes on a field of the upstream's response. conn.mu is held.
func (s *stream) pass(f *http1.Field, head []byte) {
	value, changed := s.attempt.Links().Readdress(f, head)
	if !changed {
		value = f.Value.Of(head)
	}
	s.conn.proto.Field(f.Name.Of(head), value, false)
}

// beginHead begins the head of a response. It reports false if the client has reset the
// stream. conn.mu is held.
func (s *stream) beginHead(status int) bool {
	proto := s.conn.proto
	if !proto.BeginHead(s.id) {
		return false
	}
	var room [3]byte
	proto.Field([]byte(":status"), strconv.AppendInt(room[:0], int64(status), 10), false)
	return true
}

// TakeHead implements message.Receiver: it sends the final head with the data or the end that
// follows.
func (s *stream) TakeHead(head []byte, r *http1.Response, body http1.Framing) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.sendHead(head, r, body)
}

// sendHead is TakeHead with conn.mu held.
func (s *stream) sendHead(head []byte, r *http1.Response, body http1.Framing) error {
	status, drop := r.Status, proxy.ResponseDrop(r.Status, s.Verdict.AllowOrigin != "")
	accepted := false
	switch {
	case status == http1.StatusSwitchingProtocols:
		if !s.tunnels || !send.AcceptsWebSocket(head, r, s.key) {
			return proxy.BadUpgrade()
		}
		status, accepted = http1.StatusOK, true // RFC 8441, 5
	case s.tunnels && status < 300:
		if !s.calling { // a 200 would look to the client like an accepted WebSocket
			return proxy.NoWebSocket()
		}
	}
	c := s.conn
	s.MarkResponse(head, r)
	s.attempt.NoteHead(head, r)
	s.deadline, s.continueAt = 0, 0
	if s.why != notCut {
		return errCut
	}
	empty := !accepted && s.isEmpty(r, body)
	if empty {
		s.ReadEnd(nil, nil, nil)
		s.emitForwarded(status, 0)
	}
	if !s.beginHead(status) {
		return errCut
	}
	kept := proxy.EachResponseField(head, r, drop, proxy.Hidden(&s.Verdict), func(f *http1.Field) {
		if accepted && send.IsWebSocketAccept(f.Name.Of(head)) {
			return
		}
		s.pass(f, head)
	})
	if !kept.Has(http1.Date) {
		c.proto.Field([]byte("date"), c.engine.clock.Date(), false)
	}
	if !empty && s.req.WantsTrailers() {
		if names := proxy.AppendTrailerList(nil, head, r.Fields(), true, proxy.Hidden(&s.Verdict)); len(names) > 0 {
			c.proto.Field([]byte("trailer"), names, false)
		}
	}
	proxy.EachSetOnResponse(&s.Verdict, s.RequestID(), func(name, value string) { c.proto.FieldString(name, value, false) })
	s.ownFields()
	c.proto.EndHead(empty)
	s.headed = true
	if empty {
		s.end()
	}
	return nil
}

// ownFields adds the fields that every response carries. conn.mu is held.
func (s *stream) ownFields() {
	proto := s.conn.proto
	proto.FieldString("x-request-id", s.RequestID(), false)
	if s.Verdict.Gateway == nil && s.Verdict.Code == "" {
		return // there is no verdict
	}
	s.Verdict.EachField(s.scratch[:], func(name string, value []byte) {
		proto.Field([]byte(name), value, false)
	})
}

// TakeData implements message.Receiver.
func (s *stream) TakeData(buf []byte, from, to int) error {
	c := s.conn
	s.ReadData(buf[from:to])
	c.mu.Lock()
	defer c.mu.Unlock()
	s.streaming = true
	err := s.send(buf[from:to], false)
	c.flushLocked()
	s.Passed(0, s.bytesOut())
	return err
}

// TakeEnd implements message.Receiver.
func (s *stream) TakeEnd(buf []byte, from, to int, section []byte, trailers []http1.Field) error {
	s.ReadEnd(buf[from:to], section, trailers)
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.sendEnd(buf[from:to], section, trailers, false)
}

// sendEnd is TakeEnd with conn.mu held. Unless fits says that the client's windows have room for
// the data, it releases conn.mu while it waits.
func (s *stream) sendEnd(data, section []byte, trailers []http1.Field, fits bool) error {
	c := s.conn
	if s.finished { // with the head
		return nil
	}
	s.emitForwarded(s.statusOut(), s.bytesOut())
	some, hidden := false, proxy.Hidden(&s.Verdict)
	if s.req.WantsTrailers() {
		some = proxy.EachTrailer(section, trailers, true, hidden, func(*http1.Field) {})
	}
	if fits {
		if _, ok := c.proto.Data(s.id, data, !some); !ok {
			return errCut
		}
	} else if err := s.send(data, !some); err != nil {
		return err
	}
	if some {
		if !c.proto.BeginHead(s.id) {
			return errCut
		}
		proxy.EachTrailer(section, trailers, true, hidden, func(f *http1.Field) { c.proto.Field(f.Name.Of(section), f.Value.Of(section), false) })
		c.proto.EndHead(true)
	}
	s.end()
	return nil
}

// CanSplice implements message.Receiver.
func (s *stream) CanSplice() bool { return false }

// Splice implements message.Receiver.
func (s *stream) Splice(*io.LimitedReader) (int64, error) { return 0, errors.ErrUnsupported }

// send sends data of the response's body, as fast as the client accepts it. conn.mu is held,
// and released while it waits, for which proxy.Bodies counts the memory of the response.
func (s *stream) send(b []byte, end bool) error {
	c := s.conn
	stalled := 0
	defer func() {
		s.writing.since = 0
		c.bodies.GiveResponse(stalled)
	}()
	for {
		if s.why != notCut || c.ended != notCut {
			return errCut
		}
		if room := maxOut - c.proto.Pending(); room > 0 {
			piece := b[:min(len(b), room)]
			n, ok := c.proto.Data(s.id, piece, end && len(piece) == len(b))
			if !ok {
				return errCut
			}
			b = b[n:]
			s.progressed(n)
			if len(b) == 0 {
				return nil
			}
		}
		if !c.flushing {
			c.flushLocked()
			if c.proto.Window(s.id) > 0 {
				continue
			}
		}
		if s.writing.since == 0 {
			s.writing = progress{since: c.engine.clock.Now()}
		}
		if n := s.unsentBytes(); stalled == 0 && s.why == notCut {
			if !c.bodies.TakeResponse(n) {
				s.cut(cutCrowded)
				return errCut
			}
			stalled = n
		}
		if s.why == notCut && c.ended == notCut {
			s.await()
		}
	}
}

// unsentBytes returns how much memory a response takes while its client takes nothing.
func (s *stream) unsentBytes() int {
	switch {
	case s.calling:
		return callBytes
	case s.tunnels:
		return readSize
	}
	return tripBytes
}

// The memory of a response while its client takes nothing, in bytes: what has arrived over HTTP/2 is in up to two buffers, and
// what has arrived over HTTP/1.1 in one.
const (
	callBytes = 2 * 84 << 10
	tripBytes = 66 << 10
)

// awaitRoom waits while too much output waits to be sent to the client. conn.mu is held, and released while it waits.
func (s *stream) awaitRoom() {
	c := s.conn
	defer func() { s.writing.since = 0 }()
	for c.proto.Pending() >= maxOut && s.why == notCut && c.ended == notCut {
		if !c.flushing {
			c.flushLocked()
			continue
		}
		if s.writing.since == 0 {
			s.writing = progress{since: c.engine.clock.Now()}
		}
		c.room.Wait()
	}
}

// await waits until more may be sent. conn.mu is held.
func (s *stream) await() {
	c := s.conn
	if c.proto.Window(s.id) > 0 { // what others have appended must be sent first
		c.room.Wait()
		return
	}
	s.wake.Wait()
}

// progressed notes that n more bytes could be sent to the client. conn.mu is held.
func (s *stream) progressed(n int) {
	if s.writing.since == 0 {
		return
	}
	if s.writing.bytes += n; s.writing.bytes >= stallBytes {
		s.writing = progress{since: s.conn.engine.clock.Now()}
	}
}

// emitForwarded emits the record of a request to which the upstream has responded. conn.mu is
// held.
func (s *stream) emitForwarded(status int, bytes int64) {
	e := proxy.End{Result: accesslog.Forwarded, Status: status, BytesIn: s.forwarded, BytesOut: bytes}
	if !s.streaming && !s.hasBody {
		e.At = s.ResponseAt()
	}
	s.Emit(e)
}

// fail ends an exchange that failed. conn.mu is held.
func (s *stream) fail(err error) {
	why := s.why
	var denied *proxy.AccessError
	switch {
	case s.finished: // the record was emitted
		s.free()
		return
	case s.headed:
		if why == notCut && !s.attempt.Lost() {
			s.LogBrokenOff(err)
		}
		if why == cutAccess {
			s.CutBy(s.denied)
		}
		s.emitForwarded(s.statusOut(), s.bytesOut())
		if why == cutAccess && s.denied == accesslog.Unreachable && s.endGRPC() {
			return
		}
		s.reset(codeOf(why))
		s.free()
		return
	case why == cutAccess:
		err = s.Withdraw(s.denied, !s.attempt.Sent(), s.forwarded)
	case why == notCut && errors.As(err, &denied): // at the second look
		err = s.Withdraw(denied.Result, !s.attempt.Sent(), s.forwarded)
	case why == cutBody:
		err = proxy.BodyTooLarge(s.Verdict.Gateway.MaxBodyBytes)
	case why == cutCrowded:
		err = proxy.TooManyBodies()
	case why == cutTimeout, why == cutDeadline, why == notCut && s.failedLate(err):
		err = proxy.TimedOut(err)
	case why == cutPanicked:
		err = proxy.Panicked()
	case why != notCut: // there is nobody to respond to
		s.EmitNoResponse(why == cutShutdown, s.forwarded)
		s.reset(codeOf(why))
		s.free()
		return
	case !errors.As(err, new(*fault.Error)):
		err = proxy.Unreachable(err)
	}
	s.why = notCut // the response goes out
	s.refuse(err)
}

// endGRPC ends a gRPC call whose response has begun, because its target was taken away, with trailers. It reports whether the
// exchange is one. The caller must not use the stream any more then. conn.mu is held.
func (s *stream) endGRPC() bool {
	proto := s.conn.proto
	if !proxy.IsGRPC(s.contentType()) || !proto.BeginHead(s.id) {
		return false
	}
	err := proxy.TargetGone()
	proto.FieldString("grpc-status", strconv.Itoa(proxy.GRPCStatus(err.Code.Status())), false)
	proto.FieldString("grpc-message", proxy.GRPCMessage(fault.MessageOf(err)), false)
	proto.EndHead(true)
	s.why, s.finished = notCut, true
	s.dropBody()
	return true
}

// failedLate reports whether err is the failure of an upstream that ended a gRPC call after its time.
func (s *stream) failedLate(err error) bool {
	code := fault.CodeOf(err)
	return s.Late() && (code == fault.UpstreamUnreachable || code == fault.Internal) // Internal: it has no code yet
}

// codeOf returns the code with which a stream is reset.
func codeOf(why cut) http2.Code {
	switch why {
	case cutStalled, cutReset, cutClientClosed, cutAccess, cutDeadline: // after its deadline, a gRPC client reports CANCEL as DEADLINE_EXCEEDED
		return http2.Cancel
	case cutCrowded:
		return http2.EnhanceYourCalm
	default:
		return http2.InternalError
	}
}

// preflight responds to a CORS preflight. conn.mu is held.
func (s *stream) preflight() {
	s.Result = accesslog.Preflight
	s.respond(http1.StatusNoContent, nil)
}

// refuse responds with the error body of err, without waiting for the request's body, and ends the
// stream, which the caller must not use any more. conn.mu is held.
func (s *stream) refuse(err error) {
	s.since = 0
	status, body := s.Respond(err, !s.attempt.Sent())
	if !proxy.IsGRPC(s.contentType()) {
		s.respond(status, body)
		return
	}
	proto := s.conn.proto
	s.emitOwn(status, 0)
	if s.beginHead(http1.StatusOK) {
		proto.FieldString("content-type", "application/grpc", false)
		proto.Field([]byte("date"), s.conn.engine.clock.Date(), false)
		proto.FieldString("grpc-status", strconv.Itoa(proxy.GRPCStatus(status)), false)
		proto.FieldString("grpc-message", proxy.GRPCMessage(fault.MessageOf(err)), false)
		s.ownFields()
		proto.EndHead(true)
	}
	s.finished = true
	s.dropBody()
}

// contentType returns the Content-Type of the request.
func (s *stream) contentType() string {
	if value, n := s.HeaderValue("content-type"); n > 0 {
		return value
	}
	return proxy.Text(s.req.LateType.Of(s.req.Text))
}

// respond sends a response of the gateway itself. conn.mu is held.
func (s *stream) respond(status int, body []byte) {
	proto := s.conn.proto
	if s.ask.Method == "HEAD" {
		s.emitOwn(status, 0)
	} else {
		s.emitOwn(status, len(body))
	}
	if s.beginHead(status) {
		proto.Field([]byte("date"), s.conn.engine.clock.Date(), false)
		if body != nil {
			proto.FieldString("content-type", s.OwnType(), false)
			proto.FieldString("content-length", strconv.Itoa(len(body)), false)
		}
		s.ownFields()
		whole := len(body) == 0 || s.ask.Method == "HEAD"
		proto.EndHead(whole)
		if !whole {
			s.finishOwn(body)
			return
		}
	}
	s.finished = true
	s.dropBody()
}

// finishOwn sends the body of the gateway's own response, or resets the stream if the client has
// left no room for these few hundred bytes.
func (s *stream) finishOwn(body []byte) {
	if n, ok := s.conn.proto.Data(s.id, body, true); ok && n < len(body) {
		s.reset(http2.EnhanceYourCalm)
	}
	s.finished = true
	s.dropBody()
}

func (s *stream) emitOwn(status, bytes int) {
	s.Emit(proxy.End{Result: s.Result, Status: status, BytesIn: s.forwarded, BytesOut: int64(bytes)})
}

// dropBody frees a stream that has its response. If the request's body is still arriving it
// is discarded for a while first: some clients drop a response whose stream is reset at once,
// and others do not end a refused body before the stream ends. The client of a long body gets no
// more window, so it may send no more than it was allowed already. conn.mu is held.
func (s *stream) dropBody() {
	if s.ended || !s.hasBody || s.why != notCut || !s.hold() {
		s.free()
		return
	}
	s.discard, s.discarded = true, 0
	s.unasked = s.expects || s.req.ContentLength() > proxy.DrainBytes
	if n := len(s.in); n > 0 {
		s.drop(n)
		s.in = s.in[:0]
	}
	s.lingerTill = s.conn.engine.clock.In(lingerStream)
}

// drop discards n bytes of the body. conn.mu is held.
func (s *stream) drop(n int) {
	s.discarded += n
	if !s.unasked {
		s.conn.proto.Consumed(s.id, n)
	}
}
