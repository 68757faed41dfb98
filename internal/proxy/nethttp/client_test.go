package nethttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/leaktest"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience bounds what a test waits for; reaching it is a failure.
const patience = time.Minute

// client is a connection to the edge over which a test says the bytes itself.
type client struct {
	*upstreamtest.Conn
	t testing.TB
}

func (e *edge) dial() *client {
	e.t.Helper()
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		e.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	e.t.Cleanup(func() { _ = conn.Close() })
	return &client{t: e.t, Conn: &upstreamtest.Conn{Conn: conn, Reader: bufio.NewReader(conn)}}
}

// request says a request's head: the line, Host, the key, and fields.
func (c *client) request(e *edge, line string, fields ...string) {
	c.Send(line + "\r\nHost: api.test\r\nAuthorization: Bearer " + e.key + "\r\n" + lines(fields) + "\r\n")
}

func lines(fields []string) string {
	var b strings.Builder
	for _, f := range fields {
		b.WriteString(f + "\r\n")
	}
	return b.String()
}

// head reads the next head from the connection.
func (c *client) head() head {
	c.t.Helper()
	text, err := c.ReadHead()
	if err != nil {
		c.t.Fatalf("no head: %v, after %q", err, text)
	}
	return parse(text)
}

// text reads n bytes.
func (c *client) text(n int) string {
	c.t.Helper()
	b := make([]byte, n)
	if n, err := io.ReadFull(c.Conn, b); err != nil {
		c.t.Fatalf("got %q of the body, then %v", b[:n], err)
	}
	return string(b)
}

// rest reads until the connection ends.
func (c *client) rest() (string, error) {
	b, err := io.ReadAll(c.Conn)
	return string(b), err
}

// head is the head of a message as it stood on the wire.
type head struct {
	line   string
	fields map[string][]string // by name in lower case
	text   string
}

func parse(text string) head {
	all := strings.Split(text, "\r\n")
	h := head{line: all[0], fields: map[string][]string{}, text: text}
	for _, l := range all[1:] {
		name, value, _ := strings.Cut(l, ":")
		name = strings.ToLower(name)
		h.fields[name] = append(h.fields[name], strings.TrimSpace(value))
	}
	return h
}

func (h head) get(name string) string { return strings.Join(h.fields[name], " | ") }

func (h head) status() string {
	_, s, _ := strings.Cut(h.line, " ")
	return s[:min(3, len(s))]
}

// recorder is an upstream that keeps the heads that it gets and answers each
// with answer; it does not read bodies.
func recorder(t testing.TB, answer string) (addr string, heads <-chan head) {
	t.Helper()
	seen := make(chan head, 100)
	return upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			text, err := c.ReadHead()
			if err != nil {
				return
			}
			seen <- parse(text)
			c.Send(answer)
		}
	}), seen
}

const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// get sends an ordinary request with the key and returns the answer with its
// body.
func (e *edge) get(path string) (*http.Response, string) {
	e.t.Helper()
	return e.do(http.DefaultTransport, "GET", path, nil)
}

func (e *edge) do(transport http.RoundTripper, method, path string, body io.Reader, fields ...string) (*http.Response, string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+e.addr+path, body)
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+e.key)
	for i := 0; i+1 < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp, string(text)
}

// within fails the test if the channel gives nothing for too long.
func within[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("waited too long for %s", what)
		panic("unreachable")
	}
}

// chunk is one chunk of a body of unknown length.
func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// readChunk reads one chunk; "" is the last.
func (c *client) readChunk() string {
	c.t.Helper()
	s, err := readChunk(c.Conn)
	if err != nil {
		c.t.Fatalf("read a chunk: %v", err)
	}
	return s
}

func readChunk(c *upstreamtest.Conn) (string, error) {
	line, err := c.ReadString('\n')
	if err != nil {
		return "", err
	}
	var n int
	if _, err := fmt.Sscanf(line, "%x", &n); err != nil {
		return "", err
	}
	if n == 0 { // what follows is the trailer section
		return "", nil
	}
	b := make([]byte, n+2)
	_, err = io.ReadFull(c, b)
	return string(b[:n]), err
}
