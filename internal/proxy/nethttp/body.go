package nethttp

import (
	"io"
	"net/http"
	"sync/atomic"

	"github.com/keygate/keygate/internal/snapshot"
)

// body is the body of a request on its way to the upstream. It stops at the gateway's
// limit, and hands over the trailers at its end.
type body struct {
	io.ReadCloser
	left         int64 // bytes that may still come; negative is no limit
	from         *http.Request
	trailers     http.Header
	sendContinue func()            // called before the first read, unless nil
	ended        chan struct{}     // closed at the end of the body
	set          []snapshot.Header // what the gateway sets itself, which no trailer may be
	wait         *side             // the clock of its reads
	passed       *atomic.Int64     // counts the bytes; may be nil
}

// errBodyTooLarge is the error of a body that crosses max_body_bytes.
type errBodyTooLarge struct{}

func (errBodyTooLarge) Error() string { return "the request's body is larger than max_body_bytes" }

// newBody wraps the body of r. limit is the gateway's, 0 for none, and set the fields that
// the gateway sets itself.
func newBody(r *http.Request, limit int64, set []snapshot.Header, wait *side) *body {
	b := &body{ReadCloser: r.Body, left: -1, from: r, trailers: make(http.Header), ended: make(chan struct{}), set: set, wait: wait}
	if limit > 0 {
		b.left = limit
	}
	for name := range r.Trailer {
		if b.mayTrail(name) {
			b.trailers[name] = nil // announced
		}
	}
	return b
}

func (b *body) Read(p []byte) (int, error) {
	if b.sendContinue != nil {
		b.sendContinue()
		b.sendContinue = nil
	}
	if b.left >= 0 && int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one byte more than the limit shows that the body crosses it
	}
	b.wait.begin()
	n, err := b.ReadCloser.Read(p)
	b.wait.done()
	if b.passed != nil {
		b.passed.Add(int64(n))
	}
	if b.left >= 0 {
		if int64(n) > b.left {
			return 0, errBodyTooLarge{}
		}
		b.left -= int64(n)
	}
	if err == io.EOF && !b.isEnded() {
		for name, values := range b.from.Trailer {
			if b.mayTrail(name) && len(values) > 0 {
				b.trailers[name] = values
			}
		}
		close(b.ended)
	}
	return n, err
}

// mayTrail reports whether a field may pass in the trailers.
func (b *body) mayTrail(name string) bool { return mayTrail(name, false, b.set) }

func (b *body) isEnded() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}
