package h1

import (
	"context"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: pipelined requests get their responses in order, over one upstream
// connection, and the connection ends after a request with Connection: close.
func TestKeepAliveAndPipelining(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		conns := 0
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			conns = max(conns, c.Number)
			return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + h[5:7]
		})
		c := start(t, s).dial(t)
		c.send(strings.Repeat("GET /a1 HTTP/1.1\r\nKEY\r\n\r\nGET /b2 HTTP/1.1\r\nKEY\r\n\r\n", 20) + "GET /c3 HTTP/1.1\r\nKEY\r\nConnection: close\r\n\r\n")
		for range 20 {
			c.wantResponse("200", "a1")
			c.wantResponse("200", "b2")
		}
		wantIn(t, c.wantStatus("200"), "Connection: close")
		c.wantEnd("c3")
		if conns != 1 {
			t.Errorf("got %d upstream connections, want 1", conns)
		}
	})
}

// bodies starts an upstream that sends the head and body of each request to got, and
// responds with chunks, extensions and trailers.
func bodies(t *testing.T) (url string, got chan string) {
	got = make(chan string, 10)
	return "http://" + upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
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
			got <- h + "\n" + b.String()
			c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T, Set-Cookie\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\nSet-Cookie: no\r\nX-Request-Id: no\r\n\r\n")
		}
	}), got
}

// chunkedBody reads a chunked body with its trailer section, undecoded.
func (c *client) chunkedBody() string {
	c.t.Helper()
	var body strings.Builder
	for !strings.HasSuffix(body.String(), "\r\n\r\n") {
		body.WriteString(c.bytes(1))
	}
	return body.String()
}

// Guarantee: bodies are forwarded in both framings, however they are split. Chunks are re-encoded
// without extensions, and only permitted trailers pass, to a client that accepts them.
func TestBodiesAndTrailers(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		var got chan string
		s.upstream, got = bodies(t)
		g := start(t, s)
		for name, bytewise := range map[string]bool{"whole": false, "byte by byte": true} {
			c := g.dial(t)
			send := func(s string) {
				head, body, _ := strings.Cut(s, "\r\n\r\n")
				if !bytewise {
					c.send(s)
					return
				}
				c.send(head + "\r\n\r\n")
				for i := range body {
					c.send(body[i : i+1])
				}
			}
			t.Run("Content-Length, "+name, func(t *testing.T) {
				send("POST /l HTTP/1.1\r\nKEY\r\nContent-Length: 5\r\nTE: trailers\r\n\r\nhello")
				request := <-got
				wantSuffix(t, request, "\nhello")
				wantIn(t, request, "Content-Length: 5")
				wantIn(t, c.wantStatus("200"), "Trailer: X-T\r\n")
				response := c.chunkedBody()
				wantSuffix(t, response, "\r\n0\r\nX-T: 1\r\n\r\n")
				wantNotIn(t, response, "ext")
			})
			t.Run("chunked, "+name, func(t *testing.T) {
				send("POST /c HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n4;e=\"x\"\r\nWiki\r\n1\r\n!\r\n0\r\nX-A: b\r\nX_Keygate-Key: evil\r\nHost: evil\r\n\r\n")
				request := <-got
				wantSuffix(t, request, "\r\n0\r\nX-A: b\r\n\r\n")
				wantNotIn(t, request, "e=")
				wantNotIn(t, c.wantStatus("200"), "Trailer")
				wantSuffix(t, c.chunkedBody(), "\r\n0\r\n\r\n")
			})
		}
	})
}

// Guarantee: an HTTP/1.0 client gets no chunks and no 1xx; the end of the connection ends a body
// without a length, and a reset ends a body that was broken off.
func TestHTTP10Client(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		seen := make(chan bool)
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if strings.HasPrefix(h, "GET /broken") {
				c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
				<-seen
				return "x\r\n"
			}
			return "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
		})
		g := start(t, s)
		c := g.dial(t)
		c.send("GET /a HTTP/1.0\r\nKEY\r\nConnection: keep-alive\r\n\r\n")
		wantNotIn(t, c.wantStatus("200"), "chunked")
		c.wantEnd("hello")

		c = g.dial(t)
		c.send("GET /broken HTTP/1.0\r\nKEY\r\n\r\n")
		c.wantStatus("200")
		c.bytes(5)
		close(seen)
		if got, err := c.rest(); err == nil {
			t.Errorf("broken body: got %q and a proper end, want a reset", got)
		}
	})
}

