package nethttp

import (
	"io"
	"net/http"
	"sync/atomic"
)

// body is the body of a request to the upstream. It enforces the gateway's size limit and
// passes on the trailers at its end.
type body struct {
	io.ReadCloser
	left         int64 // bytes that may still come; negative means no limit
	from         *http.Request
	trailers     http.Header
	sendContinue func()        // called before the first read, unless nil
	ended        chan struct{} // closed at the end of the body
	withheld     []string      // fields that are dropped from trailers: Gateway.Withheld
	wait         *side         // times its reads
	passed       *atomic.Int64 // counts the bytes; may be nil
}

// errBodyTooLarge reports a body larger than max_body_bytes.
type errBodyTooLarge struct{}

func (errBodyTooLarge) Error() string { return "the request's body is larger than max_body_bytes" }

// newBody wraps the body of r. limit and withheld are the gateway's; limit is 0 for none.
func newBody(r *http.Request, limit int64, withheld []string, wait *side) *body {
	b := &body{ReadCloser: r.Body, left: -1, from: r, trailers: make(http.Header), ended: make(chan struct{}), withheld: withheld, wait: wait}
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
		p = p[:b.left+1] // one byte beyond the limit shows that the body exceeds it
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

// mayTrail reports whether a field may be forwarded in the trailers.
func (b *body) mayTrail(name string) bool { return mayTrail(name, false, b.withheld) }

func (b *body) isEnded() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}
