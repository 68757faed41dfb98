package h1

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
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
	if proxy.Aborted(func() { e.cfg.Forward(w, r, f.exchange) }) {
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
	body := &adapterBody{f: f}
	if f.body == nil {
		body.r = proxy.HTTPRequest(h, f.head, nil)
	} else {
		body.r = proxy.HTTPRequest(h, f.head, body)
	}
	r := body.r
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	if h.Minor == 0 {
		r.Proto, r.ProtoMinor = "HTTP/1.0", 0
	}
	r.RemoteAddr, r.Close = f.info.Client.String(), f.closing
	if f.info.TLS {
		r.TLS = tlsState(f.conn)
	}
	if f.body != nil && h.Chunked() {
		r.TransferEncoding = []string{"chunked"}
	}
	return r.WithContext(f.ctx), body
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
		text, fields := b.f.body.Trailers()
		proxy.AddTrailers(b.r, text, fields)
	}
	return n, err
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
