package h1

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

const (
	// adapterPiece is the largest single write, in bytes. A client that does not accept one
	// within adapterStall has stalled.
	adapterPiece = 16 << 10
	adapterStall = 30 * time.Second
)

// adapter is an http.ResponseWriter on a connection of the engine. It supports all of
// http.ResponseController. It is full duplex: a response never waits for the request's
// body.
type adapter struct {
	f      *bridge
	header http.Header
	buf    *bytes.Buffer // not sent yet

	status    int  // of the final head; 0 before WriteHeader
	headed    bool // the final head is in buf, or sent
	framing   http1.Framing
	continued bool  // a 100 was sent
	closing   bool  // the connection serves no other request
	left      int64 // of a body with a length
	hijacked  bool
	failed    error // the error of the first write that failed
}

var (
	errHeadSent  = errors.New("h1: the head of the response was sent")
	errUpgrading = errors.New("h1: a connection with a request body cannot be hijacked")
)

// adapterBuffers is a pool of buffers for adapters.
type adapterBuffers struct{ pool sync.Pool }

func (b *adapterBuffers) get() *bytes.Buffer {
	if buf, ok := b.pool.Get().(*bytes.Buffer); ok {
		return buf
	}
	return bytes.NewBuffer(make([]byte, 0, 3*adapterPiece)) // a piece of proxy/nethttp, and its chunk
}

// put takes a buffer back, unless a long head has made it grow.
func (b *adapterBuffers) put(buf *bytes.Buffer) {
	if buf.Cap() > 4*adapterPiece {
		return
	}
	buf.Reset()
	b.pool.Put(buf)
}

func newAdapter(f *bridge) *adapter {
	return &adapter{f: f, header: make(http.Header), buf: f.engine.adapters.get(), closing: f.closing}
}

func (w *adapter) free() {
	w.f.engine.adapters.put(w.buf)
	w.buf = nil
}

// Header returns the fields of the response.
func (w *adapter) Header() http.Header { return w.header }

// WriteHeader sends an interim response at once. A final head is sent with the first byte
// of the body, because a response that ends without one gets Content-Length: 0.
func (w *adapter) WriteHeader(status int) {
	switch {
	case w.hijacked || w.status != 0:
	case status >= 100 && status < 200 && status != http.StatusSwitchingProtocols:
		if w.f.request.Minor > 0 {
			w.continued = w.continued || status == http.StatusContinue
			w.statusLine(status)
			w.fields("Content-Length", "Transfer-Encoding", "Connection")
			w.buf.WriteString("\r\n")
			_ = w.flush()
		}
	default:
		w.status = status
	}
}

// Write sends a part of the body, or buffers it until Flush.
func (w *adapter) Write(p []byte) (int, error) {
	if w.hijacked {
		return 0, http.ErrHijacked
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if !w.headed {
		w.head(false)
	}
	switch w.framing {
	case http1.NoBody:
		return 0, http.ErrBodyNotAllowed
	case http1.ByLength:
		if int64(len(p)) > w.left {
			return 0, http.ErrContentLength
		}
		w.left -= int64(len(p))
	}
	if len(p) == 0 {
		return 0, w.failed
	}
	if w.framing == http1.ByChunks {
		w.buf.Write(strconv.AppendInt(w.buf.AvailableBuffer(), int64(len(p)), 16))
		w.buf.WriteString("\r\n")
	}
	w.buf.Write(p)
	if w.framing == http1.ByChunks {
		w.buf.WriteString("\r\n")
	}
	if w.buf.Len() >= adapterPiece {
		_ = w.flush()
	}
	if w.failed != nil {
		return 0, w.failed
	}
	return len(p), nil
}

// Flush sends what is buffered. See FlushError.
func (w *adapter) Flush() { _ = w.FlushError() }

// FlushError is Flush, and returns an error if the client cannot be reached.
func (w *adapter) FlushError() error {
	if w.hijacked {
		return http.ErrHijacked
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if !w.headed {
		w.head(false)
	}
	return w.flush()
}

// EnableFullDuplex does nothing: every adapter is full duplex.
func (w *adapter) EnableFullDuplex() error { return nil }

// SetReadDeadline bounds reads of the request's body.
func (w *adapter) SetReadDeadline(t time.Time) error { return w.f.conn.SetReadDeadline(t) }

// SetWriteDeadline bounds the write in progress. Every write sets its own deadline.
func (w *adapter) SetWriteDeadline(t time.Time) error { return w.f.conn.SetWriteDeadline(t) }

// Hijack hands the connection over. It fails if the request has a body or part of the final
// response was sent.
func (w *adapter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	switch {
	case w.hijacked:
		return nil, nil, http.ErrHijacked
	case w.f.body != nil:
		return nil, nil, errUpgrading
	case w.headed:
		return nil, nil, errHeadSent
	}
	w.hijacked = true
	received := w.f.hijack()
	conn := w.f.conn
	r := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(received), conn), max(16, len(received)))
	_, _ = r.Peek(len(received)) // so that Buffered counts it
	return conn, bufio.NewReadWriter(r, bufio.NewWriter(conn)), conn.SetDeadline(time.Time{})
}

