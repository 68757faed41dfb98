package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// Guarantee: requests are read the same however their bytes are split; requests that net/http
// rejects are rejected; and both read requests that both accept in the same way.
func FuzzRequests(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /z HTTP/1.1\r\nHost: b\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
		"PUT /a HTTP/1.0\r\nHost: a\r\nConnection: keep-alive, X\r\nExpect: 100-continue\r\n\r\n",
		"\r\nGET http://u/x HTTP/1.1\r\nHost: a\r\nX:\t y \t\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\n\n",
		"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		r := rand.New(rand.NewPCG(uint64(len(input)), 7))
		whole := readAll([][]byte{input})
		for _, pieces := range splits(r, input, 3) {
			if got := readAll(pieces); !sameReading(whole, got) {
				t.Fatalf("%q split as %q\ngot:  %v\nwant: %v", input, pieces, got, whole)
			}
		}
		theirs := bufio.NewReader(bytes.NewReader(input))
		for i, m := range whole.messages {
			// RFC 9112, 2.2 asks servers to ignore an empty line; net/http does not.
			for range 2 {
				if b, err := theirs.Peek(2); err == nil && string(b) == "\r\n" {
					_, _ = theirs.Discard(2)
				}
			}
			req, err := http.ReadRequest(theirs)
			if err != nil {
				if rejectedByNetHTTPOnly(m) {
					return
				}
				t.Fatalf("message %d: got %+v, want an error as from net/http: %v\n%q", i, m, err, input)
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				t.Fatalf("message %d: got %+v, want an error in the body as from net/http: %v\n%q", i, m, err, input)
			}
			if req.Method != m.method || req.RequestURI != m.target || string(body) != m.body {
				t.Fatalf("message %d: got %+v, want %s %s %q as net/http reads it\n%q", i, m, req.Method, req.RequestURI, body, input)
			}
			if want := trailerText(req.Trailer); m.trailers == nil && want != "" {
				t.Fatalf("message %d: got no trailers, want %q as net/http reads them\n%q", i, want, input)
			}
		}
	})
}

// rejectedByNetHTTPOnly reports whether net/http may reject the message for its target
// or Host, which this package does not validate; package admit does.
func rejectedByNetHTTPOnly(m message) bool {
	return !strings.HasPrefix(m.target, "/") || strings.Contains(m.target, "%") || strings.Contains(m.target, "#") || m.method == "CONNECT" ||
		strings.HasPrefix(m.target, "//") || hasUnusualHost(m)
}

// hasUnusualHost reports whether Host contains anything but lower-case letters, digits
// and dots.
func hasUnusualHost(m message) bool {
	for _, f := range m.fields {
		if name, value, _ := strings.Cut(f, ": "); strings.EqualFold(name, "host") && strings.ContainsFunc(value, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.')
		}) {
			return true
		}
	}
	return false
}

// trailerText returns h as field lines.
func trailerText(h http.Header) string {
	var b strings.Builder
	for name, values := range h {
		for _, v := range values {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	return b.String()
}

// Guarantee: the head of a response is read the same however its bytes are split, and
// net/http accepts it and reads the same status.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
		"HTTP/1.1 204\r\n\r\n",
		"HTTP/1.0 301 Moved\r\nLocation: /\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		read := func(pieces [][]byte) (status int, text string, failed bool) {
			var p ResponseParser
			var resp Response
			var buf []byte
			for _, piece := range pieces {
				buf = append(buf, piece...)
				done, err := p.Parse(buf, &resp)
				if err != nil {
					return 0, "", true
				}
				if done {
					return resp.Status, strings.Join(fieldLines(buf, resp.Fields()), "\n"), false
				}
			}
			return 0, "", false
		}
		status, text, failed := read([][]byte{input})
		r := rand.New(rand.NewPCG(uint64(len(input)), 9))
		for _, pieces := range splits(r, input, 3) {
			if s, x, bad := read(pieces); s != status || x != text || bad != failed {
				t.Fatalf("%q split as %q: got status %d, fields %q, failed %v; want %d, %q, %v", input, pieces, s, x, bad, status, text, failed)
			}
		}
		if status == 0 {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(input)), nil)
		if err != nil {
			t.Fatalf("%q: got status %d, want an error as from net/http: %v", input, status, err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Fatalf("%q: got status %d, want %d as net/http reads it", input, status, resp.StatusCode)
		}
	})
}

// BenchmarkRequest parses the head of a typical browser request.
func BenchmarkRequest(b *testing.B) {
	input := []byte("GET /api/v1/orders/1234?expand=items HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0)\r\n" +
		"Accept: application/json\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\nAuthorization: Bearer kg_0123456789abcdefghijklmnopqrst000000\r\nConnection: keep-alive\r\n\r\n")
	b.ReportAllocs()
	b.SetBytes(int64(len(input)))
	var p RequestParser
	var r Request
	for b.Loop() {
		p.Reset()
		if done, err := p.Parse(input, &r); !done || err != nil {
			b.Fatal(err)
		}
	}
}
