package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// rawURL returns a URL with which net/http writes target byte for byte into the
// request line.
func rawURL(addr, target string) *url.URL {
	path, query, has := strings.Cut(target, "?")
	return &url.URL{Scheme: "http", Host: addr, Opaque: path, RawQuery: query, ForceQuery: has && query == ""}
}

// recordingUpstream is an upstream that records its requests.
type recordingUpstream struct {
	*httptest.Server
	mu       sync.Mutex
	requests []upstreamRequest
}

type upstreamRequest struct {
	method, target string
	header         http.Header
}

func newRecordingUpstream(t *testing.T) *recordingUpstream {
	r := &recordingUpstream{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, upstreamRequest{req.Method, req.RequestURI, req.Header.Clone()})
		r.mu.Unlock()
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte("upstream"))
	}))
	t.Cleanup(r.Close)
	return r
}

// take returns the requests since the last call.
func (r *recordingUpstream) take() []upstreamRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.requests
	r.requests = nil
	return s
}