// Guarantee: responses to HEAD, and responses with status 204 or 304, have no body, whatever their
// fields say, and the connections are reused.
func TestResponsesWithoutBody(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
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
			return okResponse
		})
		c := start(t, s).dial(t)
		c.send("HEAD /a HTTP/1.1\r\nKEY\r\n\r\nGET /b HTTP/1.1\r\nKEY\r\n\r\nGET /c HTTP/1.1\r\nKEY\r\n\r\nGET /d HTTP/1.1\r\nKEY\r\n\r\n")
		wantIn(t, c.wantStatus("200"), "Content-Length: 77")
		c.wantStatus("204")
		c.wantStatus("304")
		c.wantResponse("200", "ok")
	})
}

// Guarantee: Expect is forwarded and the upstream's 100 passes; a refused request gets its
// response without a 100.
func TestExpect(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
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
		g := start(t, s)
		c := g.dial(t)
		c.send("PUT /a HTTP/1.1\r\nKEY\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
		c.wantStatus("100")
		c.send("body")
		c.wantResponse("200", "body")
		c.send("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
		wantIn(t, c.wantStatus("401"), "Connection: close")
	})
}

// Guarantee: after the engine has sent a 100 itself, a late 100 of the upstream does not
// reach the client.
func TestLate100IsDropped(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.continueTimeout = time.Nanosecond
		goOn := make(chan bool)
		s.upstream, _ = upstreamOf(t, func(_ string, c *upstreamtest.Conn) string {
			<-goOn
			c.Send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
			if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
				return ""
			}
			return okResponse
		})
		c := start(t, s).dial(t)
		c.send("PUT /a HTTP/1.1\r\nKEY\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
		c.wantStatus("100")
		goOn <- true
		c.wantStatus("103")
		c.send("body")
		c.wantStatus("200")
	})
}

// Guarantee: if the upstream sends no 100 in time, the engine sends one itself, and the
// response follows.
func TestContinueTimeout(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.continueTimeout = 50 * time.Millisecond
		s.upstream, _ = upstreamOf(t, func(_ string, c *upstreamtest.Conn) string {
			b := make([]byte, 4)
			if _, err := io.ReadFull(c, b); err != nil {
				return ""
			}
			return "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + string(b)
		})
		c := start(t, s).dial(t)
		for range 2 {
			c.send("PUT /a HTTP/1.1\r\nKEY\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
			c.wantStatus("100")
			c.send("body")
			c.wantResponse("200", "body")
		}
	})
}

// Guarantee: TRACE and CONNECT are a 405 before any other check, even of the limits on the
// head.
func TestTraceAndConnectAre405(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, always(okResponse))
		g := start(t, s)
		for _, request := range []string{
			"TRACE /" + strings.Repeat("a", 20_000) + " HTTP/1.1\r\nHost: a\r\n\r\n",
			"\r\nCONNECT a:1 HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("A: b\r\n", 101) + "\r\n",
			"TRACE /a HTTP/1.1\r\nHost: a\r\n\r\n",
		} {
			c := g.dial(t)
			c.send(request)
			wantIn(t, c.wantStatus("405"), "Allow: GET")
		}
	})
}

// Guarantee: framing fields in a trailer section are dropped and have no effect.
func TestFramingFieldsInTrailersAreDropped(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
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
		c := start(t, s).dial(t)
		for range 2 {
			c.send("POST /a HTTP/1.1\r\nKEY\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nContent-Length: 7\r\nContent-Length: 8\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n")
			c.wantStatus("200")
			wantSuffix(t, <-got, "\r\n0\r\nX-A: b\r\n\r\n")
			c.wantBytes("1\r\na\r\n0\r\nX-T: 1\r\n\r\n")
		}
	})
}

