package nethttp

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/keygate/keygate/internal/proxy"
)

// lateWriter is a http.ResponseWriter that reads the fields of an interim response after
// WriteHeader has returned, as the one of net/http may for HTTP/2. Like that one it copies
// them first only if they contain Content-Length.
type lateWriter struct {
	http.ResponseWriter
	header http.Header
	later  []http.Header
}

func (w *lateWriter) Header() http.Header { return w.header }

func (w *lateWriter) WriteHeader(int) {
	h := w.header
	if _, ok := h["Content-Length"]; ok {
		h = h.Clone()
		h.Del("Content-Length")
	}
	w.later = append(w.later, h)
}

// Guarantee: the fields passed to net/http for an interim response are not changed
// afterwards, because net/http may still be writing them.
func TestInterimFieldsAreNotChanged(t *testing.T) {
	t.Parallel()
	w := &lateWriter{header: http.Header{}}
	s := &Server{}
	x := s.newExchange(w, httptest.NewRequest(http.MethodGet, "/", nil), &proxy.Exchange{})
	if err := x.interim(http.StatusEarlyHints, http.Header{"Link": {"</a>"}, "Content-Length": {"7"}}); err != nil {
		t.Fatal(err)
	}
	if err := x.interim(http.StatusProcessing, http.Header{}); err != nil {
		t.Fatal(err)
	}
	w.header.Set("X-Final", "1")
	if first := w.later[0]; len(first) != 1 || first.Get("Link") != "</a>" {
		t.Errorf("first response: got fields %v, want Link only", first)
	}
	if second := w.later[1]; len(second) != 0 {
		t.Errorf("second response: got fields %v, want none", second)
	}
}
