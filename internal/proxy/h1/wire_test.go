package h1

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// client is a connection to the engine that says and sees bytes.
type client struct {
	t testing.TB
	net.Conn
	*bufio.Reader
	key string
}

func (e *edge) dial() *client {
	e.t.Helper()
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		e.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	e.t.Cleanup(func() { _ = conn.Close() })
	return &client{t: e.t, Conn: conn, Reader: bufio.NewReader(conn), key: e.key}
}

func (c *client) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// say sends s, in which KEY stands for the field with the key.
func (c *client) say(s string) {
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
		c.t.Fatalf("no head: %v, after %q", err, h)
	}
	return h
}

func (c *client) bytes(n int) string {
	c.t.Helper()
	b := make([]byte, n)
	if n, err := io.ReadFull(c.Reader, b); err != nil {
		c.t.Fatalf("%v after %q", err, b[:n])
	}
	return string(b)
}

// rest returns what comes until the connection ends, and how it ends.
func (c *client) rest() (string, error) {
	b, err := io.ReadAll(c.Reader)
	return string(b), err
}

func (c *client) wantStatus(want string) string {
	c.t.Helper()
	h := c.head()
	if !strings.HasPrefix(h, "HTTP/1.1 "+want+" ") {
		c.t.Fatalf("want status %s, got\n%s", want, h)
	}
	return h
}

// upstreamOf is an upstream that answers each head with what answer returns
// for it; "" closes the connection. It sends every head to heads.
func upstreamOf(t testing.TB, answer func(head string, c *upstreamtest.Conn) string) (url string, heads chan string) {
	heads = make(chan string, 1000)
	return "http://" + upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			h, err := c.ReadHead()
			if err != nil {
				return
			}
			heads <- h
			a := answer(h, c)
			if a == "" {
				return
			}
			c.Send(a)
		}
	}), heads
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func always(answer string) func(string, *upstreamtest.Conn) string {
	return func(string, *upstreamtest.Conn) string { return answer }
}

// drivers runs f over the pump and over the blocking driver.
func drivers(t *testing.T, f func(t *testing.T, s setup)) {
	t.Run("pump", func(t *testing.T) { f(t, setup{limit: "1000000/s"}) })
	t.Run("blocking", func(t *testing.T) {
		f(t, setup{limit: "1000000/s", wrap: func(c net.Conn) net.Conn { return &wrapped{c.(*net.TCPConn)} }})
	})
}

// wrapped hides that a connection is of TCP, as TLS does.
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

// Guarantee: pipelined requests are answered in their order over one upstream
// connection, and a connection that is to be closed is.
func TestKeepAliveAndPipelining(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		n := 0
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			n = max(n, c.Number)
			return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + h[5:7]
		})
		c := start(t, s).dial()
		c.say(strings.Repeat("GET /a1 HTTP/1.1\r\nKEY\r\n\r\nGET /b2 HTTP/1.1\r\nKEY\r\n\r\n", 20) + "GET /c3 HTTP/1.1\r\nKEY\r\nConnection: close\r\n\r\n")
		for range 20 {
			c.wantStatus("200")
			if got := c.bytes(2); got != "a1" {
				t.Fatal(got)
			}
			c.wantStatus("200")
			if got := c.bytes(2); got != "b2" {
				t.Fatal(got)
			}
		}
		if h := c.wantStatus("200"); !strings.Contains(h, "Connection: close") {
			t.Error(h)
		}
		if got, err := c.rest(); got != "c3" || err != nil {
			t.Error(got, err)
		}
		if n != 1 {
			t.Error(n, "upstream connections")
		}
	})
}

