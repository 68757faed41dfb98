package http1

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// numberedFields returns n field lines, each with a number as its value.
func numberedFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X: %d\r\n", i)
	}
	return b.String()
}

// Guarantee: the limits on a head hold exactly: a head at the limit is accepted, and one
// more field or byte is ErrHead.
func TestHeadLimits(t *testing.T) {
	request := func(rest string) error {
		_, err := new(RequestParser).Parse([]byte("GET / HTTP/1.1\r\nHost: a\r\n"+rest+"\r\n"), new(Request))
		return err
	}
	response := func(rest string) error {
		_, err := new(ResponseParser).Parse([]byte("HTTP/1.1 200 OK\r\n"+rest+"\r\n"), new(Response))
		return err
	}
	fill := func(size int, start string) string {
		return "X: " + strings.Repeat("x", size-len(start)-len("X: \r\n\r\n")) + "\r\n"
	}
	const requestStart, responseStart = "GET / HTTP/1.1\r\nHost: a\r\n", "HTTP/1.1 200 OK\r\n"
	for _, c := range []struct {
		name  string
		parse func(string) error
		rest  string
		want  error
	}{
		{"request with 100 fields", request, numberedFields(MaxFields - 1), nil},
		{"request with 101 fields", request, numberedFields(MaxFields), ErrHead},
		{"request of 64 KiB", request, fill(MaxHead, requestStart), nil},
		{"request of 64 KiB and a byte", request, fill(MaxHead+1, requestStart), ErrHead},
		{"response with 512 fields", response, numberedFields(MaxResponseFields), nil},
		{"response with 513 fields", response, numberedFields(MaxResponseFields + 1), ErrHead},
		{"response of 256 KiB", response, fill(MaxResponseHead, responseStart), nil},
		{"response of 256 KiB and a byte", response, fill(MaxResponseHead+1, responseStart), ErrHead},
	} {
		if err := c.parse(c.rest); !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
		}
	}
}

// Guarantee: a response with more fields than the parser has room for at first keeps all of them in
// order, and the next response has none of them.
func TestManyResponseFields(t *testing.T) {
	var p ResponseParser
	var r Response
	for _, n := range []int{MaxResponseFields, 3, MaxFields, MaxFields + 1} {
		p.Reset()
		head := []byte("HTTP/1.1 200 OK\r\n" + numberedFields(n) + "\r\n")
		if done, err := p.Parse(head, &r); !done || err != nil {
			t.Fatalf("%d fields: got done %v, error %v; want a complete head", n, done, err)
		}
		if got := len(r.Fields()); got != n {
			t.Fatalf("got %d fields, want %d", got, n)
		}
		for i, f := range r.Fields() {
			if got, want := string(f.Value.Of(head)), fmt.Sprint(i); got != want {
				t.Fatalf("field %d of %d: got value %q, want %q", i, n, got, want)
			}
		}
	}
}
