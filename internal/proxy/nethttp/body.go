package nethttp

import (
	"io"
	"net/http"
	"sync/atomic"

	"github.com/keygate/keygate/internal/snapshot"
)

// body is the body of a request on its way to the upstream: it stops at the
// gateway's bound, and hands over the trailers at its end.
type body struct {
	io.ReadCloser
	left     int64 // bytes that may still come; negative is no bound
	from     *http.Request
	trailers http.Header
	invite   func()            // called before the first read, unless nil
	ended    chan struct{}     // closed at the end of the body
	set      []snapshot.Header // what the gateway sets itself, which no trailer may
	wait     *side             // told of each read
	passed   *atomic.Int64     // counts the bytes; may be nil
}

// errBodyTooLarge ends a body that crosses max_body_bytes.
type errBodyTooLarge struct{}

func (errBodyTooLarge) Error() string { return "the request's body is larger than max_body_bytes" }

// newBody wraps the body of r. bound is the gateway's, 0 for none, and set what it sets
// itself.
func newBody(r *http.Request, bound int64, set []snapshot.Header, wait *side) *body {
	b := &body{ReadCloser: r.Body, left: -1, from: r, trailers: make(http.Header), ended: make(chan struct{}), set: set, wait: wait}
	if bound > 0 {
		b.left = bound
	}
	for name := range r.Trailer {
		if b.mayTrail(name) {
			b.trailers[name] = nil // announced
		}
	}
	return b
}

func (b *body) Read(p []byte) (int, error) {
	if b.invite != nil {
		b.invite()
		b.invite = nil
	}
	if b.left >= 0 && int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more than may come tells whether it does
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

// mayTrail reports whether a field may stand behind the body.
func (b *body) mayTrail(name string) bool { return mayTrail(name, false, b.set) }

func (b *body) isEnded() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}
