package enginetest_test

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// headOf returns fields that, together with a Content-Length of 0, make up a response with
// the given number of fields and bytes of head in HTTP/1.1.
func headOf(fields, size int) http.Header {
	h, filler := make(http.Header), fields-1
	if filler == 0 {
		return h
	}
	const line = len("X-Filler-000: \r\n")
	size -= len("HTTP/1.1 200 OK\r\n") + len("Content-Length: 0\r\n") + len("\r\n")
	for i := range filler {
		length := size/(filler-i) - line
		h.Set(fmt.Sprintf("X-Filler-%03d", i), strings.Repeat("v", length))
		size -= line + length
	}
	return h
}

// Guarantee: contract 4.2, 8: a response may have 512 fields and a head of 256 KiB, but
// not more of either, over either version of HTTP on both sides.
func TestResponseHeadLimits(t *testing.T) {
	upstreams := map[string]func(t *testing.T) (url, ca string){
		"HTTP/1.1 upstream": func(t *testing.T) (url, ca string) {
			return "http://" + upstreamtest.Serve(t, respondInBytes), ""
		},
		"HTTP/1.1 upstream over TLS": func(t *testing.T) (url, ca string) {
			s := httptest.NewTLSServer(http.HandlerFunc(respondAsAsked))
			t.Cleanup(s.Close)
			return s.URL, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
		},
		"HTTP/2 upstream": func(t *testing.T) (url, ca string) {
			return h2cUpstream(t, respondAsAsked), ""
		},
	}
	for name, serve := range upstreams {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				var s setup
				s.upstream, s.ca = serve(t)
				e := start(t, s)
				for _, c := range []struct {
					fields, size, want int
				}{
					{1, 0, 200},
					{100, 10_000, 200},
					{http1.MaxResponseFields, 20_000, 200},
					{http1.MaxResponseFields + 1, 20_000, 502},
					{20, http1.MaxResponseHead, 200},
					{20, http1.MaxResponseHead + 1, 502},
					{http1.MaxResponseFields, http1.MaxResponseHead, 200},
					{1, 0, 200},
				} {
					got, filler := askFor(t, e, client, c.fields, c.size)
					if got != c.want {
						t.Errorf("a response with %d fields and %d bytes of head: got status %d, want %d", c.fields, c.size, got, c.want)
					}
					if got == 200 && filler != c.fields-1 {
						t.Errorf("%d of %d fields reached the client", filler, c.fields-1)
					}
				}
			})
		})
	}
}

// Guarantee: the limits hold for the head of a 1xx response too.
func TestInterimHeadLimits(t *testing.T) {
	interim := func(fields int) string {
		return "HTTP/1.1 103 Early Hints\r\n" + strings.Repeat("X-F: v\r\n", fields) + "\r\n"
	}
	for fields, want := range map[int]int{http1.MaxResponseFields: 200, http1.MaxResponseFields + 1: 502} {
		t.Run(strconv.Itoa(fields)+" fields", func(t *testing.T) {
			addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
				if _, err := c.ReadHead(); err == nil {
					c.Send(interim(fields) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			})
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				e := start(t, setup{upstream: "http://" + addr})
				if got, _ := askFor(t, e, client, 1, 0); got != want {
					t.Errorf("got status %d, want %d", got, want)
				}
			})
		})
	}
}

// askFor requests a response with the given number of fields and bytes of head. It returns
// the response's status and the number of its fields that arrived.
func askFor(t *testing.T, e *harness, client http.RoundTripper, fields, size int) (status, filler int) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("http://%s/%d/%d", e.addr, fields, size), nil)
	req.Header.Set("Authorization", "Bearer "+e.key)
	resp, err := client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	for name := range resp.Header {
		if strings.HasPrefix(name, "X-Filler-") {
			filler++
		}
	}
	return resp.StatusCode, filler
}

// respondAsAsked responds with the fields and bytes of head that the path names.
func respondAsAsked(w http.ResponseWriter, r *http.Request) {
	for name, values := range headOf(limitsAsked(r.URL.Path)) {
		w.Header()[name] = values
	}
	w.Header()["Date"], w.Header()["Content-Type"] = nil, nil
	w.Header().Set("Content-Length", "0")
}

func limitsAsked(path string) (fields, size int) {
	parts := strings.Split(path, "/")
	fields, _ = strconv.Atoi(parts[1])
	size, _ = strconv.Atoi(parts[2])
	return fields, size
}

// respondInBytes does the same as respondAsAsked on a connection of HTTP/1.1, which it keeps.
func respondInBytes(c *upstreamtest.Conn) {
	for {
		head, err := c.ReadHead()
		if err != nil {
			return
		}
		w := bufio.NewWriter(c.Conn)
		_, _ = w.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")
		_ = headOf(limitsAsked(strings.Fields(head)[1])).Write(w)
		_, _ = w.WriteString("\r\n")
		_ = w.Flush()
	}
}
