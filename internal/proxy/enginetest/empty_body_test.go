package enginetest_test

import (
	"net/http"
	"testing"
)

// Guarantee: contract 4.4: a POST, PUT or PATCH that ended with its head over HTTP/2, or with an empty
// frame behind it, has Content-Length: 0 towards HTTP/1.1. No other method has, nor a request that came
// over HTTP/1.1 without it.
func TestEmptyBodyIsDeclared(t *testing.T) {
	t.Parallel()
	addr, heads := recorder(t, empty)
	g := start(t, setup{upstream: "http://" + addr})
	for method, want := range map[string]string{"POST": "0", "PUT": "0", "PATCH": "0", "GET": "", "HEAD": "", "DELETE": "", "OPTIONS": ""} {
		t.Run(method, func(t *testing.T) {
			fields := [][2]string{{":method", method}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/a"}, {"authorization", "Bearer " + g.key}}
			f := g.dialHTTP2()
			f.request(1, true, fields)
			f.answer(t)
			receive(t, "the request over HTTP/2", heads).wantFields(t, map[string]string{"content-length": want, "transfer-encoding": ""})
			if want == "0" {
				f.request(3, true, append(fields, [2]string{"content-length", "0"}))
				f.answer(t)
				receive(t, "the request with a length", heads).wantFields(t, map[string]string{"content-length": "0", "transfer-encoding": ""})
			}
			c := g.dial(t)
			c.request(g, method+" /a HTTP/1.1")
			c.wantHead("200")
			receive(t, "the request over HTTP/1.1", heads).wantFields(t, map[string]string{"content-length": "", "transfer-encoding": ""})
		})
	}
}

// Guarantee: the same holds if the stream ends with an empty frame right behind the head. An HTTP/2
// upstream gets no content-length.
func TestEmptyBodyInAFrame(t *testing.T) {
	t.Parallel()
	fields := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/public/a"}}
	addr, heads := recorder(t, empty)
	start(t, setup{upstream: "http://" + addr}).atOnce(fields, nil)
	receive(t, "the request", heads).wantFields(t, map[string]string{"content-length": "0", "transfer-encoding": ""})

	declared := make(chan []string, 1)
	h2c := h2cUpstream(t, func(_ http.ResponseWriter, r *http.Request) { declared <- r.Header["Content-Length"] })
	start(t, setup{upstream: h2c}).atOnce(fields, nil)
	if got := receive(t, "the request over HTTP/2", declared); got != nil {
		t.Errorf("an HTTP/2 upstream got content-length %q, want none", got)
	}
}