// Guarantee: bodies pass in both framings, chunks are made anew without
// extensions, and the trailers of both sides pass only as they may.
func TestBodiesAndTrailers(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		bodies := make(chan string, 10)
		s.upstream = "http://" + upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			for {
				h, err := c.ReadHead()
				if err != nil {
					return
				}
				var b strings.Builder
				if strings.Contains(h, "Transfer-Encoding") {
					for !strings.HasSuffix(b.String(), "\r\n\r\n") {
						l, err := c.ReadString('\n')
						if err != nil {
							return
						}
						b.WriteString(l)
					}
				} else {
					_, _ = io.CopyN(&b, c, 5)
				}
				bodies <- h + "\n" + b.String()
				c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T, Set-Cookie\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\nSet-Cookie: no\r\nX-Request-Id: no\r\n\r\n")
			}
		})
		e := start(t, s)
		for _, split := range []bool{false, true} {
			c := e.dial()
			say := func(s string) {
				if !split {
					c.say(s)
					return
				}
				head, body, _ := strings.Cut(s, "\r\n\r\n")
				c.say(head + "\r\n\r\n")
				for i := range body {
					c.say(body[i : i+1])
				}
			}
			say("POST /l HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\nTE: trailers\r\n\r\nhello")
			got := <-bodies
			if !strings.HasSuffix(got, "\nhello") || !strings.Contains(got, "Content-Length: 5") {
				t.Errorf("%q", got)
			}
			if h := c.wantStatus("200"); !strings.Contains(h, "Trailer: X-T\r\n") {
				t.Errorf("%q", h)
			}
			var answer strings.Builder
			for !strings.HasSuffix(answer.String(), "\r\n\r\n") {
				answer.WriteString(c.bytes(1))
			}
			if a := answer.String(); !strings.HasSuffix(a, "\r\n0\r\nX-T: 1\r\n\r\n") || strings.Contains(a, "ext") {
				t.Errorf("%q", a)
			}
			say("POST /c HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n4;e=\"x\"\r\nWiki\r\n1\r\n!\r\n0\r\nX-A: b\r\nX_Keygate-Key: evil\r\nHost: evil\r\n\r\n")
			got = <-bodies
			if !strings.HasSuffix(got, "\r\n0\r\nX-A: b\r\n\r\n") || strings.Contains(got, "e=") {
				t.Errorf("%q", got)
			}
			if h := c.wantStatus("200"); strings.Contains(h, "Trailer") {
				t.Errorf("%q", h)
			}
			answer.Reset()
			for !strings.HasSuffix(answer.String(), "\r\n\r\n") {
				answer.WriteString(c.bytes(1))
			}
			if a := answer.String(); !strings.HasSuffix(a, "\r\n0\r\n\r\n") {
				t.Errorf("%q", a)
			}
		}
	})
}

// Guarantee: a client of HTTP/1.0 gets no chunks and no 1xx; the end of the
// connection ends a body without length, and a reset one that broke.
func TestOldClient(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		seen := make(chan bool)
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if strings.HasPrefix(h, "GET /broken") {
				c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
				<-seen
				return "x\r\n"
			}
			return "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
		})
		e := start(t, s)
		c := e.dial()
		c.say("GET /a HTTP/1.0\r\nKEY\r\nConnection: keep-alive\r\n\r\n")
		if h := c.wantStatus("200"); strings.Contains(h, "chunked") {
			t.Error(h)
		}
		if got, err := c.rest(); got != "hello" || err != nil {
			t.Errorf("%q %v", got, err)
		}
		c = e.dial()
		c.say("GET /broken HTTP/1.0\r\nKEY\r\n\r\n")
		c.wantStatus("200")
		c.bytes(5)
		close(seen)
		if got, err := c.rest(); err == nil {
			t.Errorf("%q ended cleanly", got)
		}
	})
}

// Guarantee: HEAD, 204 and 304 have no body whatever their fields say, and the
// connections go on.
func TestAnswersWithoutBody(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, _ *upstreamtest.Conn) string {
			line, _, _ := strings.Cut(h, " HTTP")
			switch line {
			case "HEAD /a":
				return "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n"
			case "GET /b":
				return "HTTP/1.1 204 No Content\r\n\r\n"
			case "GET /c":
				return "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n"
			}
			return okAnswer
		})
		c := start(t, s).dial()
		c.say("HEAD /a HTTP/1.1\r\nKEY\r\n\r\nGET /b HTTP/1.1\r\nKEY\r\n\r\nGET /c HTTP/1.1\r\nKEY\r\n\r\nGET /d HTTP/1.1\r\nKEY\r\n\r\n")
		if h := c.wantStatus("200"); !strings.Contains(h, "Content-Length: 77") {
			t.Error(h)
		}
		c.wantStatus("204")
		c.wantStatus("304")
		c.wantStatus("200")
		if got := c.bytes(2); got != "ok" {
			t.Error(got)
		}
	})
}

