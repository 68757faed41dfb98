package nethttp

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/keygate/keygate/internal/proxy"
)

// late is a http.ResponseWriter that writes the fields of an interim answer after
// WriteHeader has returned, as that of net/http may for HTTP/2, with its rule for
// what is copied before.
type late struct {
	http.ResponseWriter
	header http.Header
	later  []http.Header
}

func (w *late) Header() http.Header { return w.header }

func (w *late) WriteHeader(int) {
	h := w.header
	if _, ok := h["Content-Length"]; ok {
		h = h.Clone()
		h.Del("Content-Length")
	}
	w.later = append(w.later, h)
}

// What net/http was given for an interim answer stays as it was: it may be writing
// it still.
func TestInterimStays(t *testing.T) {
	w := &late{header: http.Header{}}
	s := &Server{}
	x := s.newExchange(w, httptest.NewRequest(http.MethodGet, "/", nil), &proxy.Exchange{})
	x.interim(http.StatusEarlyHints, http.Header{"Link": {"</a>"}, "Content-Length": {"7"}})
	x.interim(http.StatusProcessing, http.Header{})
	w.header.Set("X-Final", "1")
	if first := w.later[0]; len(first) != 1 || first.Get("Link") != "</a>" {
		t.Errorf("the first became %v", first)
	}
	if second := w.later[1]; len(second) != 0 {
		t.Errorf("the second became %v", second)
	}
}