// Guarantee: an upgrade becomes a tunnel of bytes in which each side may end its direction
// separately; a 101 that was not requested is a 502.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if !strings.Contains(h, "Upgrade: echo") {
				return "HTTP/1.1 101 Switching\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
			}
			c.Send("HTTP/1.1 101 Switching\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nfirst")
			b, _ := io.ReadAll(c)
			c.Send("[" + string(b) + "]")
			return ""
		})
		g := start(t, s)
		c := g.dial(t)
		c.send("GET /a HTTP/1.1\r\nKEY\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly")
		wantIn(t, c.wantStatus("101"), "Upgrade: echo", "Connection: Upgrade")
		c.wantBytes("first")
		c.send(" late")
		_ = proxy.TCPOf(c.Conn).CloseWrite()
		c.wantEnd("[early late]")
		c = g.dial(t)
		c.send("GET /a HTTP/1.1\r\nKEY\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x\r\nUpgrade: h2c\r\n\r\n")
		c.wantStatus("502")
	})
}

// Guarantee: the bodies of a request and its response stream at the same time, and each
// piece passes at once.
func TestBodiesPassInBothDirections(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
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
					return ""
				}
			}
		})
		c := start(t, s).dial(t)
		c.send("POST /a HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n")
		c.wantStatus("200")
		for range 50 {
			c.send("4\r\nping\r\n")
			c.wantBytes("4\r\nping\r\n")
		}
		c.send("0\r\n\r\n")
		c.wantBytes("0\r\n\r\n")
	})
}

// Guarantee: requests that fill a connection's buffer exactly, or miss it by a few bytes,
// are served, and the connection is reused.
func TestBufferExactlyFull(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			_, after, _ := strings.Cut(h, "Content-Length: ")
			n, _, _ := strings.Cut(after, "\r\n")
			if size, err := strconv.Atoi(n); err == nil {
				_, _ = io.CopyN(io.Discard, c, int64(size))
			}
			return okResponse
		})
		g := start(t, s)
		for extra := -3; extra <= 3; extra++ {
			c := g.dial(t)
			for _, whole := range []int{inputSize, 2 * inputSize} {
				head := "GET /a HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + g.key + "\r\nX-Fill: "
				c.send(head + strings.Repeat("x", whole+extra-len(head)-4) + "\r\n\r\n")
				c.wantStatus("200")
				c.bytes(2)
				head = "POST /a HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " + g.key + "\r\nContent-Length: 7000\r\nX-Fill: "
				c.send(head + strings.Repeat("x", whole+extra-len(head)-4-7000) + "\r\n\r\n" + strings.Repeat("y", 7000))
				c.wantStatus("200")
				c.bytes(2)
			}
		}
	})
}

// Guarantee: large bodies pass whole in both directions.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if strings.HasPrefix(h, "PUT") {
				n, _ := io.CopyN(io.Discard, c, size)
				if n != size {
					return ""
				}
				return okResponse
			}
			c.Send("HTTP/1.1 200 OK\r\nContent-Length: 8388608\r\n\r\n")
			piece := strings.Repeat("0123456789abcdef", 4096)
			for range size / len(piece) {
				c.Send(piece)
			}
			return ""
		})
		c := start(t, s).dial(t)
		c.send("PUT /a HTTP/1.1\r\nKEY\r\nContent-Length: 8388608\r\n\r\n")
		go func() { _, _ = io.Copy(c.Conn, io.LimitReader(zeros{}, size)) }()
		c.wantStatus("200")
		c.bytes(2)
		c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantStatus("200")
		got := c.bytes(size)
		if got != strings.Repeat("0123456789abcdef", size/16) {
			t.Error("the body was changed")
		}
	})
}