// Guarantee: Expect is passed on and the upstream's 100 relayed; a refused
// request gets its answer without a 100.
func TestExpect(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if !strings.Contains(h, "Expect: 100-continue") {
				return "HTTP/1.1 500 no expect\r\nContent-Length: 0\r\n\r\n"
			}
			c.Send("HTTP/1.1 100 Continue\r\n\r\n")
			b := make([]byte, 4)
			if _, err := io.ReadFull(c, b); err != nil {
				return ""
			}
			return "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + string(b)
		})
		e := start(t, s)
		c := e.dial()
		c.say("PUT /a HTTP/1.1\r\nKEY\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
		c.wantStatus("100")
		c.say("body")
		c.wantStatus("200")
		if got := c.bytes(4); got != "body" {
			t.Error(got)
		}
		c.say("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
		if h := c.wantStatus("401"); !strings.Contains(h, "Connection: close") {
			t.Error(h)
		}
	})
}

// Guarantee: a client that got its leave to send a body from the engine does not
// get another one when the upstream gives it after all.
func TestOneInvitation(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.invite = time.Nanosecond
		goOn := make(chan bool)
		s.upstream, _ = upstreamOf(t, func(_ string, c *upstreamtest.Conn) string {
			<-goOn
			c.Send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
			if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
				return ""
			}
			return okAnswer
		})
		c := start(t, s).dial()
		c.say("PUT /a HTTP/1.1\r\nKEY\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
		c.wantStatus("100")
		goOn <- true
		c.wantStatus("103")
		c.say("body")
		c.wantStatus("200")
	})
}

// Guarantee: a client that waits for leave to send its body gets it once, from
// the engine if the upstream says nothing, and its answer after it.
func TestInvitation(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.invite = 50 * time.Millisecond
		s.upstream, _ = upstreamOf(t, func(_ string, c *upstreamtest.Conn) string {
			b := make([]byte, 4)
			if _, err := io.ReadFull(c, b); err != nil {
				return ""
			}
			return "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + string(b)
		})
		c := start(t, s).dial()
		for range 2 {
			c.say("PUT /a HTTP/1.1\r\nKEY\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
			c.wantStatus("100")
			c.say("body")
			c.wantStatus("200")
			if got := c.bytes(4); got != "body" {
				t.Error(got)
			}
		}
	})
}

// Guarantee: TRACE and CONNECT are 405 before any other check, however long.
func TestNeverAllowed(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, always(okAnswer))
		e := start(t, s)
		for _, request := range []string{
			"TRACE /" + strings.Repeat("a", 20_000) + " HTTP/1.1\r\nHost: a\r\n\r\n",
			"\r\nCONNECT a:1 HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("A: b\r\n", 101) + "\r\n",
			"TRACE /a HTTP/1.1\r\nHost: a\r\n\r\n",
		} {
			c := e.dial()
			c.say(request)
			if h := c.wantStatus("405"); !strings.Contains(h, "Allow: GET") {
				t.Error(h)
			}
		}
	})
}

// Guarantee: fields of framing in a trailer section are dropped; they change
// nothing.
func TestFramingInTrailers(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		got := make(chan string, 1)
		s.upstream, _ = upstreamOf(t, func(_ string, c *upstreamtest.Conn) string {
			all := ""
			for !strings.HasSuffix(all, "\r\n\r\n") {
				line, err := c.ReadString('\n')
				if err != nil {
					return ""
				}
				all += line
			}
			got <- all
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nTransfer-Encoding: gzip\r\nContent-Length: x\r\nX-T: 1\r\n\r\n"
		})
		c := start(t, s).dial()
		for range 2 {
			c.say("POST /a HTTP/1.1\r\nKEY\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nContent-Length: 7\r\nContent-Length: 8\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n")
			c.wantStatus("200")
			if text := <-got; !strings.HasSuffix(text, "\r\n0\r\nX-A: b\r\n\r\n") {
				t.Errorf("the upstream got %q", text)
			}
			if text := c.bytes(len("1\r\na\r\n0\r\nX-T: 1\r\n\r\n")); text != "1\r\na\r\n0\r\nX-T: 1\r\n\r\n" {
				t.Errorf("the client got %q", text)
			}
		}
	})
}

