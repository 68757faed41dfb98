package wire

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// Guarantee: contract 4.5. Heads that fill a buffer exactly, or miss it by a few bytes, are
// served like all others, and the limit on the size of a head holds to the byte.
func TestHeadSizes(t *testing.T) {
	t.Parallel()
	up := newFixedUpstream(t)
	p := start(t, setup{}, up.addr, nil)
	up.respondWith("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	s := newSide(t, "client", dial(t, p.addr))
	head := func(size int) string {
		begin := "POST /a HTTP/1.1\r\nHost: " + hostname + "\r\nAuthorization: Bearer " + p.key + "\r\nContent-Length: 5\r\nX: "
		return begin + strings.Repeat("x", size-len(begin)-len("\r\n\r\n")) + "\r\n\r\n"
	}
	for _, edge := range []int{4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10} {
		for size := edge - 8; size <= min(edge+8, 64<<10); size++ {
			s.send(head(size) + "hello")
			if resp, body := s.response(t); resp.StatusCode != http.StatusOK || string(body) != "ok" {
				t.Fatalf("a head of %d bytes: got %s with body %q, want 200 with body ok", size, resp.Status, body)
			}
		}
	}
	s.send(head(64<<10+1) + "hello")
	if resp, _ := s.response(t); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a head of 64 KiB and a byte: got %s, want 431", resp.Status)
	}
	s.close()
}

// Guarantee: bodies whose sizes are close to the sizes of buffers pass whole, in both directions
// and framings, one after the other on one connection.
func TestBodySizes(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(mirror))
	t.Cleanup(up.Close)
	p := start(t, setup{}, up.Listener.Addr().String(), nil)
	s := newSide(t, "client", dial(t, p.addr))
	for _, edge := range []int{1, 2 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10} {
		for _, off := range []int{-600, -260, -20, -4, -3, -2, -1, 0, 1, 2, 3, 20, 260} {
			if edge+off < 0 {
				continue
			}
			body := strings.Repeat("b", edge+off)
			for _, chunked := range []bool{false, true} {
				text := "POST /m HTTP/1.1\r\nHost: " + hostname + "\r\nAuthorization: Bearer " + p.key + "\r\n"
				if chunked {
					text += "Transfer-Encoding: chunked\r\n\r\n"
					if body != "" {
						text += fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
					}
					text += "0\r\n\r\n"
				} else {
					text += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
				}
				s.send(text)
				if resp, got := s.response(t); resp.StatusCode != http.StatusOK || string(got) != body {
					t.Fatalf("a body of %d bytes, chunked %v: got %s with %d bytes, want 200 with the same body", len(body), chunked, resp.Status, len(got))
				}
			}
		}
	}
	s.close()
}

// mirror responds with the request's body in the same framing.
func mirror(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if r.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	} else if err := http.NewResponseController(w).Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}