// zeros is an endless stream of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Guarantee: malformed requests get an error response with an identifier and the JSON body,
// the connection ends, and nothing reaches the upstream.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		var heads chan string
		s.upstream, heads = upstreamOf(t, always(okResponse))
		g := start(t, s)
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
			c := g.dial(t)
			c.send(request)
			h := c.wantStatus(status)
			body, err := c.rest()
			if err != nil {
				t.Errorf("%.60q: got error %v, want the end of the connection", request, err)
			}
			wantIn(t, h, "X-Request-Id: req_", "Connection: close")
			wantIn(t, body, `"request_id":"req_`)
		}
		select {
		case h := <-heads:
			t.Errorf("the upstream received %q, want nothing", h)
		default:
		}
	})
}

// Guarantee: an error response does not wait for the request's body. A small body is read
// and discarded, and the connection is reused; after a large body it closes. The response arrives
// in both cases.
func TestRefusalDoesNotWaitForBody(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, always(okResponse))
		g := start(t, s)
		t.Run("small", func(t *testing.T) {
			c := g.dial(t)
			c.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n")
			h := c.wantStatus("401")
			wantNotIn(t, h, "Connection: close")
			c.body(h)
			c.send(strings.Repeat("x", 20000) + "GET /a HTTP/1.1\r\nKEY\r\n\r\n")
			c.wantStatus("200")
		})
		t.Run("large", func(t *testing.T) {
			c := g.dial(t)
			c.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n" + strings.Repeat("x", 60000))
			wantIn(t, c.wantStatus("401"), "Connection: close")
			if _, err := c.rest(); err != nil {
				t.Errorf("got error %v, want the end of the connection", err)
			}
		})
	})
}

// Guarantee: a body larger than max_body_bytes is a 413, whether Content-Length declares
// its size or it exceeds the limit as it arrives.
func TestMaxBody(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(h string, c *upstreamtest.Conn) string {
			if strings.Contains(h, "chunked") {
				_, _ = io.Copy(io.Discard, c)
			}
			return okResponse
		})
		s.maxBody = 100 << 10
		g := start(t, s)
		c := g.dial(t)
		c.send("POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 102401\r\n\r\n")
		c.wantStatus("413")
		c = g.dial(t)
		c.send("POST /a HTTP/1.1\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
		c.send("20000\r\n" + strings.Repeat("x", 0x20000))
		c.wantStatus("413")
	})
}

// Guarantee: a request is retried if it is idempotent and a reused connection failed before
// the first byte of a response, and not otherwise.
func TestRetryAfterStaleConnection(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream = "http://" + upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			for {
				h, err := c.ReadHead()
				if err != nil || strings.HasPrefix(h, "GET /stop") && c.Number == 1 || strings.HasPrefix(h, "POST /stop") {
					return
				}
				c.Send(okResponse)
			}
		})
		c := start(t, s).dial(t)
		c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantStatus("200")
		c.bytes(2)
		c.send("GET /stop HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantStatus("200")
		c.bytes(2)
		c.send("POST /stop HTTP/1.1\r\nKEY\r\n\r\n")
		c.wantStatus("502")
	})
}

// Guarantee: a response that the upstream breaks off never ends properly for the client, and a
// response without a valid head is a 502.
func TestBrokenResponses(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
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
		g := start(t, s)
		for path, want := range map[string]string{"length": "hello", "chunked": "5\r\nhello\r\n", "close": "5\r\nhello\r\n0\r\n\r\n"} {
			c := g.dial(t)
			c.send("GET /" + path + " HTTP/1.1\r\nKEY\r\nConnection: close\r\n\r\n")
			c.wantStatus("200")
			if got, _ := c.rest(); got != want {
				t.Errorf("%s: got body %q, want %q", path, got, want)
			}
		}
		for _, path := range []string{"head", "bad", "nothing"} {
			c := g.dial(t)
			c.send("GET /" + path + " HTTP/1.1\r\nKEY\r\n\r\n")
			c.wantStatus("502")
		}
	})
}