// Guarantee: an upgrade becomes a tunnel of bytes in which each side may end
// its direction by itself; an answer that was not asked for is 502.
func TestUpgrade(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if !strings.Contains(h, "Upgrade: echo") {
				return "HTTP/1.1 101 Switching\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
			}
			c.Send("HTTP/1.1 101 Switching\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nfirst")
			b, _ := io.ReadAll(c)
			c.Send("[" + string(b) + "]")
			return ""
		})
		e := start(t, s)
		c := e.dial()
		c.say("GET /a HTTP/1.1\r\nKEY\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly")
		if h := c.wantStatus("101"); !strings.Contains(h, "Upgrade: echo") || !strings.Contains(h, "Connection: Upgrade") {
			t.Error(h)
		}
		if got := c.bytes(5); got != "first" {
			t.Error(got)
		}
		c.say(" late")
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		if got, err := c.rest(); got != "[early late]" || err != nil {
			t.Error(got, err)
		}
		c = e.dial()
		c.say("GET /a HTTP/1.1\r\nKEY\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x\r\nUpgrade: h2c\r\n\r\n")
		c.wantStatus("502")
	})
}

// Guarantee: both directions of one exchange stream at once, piece by piece.
func TestBothDirectionsAtOnce(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(_ string, c *upstreamtest.Conn) string {
			c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for {
				size, err := c.ReadString('\n')
				if err != nil {
					return ""
				}
				line, err := c.ReadString('\n')
				if err != nil {
					return ""
				}
				c.Send(size + line)
				if size == "0\r\n" {
					return "\r\n"[:0]
				}
			}
		})
		c := start(t, s).dial()
		c.say("POST /a HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n")
		c.wantStatus("200")
		for range 50 {
			c.say("4\r\nping\r\n")
			if got := c.bytes(9); got != "4\r\nping\r\n" {
				t.Fatalf("%q", got)
			}
		}
		c.say("0\r\n\r\n")
		if got := c.bytes(5); got != "0\r\n\r\n" {
			t.Fatalf("%q", got)
		}
	})
}

// Guarantee: a connection goes on however full its buffer was.
func TestBufferExactlyFull(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			_, after, _ := strings.Cut(h, "Content-Length: ")
			n, _, _ := strings.Cut(after, "\r\n")
			if size, err := strconv.Atoi(n); err == nil {
				_, _ = io.CopyN(io.Discard, c, int64(size))
			}
			return okAnswer
		})
		e := start(t, s)
		for extra := -3; extra <= 3; extra++ {
			c := e.dial()
			for _, whole := range []int{inSize, 2 * inSize} {
				head := "GET /a HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + e.key + "\r\nX-Fill: "
				c.say(head + strings.Repeat("x", whole+extra-len(head)-4) + "\r\n\r\n")
				c.wantStatus("200")
				c.bytes(2)
				head = "POST /a HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + e.key + "\r\nContent-Length: 7000\r\nX-Fill: "
				c.say(head + strings.Repeat("x", whole+extra-len(head)-4-7000) + "\r\n\r\n" + strings.Repeat("y", 7000))
				c.wantStatus("200")
				c.bytes(2)
			}
		}
	})
}