// finish sends the rest of the response. It returns an error if the response is not
// complete.
func (w *adapter) finish() error {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if !w.headed {
		w.head(true)
	}
	switch w.framing {
	case http1.ByLength:
		if w.left > 0 {
			_ = w.flush()
			return io.ErrUnexpectedEOF
		}
	case http1.ByChunks:
		w.buf.WriteString("0\r\n")
		_ = proxy.ResponseTrailers(w.header).Write(w.buf)
		w.buf.WriteString("\r\n")
	}
	return w.flush()
}

// head appends the final head. whole is set if no body bytes follow.
func (w *adapter) head(whole bool) {
	w.headed = true
	w.frame(whole)
	// Without a 100, the client may or may not send its body, so it is unknown what follows
	// the head.
	uninvited := w.f.body != nil && w.f.request.ExpectsContinue() && !w.continued
	w.closing = w.closing || uninvited || names(w.header["Connection"], "close")
	w.statusLine(w.status)
	skip := []string{"Connection", "Transfer-Encoding"}
	if w.framing == http1.ByChunks || w.framing == http1.UntilClose || w.status == http.StatusNoContent {
		skip = append(skip, "Content-Length")
	}
	w.fields(skip...)
	if _, given := w.header["Date"]; !given {
		w.line("Date", w.f.date)
	}
	switch w.framing {
	case http1.ByChunks:
		w.line("Transfer-Encoding", []byte("chunked"))
	case http1.UntilClose:
		w.closing = true
	}
	switch {
	case w.closing:
		w.line("Connection", []byte("close"))
	case w.f.request.Minor == 0:
		w.line("Connection", []byte("keep-alive"))
	}
	w.buf.WriteString("\r\n")
}

// frame chooses the framing of the body (RFC 9112, 6).
func (w *adapter) frame(whole bool) {
	length, declared := w.length()
	switch {
	case string(w.f.request.Method.Of(w.f.head)) == http.MethodHead, w.status == http.StatusNoContent, w.status == http.StatusNotModified:
		w.framing = http1.NoBody
	case declared:
		w.framing, w.left = http1.ByLength, length
	case whole && len(proxy.ResponseTrailers(w.header)) == 0:
		w.framing, w.left = http1.ByLength, 0
		w.header["Content-Length"] = []string{"0"}
	case w.f.request.Minor > 0:
		w.framing = http1.ByChunks
	default:
		w.framing = http1.UntilClose
	}
}

// length returns the value of Content-Length. One that is not a number is removed.
func (w *adapter) length() (n int64, declared bool) {
	values := w.header["Content-Length"]
	if len(values) == 1 {
		n, err := strconv.ParseUint(values[0], 10, 62)
		if err == nil {
			return int64(n), true
		}
	}
	delete(w.header, "Content-Length")
	return 0, false
}

func (w *adapter) statusLine(status int) {
	if w.f.request.Minor == 0 {
		w.buf.WriteString("HTTP/1.0 ")
	} else {
		w.buf.WriteString("HTTP/1.1 ")
	}
	w.buf.Write(strconv.AppendInt(w.buf.AvailableBuffer(), int64(status), 10))
	w.buf.WriteByte(' ')
	w.buf.WriteString(http.StatusText(status))
	w.buf.WriteString("\r\n")
}

// fields appends the fields of Header, except the named ones and those whose names are not
// valid field names, as with http.TrailerPrefix.
func (w *adapter) fields(less ...string) {
	skip := make(map[string]bool, len(less))
	for _, name := range less {
		skip[name] = true
	}
	_ = w.header.WriteSubset(w.buf, skip)
}

func (w *adapter) line(name string, value []byte) {
	w.buf.WriteString(name)
	w.buf.WriteString(": ")
	w.buf.Write(value)
	w.buf.WriteString("\r\n")
}

func (w *adapter) flush() error {
	for w.failed == nil && w.buf.Len() > 0 {
		_ = w.f.conn.SetWriteDeadline(time.Now().Add(adapterStall))
		_, w.failed = w.f.conn.Write(w.buf.Next(adapterPiece))
	}
	if w.failed != nil {
		w.buf.Reset()
	}
	return w.failed
}

// names reports whether the values of a list field hold a token.
func names(values []string, token string) (found bool) {
	for _, value := range values {
		http1.EachElement([]byte(value), func(element []byte) bool {
			found = found || http1.EqualFold(element, token)
			return !found
		})
	}
	return found
}

// tlsState returns the state of a TLS connection.
func tlsState(c net.Conn) *tls.ConnectionState {
	t, ok := c.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return &tls.ConnectionState{}
	}
	state := t.ConnectionState()
	return &state
}
