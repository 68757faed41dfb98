package h1

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/http1"
)

const (
	// lingerTime is how long a connection that is closed with unread bytes of its client
	// stays open for reading, so that a reset does not destroy the response on its way.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// serveBridged serves a request for an upstream other than plain HTTP/1.1 through
// Config.Forward. It reports whether the connection can serve another request.
func (e *Engine) serveBridged(f *bridge) (again bool) {
	w := newAdapter(f)
	defer w.free()
	r, body := f.httpRequest()
	if aborted := w.call(func() { e.cfg.Forward(w, r, f.exchange) }); aborted {
		body.end()
		w.breakOff()
		return false
	}
	if w.hijacked {
		return false
	}
	complete := body.end()
	w.closing = w.closing || !complete
	err := w.finish()
	switch {
	case err != nil:
		w.breakOff()
		return false
	case complete && !w.closing:
		return f.conn.SetDeadline(time.Time{}) == nil
	case !complete:
		w.linger()
	}
	return false
}

// call runs forward and reports whether it aborted the request.
func (w *adapter) call(forward func()) (aborted bool) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			aborted = true
		default:
			panic(p)
		}
	}()
	forward()
	return false
}

// linger waits for the client to read the response and close the connection, and discards
// what it still sends.
func (w *adapter) linger() {
	half, ok := w.f.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || w.f.conn.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, w.f.conn, lingerBytes)
}

// cutNow closes the connection so that the client does not take a truncated response for a
// complete one. Where the end of the connection ends the body, only a reset shows the
// difference.
func (w *adapter) breakOff() {
	conn := w.f.conn
	if w.headed && w.framing == http1.UntilClose {
		for {
			below, ok := conn.(interface{ NetConn() net.Conn })
			if !ok {
				break
			}
			conn = below.NetConn() // without the closing alert of TLS
		}
		if tcp, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
			_ = tcp.SetLinger(0)
		}
	}
	_ = conn.Close()
}

// httpRequest returns the request as a net/http server would pass it to a handler, and its
// body.
func (f *bridge) httpRequest() (*http.Request, *adapterBody) {
	h := f.request
	r := &http.Request{
		Method:        string(h.Method.Of(f.head)),
		RequestURI:    string(h.Target.Of(f.head)),
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        make(http.Header, len(h.Fields())),
		Body:          http.NoBody,
		ContentLength: max(0, h.ContentLength()),
		RemoteAddr:    f.info.Client.String(),
		Close:         f.closing,
	}
	if h.Minor == 0 {
		r.Proto, r.ProtoMinor = "HTTP/1.0", 0
	}
	if f.info.TLS {
		r.TLS = tlsState(f.conn)
	}
	target, err := url.ParseRequestURI(r.RequestURI)
	if err != nil { // net/url is stricter than the contract
		target = &url.URL{Opaque: r.RequestURI}
	}
	r.URL = target
	f.copyFields(r)
	if target.Host != "" { // the authority of an absolute target takes precedence over Host
		r.Host = target.Host
	}
	body := &adapterBody{f: f, r: r}
	if f.body != nil {
		r.Body = body
		if h.Chunked() {
			r.ContentLength = -1
			r.TransferEncoding = []string{"chunked"}
		}
	}
	return r.WithContext(f.ctx), body
}

// copyFields copies the head's fields under their canonical names, except those for which
// http.Request has its own place.
func (f *bridge) copyFields(r *http.Request) {
	for _, field := range f.request.Fields() {
		value := string(field.Value.Of(f.head))
		switch field.ID {
		case http1.Host:
			r.Host = value
		case http1.TransferEncoding:
		case http1.Trailer:
			if f.body == nil {
				break
			}
			http1.EachElement(field.Value.Of(f.head), func(name []byte) bool {
				announce(&r.Trailer, textproto.CanonicalMIMEHeaderKey(string(name)))
				return true
			})
		default:
			name := textproto.CanonicalMIMEHeaderKey(string(field.Name.Of(f.head)))
			r.Header[name] = append(r.Header[name], value)
		}
	}
}

func announce(trailers *http.Header, name string) {
	if *trailers == nil {
		*trailers = make(http.Header)
	}
	(*trailers)[name] = nil
}

// errEnded is the error of reading a request's body after the response was sent.
var errEnded = errors.New("h1: the request has its response")

// adapterBody is the body of a request for net/http. A transport may still be reading it
// when the response is complete; end waits for that.
type adapterBody struct {
	f *bridge
	r *http.Request

	mu    sync.Mutex // held during Read
	ended bool
}

func (b *adapterBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return 0, errEnded
	}
	n, err := b.f.body.Read(p)
	if errors.Is(err, io.EOF) {
		b.trailers()
	}
	return n, err
}

// trailers adds the trailer section to the request.
func (b *adapterBody) trailers() {
	buf, fields := b.f.body.Trailers()
	for _, field := range fields {
		name := textproto.CanonicalMIMEHeaderKey(string(field.Name.Of(buf)))
		if b.r.Trailer == nil {
			b.r.Trailer = make(http.Header)
		}
		b.r.Trailer[name] = append(b.r.Trailer[name], string(field.Value.Of(buf)))
	}
}

// Close does nothing: the engine discards the rest of the body.
func (b *adapterBody) Close() error { return nil }

// end makes later reads fail and interrupts a read in progress. It reports whether the body
// was read to its end.
func (b *adapterBody) end() (complete bool) {
	if b.f.body == nil {
		return true
	}
	if !b.mu.TryLock() {
		_ = b.f.conn.SetReadDeadline(time.Unix(1, 0))
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	b.ended = true
	return b.f.body.Ended()
}
