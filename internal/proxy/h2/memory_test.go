package h2

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// inMemory makes an engine exchange its requests with a handler, without sockets, so that the time of
// a test can be virtual.
func inMemory(e *Engine, handler http.HandlerFunc) {
	e.exchange = func(s *stream) error { return s.serveBy(handler) }
}

// serveBy serves an admitted request by a handler.
func (s *stream) serveBy(handler http.HandlerFunc) error {
	c := s.conn
	ctx, done := s.context()
	defer done()
	c.mu.Lock()
	s.since = c.engine.clock.Now()
	c.mu.Unlock()
	w := &writer{conn: c, stream: s, header: make(http.Header)}
	w.body.conn, w.body.stream = c, s
	r := (&http.Request{Method: s.ask.Method, URL: &url.URL{Path: s.ask.Target}, Header: http.Header{}, Body: http.NoBody}).WithContext(ctx)
	if s.hasBody {
		r.Body, r.ContentLength = &w.body, s.req.ContentLength()
	}
	func() {
		defer w.end()
		handler(w, r)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.finish() != nil {
		s.reset(codeOf(s.why))
	}
	s.end()
	return nil
}

// errStopped is the error of reading a request's body after its exchange, or after a read
// deadline.
var errStopped = errors.New("h2: the body is not read any more")

// bodyReader is the body of a request. It may be used after the request: then it does not touch the
// stream, which serves another request.
type bodyReader struct {
	conn    *conn
	stream  *stream // not used once stopped is set
	stopped bool    // conn.mu
	timer   *time.Timer
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	s, c := b.stream, b.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for !b.stopped && len(s.in) == 0 && !s.ended && s.why == notCut {
		s.wake.Wait()
	}
	switch {
	case b.stopped:
		return 0, errStopped
	case s.why != notCut:
		return 0, errCut
	case len(s.in) == 0:
		return 0, io.EOF
	}
	n := copy(p, s.in)
	s.in = s.in[:copy(s.in, s.in[n:])]
	c.proto.Consumed(s.id, n)
	c.flushLocked()
	return n, nil
}

// Close does nothing: the rest of the body is discarded with the stream.
func (b *bodyReader) Close() error { return nil }

// stop makes reads fail, also one in progress.
func (b *bodyReader) stop() {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	b.stopLocked()
}

func (b *bodyReader) stopLocked() {
	if b.stopped {
		return
	}
	b.stopped = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.stream.wake.Broadcast()
}

// writer is an http.ResponseWriter for a stream. It supports what http.ResponseController
// needs, except Hijack.
type writer struct {
	conn   *conn
	stream *stream // not used once over is set
	header http.Header
	body   bodyReader
	status int   // of the final head; 0 before WriteHeader
	left   int64 // of a body with a length, or -1
	over   bool  // the handler has returned: deadlines have no effect
}

// end makes sure that nobody else uses the stream through w any more.
func (w *writer) end() {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	w.over = true
	w.body.stopLocked()
}

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. It sends an interim response at once, and a
// final head with what follows.
func (w *writer) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	if status >= 200 {
		w.status = status
		return
	}
	c := w.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.over && w.stream.beginHead(status) {
		w.fields(func(name string) bool { return name == "Content-Length" })
		c.proto.EndHead(false)
		c.flushLocked()
	}
}

// fields adds the fields of the header, except those for whose names skip returns true.
// conn.mu is held.
func (w *writer) fields(skip func(name string) bool) {
	for name, values := range w.header {
		if skip(name) {
			continue
		}
		for _, value := range values {
			w.stream.conn.proto.FieldString(name, value, false)
		}
	}
}

// head sends the final head. conn.mu is held.
func (w *writer) head(end bool) error {
	s := w.stream
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if s.headed {
		return nil
	}
	w.left = -1
	if values := w.header["Content-Length"]; len(values) == 1 {
		if n, err := strconv.ParseUint(values[0], 10, 62); err == nil {
			w.left = int64(n)
		}
	}
	if s.why != notCut || !s.beginHead(w.status) {
		return errCut
	}
	w.fields(func(string) bool { return false })
	if _, given := w.header["Date"]; !given {
		s.conn.proto.Field([]byte("date"), s.conn.engine.clock.Date(), false)
	}
	s.conn.proto.EndHead(end)
	s.headed = true
	return nil
}

// Write implements http.ResponseWriter. It returns when the client's windows have let all of p
// be sent.
func (w *writer) Write(p []byte) (int, error) {
	c := w.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.over {
		return 0, errCut
	}
	if err := w.head(false); err != nil {
		return 0, err
	}
	if w.bodiless() {
		return 0, http.ErrBodyNotAllowed
	}
	if w.left >= 0 {
		if int64(len(p)) > w.left {
			return 0, http.ErrContentLength
		}
		w.left -= int64(len(p))
	}
	if err := w.stream.send(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// bodiless reports whether the response can have no body.
func (w *writer) bodiless() bool {
	return w.stream.ask.Method == http.MethodHead || w.status == http.StatusNoContent || w.status == http.StatusNotModified
}

// FlushError sends what was written.
func (w *writer) FlushError() error {
	c := w.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.over {
		return errCut
	}
	if err := w.head(false); err != nil {
		return err
	}
	c.flushLocked()
	if w.stream.why != notCut {
		return errCut
	}
	return nil
}

// Flush is FlushError.
func (w *writer) Flush() { _ = w.FlushError() }

// EnableFullDuplex does nothing: every stream is full duplex.
func (w *writer) EnableFullDuplex() error { return nil }

// SetReadDeadline bounds reads of the request's body.
func (w *writer) SetReadDeadline(t time.Time) error {
	c := w.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &w.body
	if b.timer != nil {
		b.timer.Stop()
	}
	switch {
	case t.IsZero() || w.over:
	case !t.After(time.Now()):
		b.stopLocked()
	default:
		b.timer = time.AfterFunc(time.Until(t), b.stop)
	}
	return nil
}

// SetWriteDeadline ends writes. Only a time in the past has an effect: a write that makes no
// progress is ended by the engine.
func (w *writer) SetWriteDeadline(t time.Time) error {
	c := w.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !t.IsZero() && !w.over && !t.After(time.Now()) {
		w.stream.cut(cutStalled)
	}
	return nil
}

// finish sends the end of the response. conn.mu is held.
func (w *writer) finish() error {
	s := w.stream
	if !s.headed {
		return w.head(true)
	}
	if w.left > 0 && !w.bodiless() {
		return io.ErrUnexpectedEOF
	}
	return s.send(nil, true)
}