// Guarantee: a request that has passed through this instance before is a 502.
func TestLoopIs502(t *testing.T) {
	t.Parallel()
	s := setup{limit: "1000000/s"}
	s.upstream, _ = upstreamOf(t, always(okResponse))
	c := start(t, s).dial(t)
	c.send("GET /a HTTP/1.1\r\nKEY\r\nVia: 1.1 other, 1.1 keygate-test (x)\r\n\r\n")
	c.wantStatus("502")
}

// Guarantee: once a shutdown is announced, a kept connection and a new one serve one more request, and each
// response says that the connection closes.
func TestAnnouncedShutdown(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(string, *upstreamtest.Conn) string { return okResponse })
		g := start(t, s)
		kept, refused := g.dial(t), g.dial(t)
		for _, c := range []*client{kept, refused} {
			c.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
			wantNotIn(t, c.wantStatus("200"), "Connection: close")
			c.bytes(2)
		}
		g.engine.Announce()
		for c, request := range map[*client]string{
			kept: "POST /a HTTP/1.1\r\nKEY\r\nContent-Length: 2\r\n\r\nhi", g.dial(t): "GET /a HTTP/1.1\r\nKEY\r\n\r\n",
		} {
			c.send(request)
			wantIn(t, c.wantStatus("200"), "Connection: close")
			c.bytes(2)
			if rest, err := c.rest(); err != nil || len(rest) > 0 {
				t.Errorf("after the response: got %q and the error %v, want the end", rest, err)
			}
		}
		refused.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
		wantIn(t, refused.wantStatus("401"), "Connection: close")
	})
}

// Guarantee: a request that was on its way when the shutdown began is served, if it is the first of its
// connection: the client could not know. A connection on which nothing arrives ends soon.
func TestShutdownServesTheFirstRequest(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
		s.upstream, _ = upstreamOf(t, func(string, *upstreamtest.Conn) string { return okResponse })
		g := start(t, s)
		pass := g.byHand()
		client := g.dial(t)
		g.await(phaseNew)
		done := make(chan error)
		go func() { done <- g.engine.Shutdown(t.Context()) }()
		awaittest.True(t, "the drain has begun", g.engine.drain.Begun)
		pass(0)
		pass(proxy.FirstRequestGrace / 2)
		client.send("GET /a HTTP/1.1\r\nKEY\r\n\r\n")
		wantIn(t, client.wantStatus("200"), "Connection: close")
		_ = client.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}

		g = start(t, s)
		pass = g.byHand()
		silent := g.dial(t)
		g.await(phaseNew)
		go func() { done <- g.engine.Shutdown(t.Context()) }()
		awaittest.True(t, "the drain has begun", g.engine.drain.Begun)
		pass(0)
		pass(proxy.FirstRequestGrace)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if rest, err := silent.rest(); err != nil || len(rest) > 0 {
			t.Errorf("a silent connection got %q and the error %v, want its end", rest, err)
		}
	})
}

// Guarantee: Shutdown closes idle connections at once, lets running requests end with
// Connection: close, and cuts off what still runs when its context ends.
func TestShutdown(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, s setup) {
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
			return okResponse
		})
		g := start(t, s)
		idle, running, stuck := g.dial(t), g.dial(t), g.dial(t)
		idle.send("GET /now HTTP/1.1\r\nKEY\r\n\r\n")
		idle.wantStatus("200")
		idle.bytes(2)
		running.send("GET /run HTTP/1.1\r\nKEY\r\n\r\n")
		stuck.send("GET /stuck HTTP/1.1\r\nKEY\r\n\r\n")
		<-heads
		<-heads
		<-heads
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan bool)
		go func() {
			g.stop(ctx)
			close(done)
		}()
		if _, err := idle.rest(); err != nil {
			t.Errorf("idle connection: got error %v, want its end", err)
		}
		close(release)
		wantIn(t, running.wantStatus("200"), "Connection: close")
		_ = running.Close()
		cancel()
		<-done
		if _, err := stuck.ReadByte(); err == nil {
			t.Error("got a byte of the request that was running, want it cut off")
		}
	})
}
