package keygatetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// Request is what an Upstream received.
type Request struct {
	Method string
	Target string // byte for byte
	Host   string
	Header http.Header
	Body   string
}

// Upstream is an upstream service that records its requests and responds with status
// 200 and the body "ok".
type Upstream struct {
	URL string

	mu       sync.Mutex
	requests []Request
}

// NewUpstream starts an upstream. It stops when the test ends.
func NewUpstream(t testing.TB) *Upstream {
	u := &Upstream{}
	s := httptest.NewServer(u)
	t.Cleanup(s.Close)
	u.URL = s.URL
	return u
}

// ServeHTTP records a request.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	u.mu.Lock()
	u.requests = append(u.requests, Request{r.Method, r.RequestURI, r.Host, r.Header.Clone(), string(body)})
	u.mu.Unlock()
	_, _ = io.WriteString(w, "ok")
}

// Requests returns all requests so far, in order.
func (u *Upstream) Requests() []Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.requests)
}
