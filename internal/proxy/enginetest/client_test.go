package enginetest_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/leaktest"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// TestMain runs many tests in parallel, because most of them wait for timeouts or for
// connections to close, and checks for leaks at the end. A fuzz target has as many workers as usual.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		leaktest.Main(m)
		return
	}
	if err := flag.Set("test.parallel", "16"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leaktest.Main(m)
}

// testTimeout bounds every wait of a test. Reaching it is a failure.
const testTimeout = time.Minute

// client is a connection to a harness, over which a test sends the bytes itself.
type client struct {
	*upstreamtest.Conn
	t testing.TB
}

// dial connects to the harness. The client reports failures to t, which may be a subtest.
func (g *harness) dial(t testing.TB) *client {
	t.Helper()
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	t.Cleanup(func() { _ = conn.Close() })
	return &client{t: t, Conn: &upstreamtest.Conn{Conn: conn, Reader: bufio.NewReader(conn)}}
}

// request sends the head of a request: its line, Host, the key, and fields.
func (c *client) request(g *harness, line string, fields ...string) {
	c.Send(line + "\r\nHost: api.test\r\nAuthorization: Bearer " + g.key + "\r\n" + lines(fields) + "\r\n")
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
		c.t.Fatalf("reading a head: got %q, then %v", text, err)
	}
	return parse(text)
}

// wantHead reads the next head and checks its status.
func (c *client) wantHead(status string) head {
	c.t.Helper()
	h := c.head()
	if h.status() != status {
		c.t.Fatalf("got response\n%s\nwant status %s", h.text, status)
	}
	return h
}

// text reads n bytes.
func (c *client) text(n int) string {
	c.t.Helper()
	b := make([]byte, n)
	if n, err := io.ReadFull(c.Conn, b); err != nil {
		c.t.Fatalf("reading %d bytes: got %q, then %v", len(b), b[:n], err)
	}
	return string(b)
}

// wantText reads as many bytes as want has and checks that they are want.
func (c *client) wantText(want string) {
	c.t.Helper()
	if got := c.text(len(want)); got != want {
		c.t.Fatalf("got %q, want %q", got, want)
	}
}

// wantEnd checks that the connection ends properly after rest.
func (c *client) wantEnd(rest string) {
	c.t.Helper()
	if got, err := c.rest(); got != rest || err != nil {
		c.t.Errorf("got %q, error %v; want %q and the end of the connection", got, err, rest)
	}
}

// wantCutOff checks that nothing more arrives; the connection may end or be reset.
func (c *client) wantCutOff() {
	c.t.Helper()
	if got, _ := c.rest(); got != "" {
		c.t.Errorf("got %q, want nothing more", got)
	}
}

// rest reads until the connection ends.
func (c *client) rest() (string, error) {
	b, err := io.ReadAll(c.Conn)
	return string(b), err
}

// head is the head of a message as received.
type head struct {
	line   string
	fields map[string][]string // by name in lower case
	text   string
	body   string // of a response that wantRefusal read
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

// get returns the values of a field, joined by " | ". "" means that the field is absent.
func (h head) get(name string) string { return strings.Join(h.fields[name], " | ") }

// wantFields checks the values of fields, as get returns them.
func (h head) wantFields(t testing.TB, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := h.get(name); got != value {
			t.Errorf("%s: got %q, want %q", name, got, value)
		}
	}
}

// wantPresent checks that fields are present and not empty.
func (h head) wantPresent(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if h.get(name) == "" {
			t.Errorf("%s: got none, want a value\n%s", name, h.text)
		}
	}
}

func (h head) status() string {
	_, s, _ := strings.Cut(h.line, " ")
	return s[:min(3, len(s))]
}

// recorder is an upstream that keeps the heads of the requests it receives and sends
// response for each. It does not read bodies.
func recorder(t testing.TB, response string) (addr string, heads <-chan head) {
	t.Helper()
	seen := make(chan head, 100)
	return upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			text, err := c.ReadHead()
			if err != nil {
				return
			}
			seen <- parse(text)
			c.Send(response)
		}
	}), seen
}

// wantNone checks that no request has reached the upstream of recorder.
func wantNone(t testing.TB, heads <-chan head) {
	t.Helper()
	select {
	case h := <-heads:
		t.Errorf("a request reached the upstream, want none:\n%s", h.text)
	default:
	}
}

// empty is a response without a body.
const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// get makes a GET request with the key and returns the response and its body.
func (g *harness) get(path string) (*http.Response, string) {
	g.t.Helper()
	return g.do(http.DefaultTransport, "GET", path, nil)
}

// do makes a request with the key and returns the response and its body. fields are
// alternately names and values.
func (g *harness) do(transport http.RoundTripper, method, path string, body io.Reader, fields ...string) (*http.Response, string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.addr+path, body)
	if err != nil {
		g.t.Fatal(err)
	}
	if g.key != "" {
		req.Header.Set("Authorization", "Bearer "+g.key)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp, string(text)
}

// receive receives from a channel. It fails the test if nothing arrives within testTimeout.
func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(testTimeout):
		t.Fatalf("timed out waiting for %s", what)
		panic("unreachable")
	}
}

// chunk returns s as a chunk of the chunked coding.
func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// wantChunk reads a chunk and checks its data; "" is the last chunk.
func (c *client) wantChunk(want string) {
	c.t.Helper()
	if got, err := readChunk(c.Conn); err != nil || got != want {
		c.t.Fatalf("got chunk %q, error %v; want %q", got, err, want)
	}
}

// readChunk reads a chunk and returns its data, "" for the last chunk.
func readChunk(c *upstreamtest.Conn) (string, error) {
	line, err := c.ReadString('\n')
	if err != nil {
		return "", err
	}
	var n int
	if _, err := fmt.Sscanf(line, "%x", &n); err != nil {
		return "", err
	}
	if n == 0 { // the trailer section follows
		return "", nil
	}
	b := make([]byte, n+2)
	_, err = io.ReadFull(c, b)
	return string(b[:n]), err
}
