package upstream

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"
)

// errBodyClosed is what reading a request's body returns once the exchange is over.
var errBodyClosed = errors.New("upstream: the exchange is over")

// requestBody is a request's body on its way to an upstream. It reports progress to the
// timer and remembers its read error. It does not close the caller's body, which the caller
// may go on to read.
type requestBody struct {
	body  io.ReadCloser
	timer *headTimer
	// trailers are those of the caller's request, which are set at the end of the body. Each
	// attempt has its own copy: the one before may still be reading its request.
	trailers, copied http.Header

	mu            sync.Mutex
	readStarted   bool // Read was called
	closedUnread  bool // closed before any Read: net/http's HTTP/2 may use it again on another connection
	transportDone bool // net/http will not use it again
	closed        bool
	err           error
}

// newRequestBody makes the body of req one that timer sees. req is a copy of the caller's
// request.
func newRequestBody(req *http.Request, timer *headTimer) *requestBody {
	if req.Body == nil {
		return nil
	}
	b := &requestBody{body: req.Body, timer: timer}
	req.Body = b
	if req.Trailer != nil {
		b.trailers, b.copied = req.Trailer, maps.Clone(req.Trailer)
		req.Trailer = b.copied
	}
	return b
}

// refuse ends reading before it has begun: the attempt's connection must not be used. b may
// be nil.
func (b *requestBody) refuse() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	closed := b.closed
	b.readStarted = b.readStarted || !closed
	b.closedUnread = false
	b.mu.Unlock()
	if closed {
		return 0, errBodyClosed
	}
	n, err := b.body.Read(p)
	if n > 0 || err == io.EOF {
		b.timer.progress()
	}
	if err == io.EOF {
		maps.Copy(b.copied, b.trailers)
	}
	if err != nil && err != io.EOF {
		b.mu.Lock()
		if !b.closed {
			b.err = err
		}
		b.mu.Unlock()
	}
	return n, err
}

// Close ends reading. It leaves the caller's body open.
func (b *requestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closedUnread = true
	b.closed = b.readStarted || b.transportDone
	return nil
}

// end records that RoundTrip has returned err, and reports whether the body is unread and
// will stay so. b may be nil.
func (b *requestBody) end(err error) (untouched bool) {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.transportDone = true
	b.closed = b.closed || b.closedUnread || err != nil
	return b.closed && !b.readStarted
}

func (b *requestBody) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// headTimer cancels an exchange if no head of a response arrives, and the upload makes no
// progress, for as long as limit.
type headTimer struct {
	limit  time.Duration
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	timer   *time.Timer
	last    time.Time // of the last progress
	stopped bool
}

func startHeadTimer(limit time.Duration, cancel context.CancelCauseFunc) *headTimer {
	w := &headTimer{limit: limit, cancel: cancel, last: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(limit, w.expired)
	return w
}

func (w *headTimer) expired() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	if left := w.limit - time.Since(w.last); left > 0 {
		w.timer.Reset(left)
		return
	}
	w.cancel(errHeadTimeout)
}

func (w *headTimer) progress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.last = time.Now()
	}
}

func (w *headTimer) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}
