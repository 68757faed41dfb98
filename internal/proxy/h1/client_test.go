package h1

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// client is a connection to the engine over which a test sends the bytes itself.
type client struct {
	t testing.TB
	net.Conn
	*bufio.Reader
	key string
}

// connect opens a TCP connection to the engine, which is closed at the end of the test.
func (g *harness) connect(t testing.TB) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// dial connects to the engine. The client reports failures to t, which may be a subtest.
func (g *harness) dial(t testing.TB) *client {
	t.Helper()
	conn := g.connect(t)
	if g.tls != nil {
		over := tls.Client(conn, g.tls)
		if err := over.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		conn = over
	}
	return &client{t: t, Conn: conn, Reader: bufio.NewReader(conn), key: g.key}
}

func (c *client) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// send sends s, in which KEY stands for the Host field and the field with the key.
func (c *client) send(s string) {
	c.t.Helper()
	s = strings.ReplaceAll(s, "KEY", "Host: api.test\r\nAuthorization: Bearer "+c.key)
	if _, err := io.WriteString(c.Conn, s); err != nil {
		c.t.Fatal(err)
	}
}

// head returns the next head, without the empty line.
func (c *client) head() string {
	c.t.Helper()
	u := upstreamtest.Conn{Conn: c.Conn, Reader: c.Reader}
	h, err := u.ReadHead()
	if err != nil {
		c.t.Fatalf("reading a head: got %q, then %v", h, err)
	}
	return h
}

// bytes reads n bytes.
func (c *client) bytes(n int) string {
	c.t.Helper()
	b := make([]byte, n)
	if n, err := io.ReadFull(c.Reader, b); err != nil {
		c.t.Fatalf("reading %d bytes: got %q, then %v", len(b), b[:n], err)
	}
	return string(b)
}

// wantBytes reads as many bytes as want has and checks that they are want.
func (c *client) wantBytes(want string) {
	c.t.Helper()
	if got := c.bytes(len(want)); got != want {
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

// rest reads until the connection ends.
func (c *client) rest() (string, error) {
	b, err := io.ReadAll(c.Reader)
	return string(b), err
}

// wantStatus reads the next head and checks its status.
func (c *client) wantStatus(want string) string {
	c.t.Helper()
	h := c.head()
	if !strings.HasPrefix(h, "HTTP/1.1 "+want+" ") {
		c.t.Fatalf("got response\n%s\nwant status %s", h, want)
	}
	return h
}

// wantResponse reads a response with a Content-Length and checks its status and body.
func (c *client) wantResponse(status, body string) {
	c.t.Helper()
	if got := c.body(c.wantStatus(status)); got != body {
		c.t.Fatalf("got body %q, want %q", got, body)
	}
}

// wantIn checks that a text contains each of parts.
func wantIn(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("got %q, want it to contain %q", text, part)
		}
	}
}

// wantNotIn checks that a text contains none of parts.
func wantNotIn(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("got %q, want it not to contain %q", text, part)
		}
	}
}

// wantSuffix checks that a text ends with suffix.
func wantSuffix(t testing.TB, text, suffix string) {
	t.Helper()
	if !strings.HasSuffix(text, suffix) {
		t.Errorf("got %q, want it to end with %q", text, suffix)
	}
}

// upstreamOf starts an upstream that sends to each head what respond returns for it; ""
// closes the connection. heads receives every head.
func upstreamOf(t testing.TB, respond func(head string, c *upstreamtest.Conn) string) (url string, heads chan string) {
	heads = make(chan string, 1000)
	return "http://" + upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			h, err := c.ReadHead()
			if err != nil {
				return
			}
			heads <- h
			response := respond(h, c)
			if response == "" {
				return
			}
			c.Send(response)
		}
	}), heads
}

// okResponse is a small response.
const okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// always is a function for upstreamOf that returns the same response for every head.
func always(response string) func(string, *upstreamtest.Conn) string {
	return func(string, *upstreamtest.Conn) string { return response }
}

// modes runs f over the pump, in clear and over TLS, and over blocking reads and writes, in parallel.
func modes(t *testing.T, f func(t *testing.T, s setup)) {
	t.Run("pump", func(t *testing.T) {
		t.Parallel()
		f(t, setup{limit: "1000000/s"})
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		f(t, setup{limit: "1000000/s", tls: tls.VersionTLS13})
	})
	t.Run("blocking", func(t *testing.T) {
		t.Parallel()
		f(t, setup{limit: "1000000/s", wrap: func(c net.Conn) net.Conn { return &wrapped{c.(*net.TCPConn)} }})
	})
}

// wrapped hides that a connection is a TCP connection.
type wrapped struct{ tcp *net.TCPConn }

func (w *wrapped) Read(p []byte) (int, error)         { return w.tcp.Read(p) }
func (w *wrapped) Write(p []byte) (int, error)        { return w.tcp.Write(p) }
func (w *wrapped) Close() error                       { return w.tcp.Close() }
func (w *wrapped) CloseWrite() error                  { return w.tcp.CloseWrite() }
func (w *wrapped) LocalAddr() net.Addr                { return w.tcp.LocalAddr() }
func (w *wrapped) RemoteAddr() net.Addr               { return w.tcp.RemoteAddr() }
func (w *wrapped) SetDeadline(t time.Time) error      { return w.tcp.SetDeadline(t) }
func (w *wrapped) SetReadDeadline(t time.Time) error  { return w.tcp.SetReadDeadline(t) }
func (w *wrapped) SetWriteDeadline(t time.Time) error { return w.tcp.SetWriteDeadline(t) }
func (w *wrapped) NetConn() net.Conn                  { return w.tcp }

// body reads the body of the response with the given head, which has a Content-Length.
func (c *client) body(head string) string {
	c.t.Helper()
	_, after, _ := strings.Cut(head+"\r\n", "Content-Length: ")
	value, _, _ := strings.Cut(after, "\r\n")
	n, err := strconv.Atoi(value)
	if err != nil {
		c.t.Fatalf("got response\n%s\nwant a Content-Length", head)
	}
	return c.bytes(n)
}