// Guarantee: large bodies pass whole in both directions.
func TestLargeBodies(t *testing.T) {
	const size = 8 << 20
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if strings.HasPrefix(h, "PUT") {
				n, _ := io.CopyN(io.Discard, c, size)
				if n != size {
					return ""
				}
				return okAnswer
			}
			c.Send("HTTP/1.1 200 OK\r\nContent-Length: 8388608\r\n\r\n")
			piece := strings.Repeat("0123456789abcdef", 4096)
			for range size / len(piece) {
				c.Send(piece)
			}
			return "HTTP/1.1 200 late\r\n"[:0] + "\r\n"[:0]
		})
		c := start(t, s).dial()
		c.say("PUT /a HTTP/1.1\r\nKEY\r\nContent-Length: 8388608\r\n\r\n")
		go func() { _, _ = io.Copy(c.Conn, io.LimitReader(zeros{}, size)) }()
		c.wantStatus("200")
		c.bytes(2)
		c.say("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantStatus("200")
		got := c.bytes(size)
		if got != strings.Repeat("0123456789abcdef", size/16) {
			t.Error("the body came changed")
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Guarantee: what cannot be read is refused with the JSON body, an identifier
// and the end of the connection.
func TestMalformed(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		var heads chan string
		s.upstream, heads = upstreamOf(t, always(okAnswer))
		e := start(t, s)
		long := strings.Repeat("x", 17<<10)
		for request, status := range map[string]string{
			"GET / HTTP/1.1\nHost: a\n\n": "400",
			"GET / HTTP/1.1\r\n\r\n":      "400",
			"GET / HTTP/1.1\r\nKEY\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n": "400",
			"GET / HTTP/2.0\r\nKEY\r\n\r\n":                                               "505",
			"GET /" + long + " HTTP/1.1\r\nKEY\r\n\r\n":                                   "414",
			"GET / HTTP/1.1\r\nKEY\r\n" + strings.Repeat("X-A: "+long+"\r\n", 4) + "\r\n": "431",
			"GET / HTTP/1.1\r\nKEY\r\n" + strings.Repeat("X-A: b\r\n", 100) + "\r\n":      "431",
			"CONNECT a:1 HTTP/1.1\r\nKEY\r\n\r\n":                                         "405",
			"GET /a/../b HTTP/1.1\r\nKEY\r\n\r\n":                                         "400",
			"OPTIONS * HTTP/1.1\r\nKEY\r\n\r\n":                                           "400",
			"POST / HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n":          "400",
		} {
			c := e.dial()
			c.say(request)
			h := c.wantStatus(status)
			body, err := c.rest()
			if !strings.Contains(h, "X-Request-Id: req_") || !strings.Contains(h, "Connection: close") || !strings.Contains(body, `"request_id":"req_`) || err != nil {
				t.Errorf("%.60q: %s\n%s %v", request, h, body, err)
			}
		}
		select {
		case h := <-heads:
			t.Errorf("the upstream got %q", h)
		default:
		}
	})
}

// Guarantee: a refused request does not wait for its body, which is read away
// if it is small, else the connection closes; the answer arrives in both cases.
func TestRefusedBodies(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if strings.Contains(h, "chunked") {
				_, _ = io.Copy(io.Discard, c)
			}
			return okAnswer
		})
		s.maxBody = 100 << 10
		e := start(t, s)
		c := e.dial()
		c.say("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n")
		h := c.wantStatus("401")
		if strings.Contains(h, "Connection: close") {
			t.Error(h)
		}
		c.body(h)
		c.say(strings.Repeat("x", 20000) + "GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantStatus("200")

		c = e.dial()
		c.say("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n" + strings.Repeat("x", 60000))
		if h := c.wantStatus("401"); !strings.Contains(h, "Connection: close") {
			t.Error(h)
		}
		if _, err := c.rest(); err != nil {
			t.Error(err)
		}
		c = e.dial()
		c.say("POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 102401\r\n\r\n")
		c.wantStatus("413")
		c = e.dial()
		c.say("POST /a HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
		c.say("20000\r\n" + strings.Repeat("x", 0x20000))
		c.wantStatus("413")
	})
}

// body returns the body of the answer with a head, which has a length.
func (c *client) body(head string) string {
	c.t.Helper()
	_, after, _ := strings.Cut(head, "Content-Length: ")
	n := 0
	for i := 0; i < len(after) && after[i] >= '0' && after[i] <= '9'; i++ {
		n = n*10 + int(after[i]-'0')
	}
	return c.bytes(n)
}

