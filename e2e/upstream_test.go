package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// rawURL makes a URL whose request line holds target byte for byte.
func rawURL(addr, target string) *url.URL {
	path, query, has := strings.Cut(target, "?")
	return &url.URL{Scheme: "http", Host: addr, Opaque: path, RawQuery: query, ForceQuery: has && query == ""}
}

// recorder is an upstream that keeps what reached it.
type recorder struct {
	*httptest.Server
	mu   sync.Mutex
	seen []seen
}

type seen struct {
	method, target string
	header         http.Header
}

func newRecorder(t *testing.T) *recorder {
	r := &recorder{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.seen = append(r.seen, seen{req.Method, req.RequestURI, req.Header.Clone()})
		r.mu.Unlock()
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte("upstream"))
	}))
	t.Cleanup(r.Close)
	return r
}

// take returns what was seen since the last call.
func (r *recorder) take() []seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.seen
	r.seen = nil
	return s
}
