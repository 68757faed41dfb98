package upstream

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// errBodyClosed is what a request's body gives once the exchange is over.
var errBodyClosed = errors.New("upstream: the exchange is over")

// requestBody is a request's body on its way to an upstream. It tells the watch
// of its progress and remembers what it failed with. The body
// itself stays the sender's, who may have reason to read on.
type requestBody struct {
	body  io.ReadCloser
	timer *headTimer

	mu            sync.Mutex
	readStarted   bool // somebody has read
	closedUnread  bool // closed before that: HTTP/2 of net/http may come back to it with another connection
	transportDone bool // net/http does not come back any more
	closed        bool
	err           error
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
	if err != nil && err != io.EOF {
		b.mu.Lock()
		if !b.closed {
			b.err = err
		}
		b.mu.Unlock()
	}
	return n, err
}

// Close ends reading and leaves the sender's body as it is.
func (b *requestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closedUnread = true
	b.closed = b.readStarted || b.transportDone
	return nil
}

// endReading notes that net/http has come to an end, and reports whether nobody has read
// of b, nor will. b may be nil.
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

// headTimer cancels an exchange that has no head of an answer, and made no progress
// with its upload, for a while.
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