// Guarantee: a request is sent once more exactly if it may be and a reused
// connection failed before any byte of an answer.
func TestStaleConnections(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream = "http://" + upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			for {
				h, err := c.ReadHead()
				if err != nil || strings.HasPrefix(h, "GET /stop") && c.Number == 1 || strings.HasPrefix(h, "POST /stop") {
					return
				}
				c.Send(okAnswer)
			}
		})
		c := start(t, s).dial()
		c.say("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantStatus("200")
		c.bytes(2)
		c.say("GET /stop HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantStatus("200")
		c.bytes(2)
		c.say("POST /stop HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantStatus("502")
	})
}

// Guarantee: an answer that breaks off never ends cleanly for the client.
func TestBrokenAnswers(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			switch {
			case strings.HasPrefix(h, "GET /length"):
				c.Send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
			case strings.HasPrefix(h, "GET /chunked"):
				c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
			case strings.HasPrefix(h, "GET /head"):
				c.Send("HTTP/1.1 200 OK\r\nContent-Le")
			case strings.HasPrefix(h, "GET /bad"):
				c.Send("HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n")
			case strings.HasPrefix(h, "GET /close"):
				c.Send("HTTP/1.1 200 OK\r\n\r\nhello")
			}
			return ""
		})
		e := start(t, s)
		for path, want := range map[string]string{"length": "hello", "chunked": "5\r\nhello\r\n", "close": "5\r\nhello\r\n0\r\n\r\n"} {
			c := e.dial()
			c.say("GET /" + path + " HTTP/1.1\r\nKEY\r\nConnection: close\r\n\r\n")
			c.wantStatus("200")
			if got, _ := c.rest(); got != want {
				t.Errorf("%s: %q", path, got)
			}
		}
		for _, path := range []string{"head", "bad", "nothing"} {
			c := e.dial()
			c.say("GET /" + path + " HTTP/1.1\r\nKEY\r\n\r\n")
			c.wantStatus("502")
		}
	})
}

// Guarantee: a request that has come through this instance is refused.
func TestLoop(t *testing.T) {
	s := setup{limit: "1000000/s"}
	s.upstream, _ = upstreamOf(t, always(okAnswer))
	c := start(t, s).dial()
	c.say("GET /a HTTP/1.1\r\nKEY\r\nVia: 1.1 other, 1.1 keygate-test (x)\r\n\r\n")
	c.wantStatus("502")
}

// Guarantee: Shutdown closes idle connections at once, lets what runs end with
// Connection: close, and cuts off what remains.
func TestShutdown(t *testing.T) {
	drivers(t, func(t *testing.T, s setup) {
		release, never := make(chan bool), make(chan bool)
		defer close(never)
		var heads chan string
		s.upstream, heads = upstreamOf(t, func(h string, _ *upstreamtest.Conn) string {
			switch {
			case strings.HasPrefix(h, "GET /run"):
				<-release
			case strings.HasPrefix(h, "GET /stuck"):
				<-never
			}
			return okAnswer
		})
		e := start(t, s)
		idle, running, stuck := e.dial(), e.dial(), e.dial()
		idle.say("GET /now HTTP/1.1\r\nKEY\r\n\r\n")
		idle.wantStatus("200")
		idle.bytes(2)
		running.say("GET /run HTTP/1.1\r\nKEY\r\n\r\n")
		stuck.say("GET /stuck HTTP/1.1\r\nKEY\r\n\r\n")
		<-heads
		<-heads
		<-heads
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan bool)
		go func() {
			e.stop(ctx)
			close(done)
		}()
		if _, err := idle.rest(); err != nil {
			t.Error(err)
		}
		close(release)
		if h := running.wantStatus("200"); !strings.Contains(h, "Connection: close") {
			t.Error(h)
		}
		_ = running.Close()
		cancel()
		<-done
		if _, err := stuck.ReadByte(); err == nil {
			t.Error("the rest was not cut off")
		}
	})
}
