package enginetest_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Guarantee: contract 4.4. The bodies of request and response pass at the same time, and
// each piece at once.
func TestBodiesPassInBothDirections(t *testing.T) {
	t.Parallel()
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("ready"))
		for {
			s, err := readChunk(c)
			if err != nil {
				return
			}
			if s == "" {
				c.Send("0\r\n\r\n")
				return
			}
			c.Send(chunk("echo " + s))
		}
	})
	g := start(t, setup{upstream: "http://" + addr})
	c := g.dial(t)
	c.request(g, "POST /a HTTP/1.1", "Transfer-Encoding: chunked")
	c.wantHead("200")
	c.wantChunk("ready")
	for _, s := range []string{"one", "two", "three"} {
		c.Send(chunk(s))
		c.wantChunk("echo " + s)
	}
	c.Send("0\r\n\r\n")
	c.wantChunk("")
}

// Guarantee: the head and each event of a server-sent event stream pass before the next event is
// sent.
func TestEventsPassAtOnce(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		c.Send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
		for s := range next {
			c.Send(s)
		}
	})
	g := start(t, setup{upstream: "http://" + addr})
	c := g.dial(t)
	c.request(g, "GET /a HTTP/1.1")
	c.wantHead("200").wantFields(t, map[string]string{"content-type": "text/event-stream"})
	for _, s := range []string{"data: 1\n\n", "data: 2\n\n"} {
		next <- s
		c.wantChunk(s)
	}
	close(next)
	c.wantChunk("")
}

// Guarantee: a body that the upstream breaks off is broken off for the client as well,
// whatever its framing, and never looks complete.
func TestBrokenBodyNeverEndsProperly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, version, response, then, begin string
		untilClose                           bool
	}{
		{"chunked", "1.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("part"), "", chunk("part"), false},
		{"Content-Length", "1.1", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart", "", "part", false},
		{"malformed chunk", "1.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("part"), "zz\r\n", chunk("part"), false},
		{"to an HTTP/1.0 client", "1.0", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("part"), "", "part", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			finish := make(chan struct{})
			addr := upstreamtest.Serve(t, func(conn *upstreamtest.Conn) {
				if _, err := conn.ReadHead(); err == nil {
					conn.Send(c.response)
					<-finish
					conn.Send(c.then)
				}
			})
			g := start(t, setup{upstream: "http://" + addr})
			client := g.dial(t)
			client.request(g, "GET /a HTTP/"+c.version)
			client.wantHead("200")
			client.wantText(c.begin)
			close(finish)
			rest, err := client.rest()
			if rest != "" {
				t.Errorf("got the rest %q, want the connection broken off", rest)
			}
			if c.untilClose && err == nil {
				t.Error("got a proper end of the connection, want a reset")
			}
			for _, want := range []string{"upstream broke off its response", "gateway_id=gw_", "route_id=rt_", "key_id=key_"} {
				if log := g.log.String(); !strings.Contains(log, want) {
					t.Errorf("the log has no %q:\n%s", want, log)
				}
			}
		})
	}
}

// Guarantee: when the client hangs up, the request to the upstream ends, whatever the state
// of the exchange. The tests of h1 check how soon.
func TestClientHangUpEndsUpstream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, response, field, body string }{
		{"before the response", "", "X-A: b", ""},
		{"during the response", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("part"), "X-A: b", ""},
		{"during the request body", "", "Content-Length: 100", "part"},
		{"during both bodies", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("part"), "Transfer-Encoding: chunked", chunk("part")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			arrived, ended := make(chan struct{}), make(chan struct{})
			addr := upstreamtest.Serve(t, func(conn *upstreamtest.Conn) {
				if _, err := conn.ReadHead(); err != nil {
					return
				}
				conn.Send(c.response)
				close(arrived)
				_, _ = io.Copy(io.Discard, conn)
				close(ended)
			})
			g := start(t, setup{upstream: "http://" + addr, realClock: true})
			client := g.dial(t)
			client.request(g, "POST /a HTTP/1.1", c.field)
			client.Send(c.body)
			receive(t, "the request", arrived)
			if c.response != "" {
				client.head()
			}
			_ = client.Close()
			receive(t, "the end of the upstream's connection", ended)
		})
	}
}

// Guarantee: Expect is forwarded, the upstream's 100 passes like any interim response, and
// the body follows it.
func TestContinue(t *testing.T) {
	t.Parallel()
	requests, proceed := make(chan head, 1), make(chan struct{})
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		text, err := c.ReadHead()
		if err != nil {
			return
		}
		requests <- parse(text)
		<-proceed
		c.Send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
		body := make([]byte, 4)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		c.Send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + string(body))
	})
	g := start(t, setup{upstream: "http://" + addr})
	c := g.dial(t)
	c.request(g, "POST /a HTTP/1.1", "Content-Length: 4", "Expect: 100-continue")
	receive(t, "the request", requests).wantFields(t, map[string]string{"expect": "100-continue"})
	close(proceed)
	c.wantHead("103")
	if h := c.wantHead("100"); len(h.fields) != 0 {
		t.Fatalf("got 100 with fields\n%s\nwant none", h.text)
	}
	c.Send("body")
	c.wantHead("200")
	c.wantText("body")
}

// Guarantee: if the upstream sends a final response instead of a 100, the client receives
// that response, and the upstream receives no body.
func TestFinalResponseInsteadOf100(t *testing.T) {
	t.Parallel()
	rest := make(chan string, 1)
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		c.Send("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno")
		b, _ := io.ReadAll(c)
		rest <- string(b)
	})
	g := start(t, setup{upstream: "http://" + addr})
	c := g.dial(t)
	c.request(g, "POST /a HTTP/1.1", "Content-Length: 4", "Expect: 100-continue")
	c.wantHead("417").wantFields(t, map[string]string{"connection": "close"})
	c.wantText("no")
	if got := receive(t, "the end of the upstream's connection", rest); got != "" {
		t.Errorf("the upstream received %q after the head, want nothing", got)
	}
}

// Guarantee: if the upstream sends neither a 100 nor a response within the timeout, the
// client gets a 100 and the body is forwarded.
func TestContinueTimeout(t *testing.T) {
	t.Parallel()
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		body := make([]byte, 4)
		if _, err := io.ReadFull(c, body); err == nil {
			c.Send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + string(body))
		}
	})
	g := start(t, setup{upstream: "http://" + addr, continueTimeout: 50 * time.Millisecond})
	c := g.dial(t)
	c.request(g, "POST /a HTTP/1.1", "Content-Length: 4", "Expect: 100-continue")
	c.wantHead("100")
	c.Send("body")
	c.wantHead("200")
	c.wantText("body")
}

// trailing is an upstream that keeps heads and trailers of requests, and responds with
// trailers.
func trailing(t *testing.T) (addr string, heads <-chan head, trailers <-chan head) {
	requestHeads, requestTrailers := make(chan head, 1), make(chan head, 1)
	return upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			text, err := c.ReadHead()
			if err != nil {
				return
			}
			requestHeads <- parse(text)
			for {
				if s, err := readChunk(c); err != nil || s == "" {
					break
				}
			}
			text, _ = c.ReadHead()
			requestTrailers <- parse("\r\n" + text)
			c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n" + chunk("text") +
				"0\r\nX-Sum: 1\r\nX-Late: 2\r\nX-RateLimit-Limit: 1\r\nX-Request-Id: theirs\r\nSet-Cookie: a=1\r\n\r\n")
		}
	}), requestHeads, requestTrailers
}

// Guarantee: the trailers of a request reach the upstream, without trailers that are not allowed in
// a trailer section or that the gateway sets itself.
func TestRequestTrailers(t *testing.T) {
	t.Parallel()
	addr, heads, trailers := trailing(t)
	g := start(t, setup{upstream: "http://" + addr, headers: map[string]string{"X-Backend-Secret": "s3"}})
	c := g.dial(t)
	c.request(g, "POST /a HTTP/1.1", "Transfer-Encoding: chunked", "Trailer: X-Digest, X-Keygate-Key-Id, x_backend-secret")
	c.Send(chunk("body") + "0\r\nX-Digest: d\r\nX-Keygate-Key-Id: key_0\r\nx_keygate_key_owner: root\r\nAuthorization: Bearer x\r\n" +
		"X-Forwarded-For: 9.9.9.9\r\nX-Backend-Secret: theirs\r\nx_backend-secret: theirs\r\n\r\n")
	receive(t, "the request", heads).wantFields(t, map[string]string{"trailer": "X-Digest", "x-backend-secret": "s3"})
	if got := receive(t, "the trailers", trailers); got.get("x-digest") != "d" || len(got.fields) != 1 {
		t.Errorf("the upstream received the trailers %q, want X-Digest: d only", got.text)
	}
}

// Guarantee: the trailers of a response reach a client that accepts trailers, without trailers that
// are not allowed in a trailer section or that the gateway sets itself. Other clients receive no
// trailers.
func TestResponseTrailers(t *testing.T) {
	t.Parallel()
	for te, want := range map[string]map[string]string{
		"TE: trailers": {"x-sum": "1", "x-late": "2"},
		"X-No: te":     nil,
	} {
		t.Run(te, func(t *testing.T) {
			addr, _, _ := trailing(t)
			g := start(t, setup{upstream: "http://" + addr})
			c := g.dial(t)
			c.request(g, "POST /a HTTP/1.1", te, "Transfer-Encoding: chunked")
			c.Send(chunk("body") + "0\r\n\r\n")
			h := c.wantHead("200")
			c.wantChunk("text")
			c.wantChunk("")
			text, err := c.ReadHead()
			if err != nil {
				t.Fatalf("reading the trailers: %v", err)
			}
			if want == nil {
				h.wantFields(t, map[string]string{"trailer": ""})
				if text != "" {
					t.Errorf("got trailers %q, want none", text)
				}
				return
			}
			h.wantFields(t, map[string]string{"trailer": "X-Sum"})
			got := parse("\r\n" + text)
			got.wantFields(t, want)
			if len(got.fields) != len(want) {
				t.Errorf("got trailers %q, want %v only", text, want)
			}
		})
	}
}

// Guarantee: a response that arrives before the end of the request's body is relayed at once and
// whole; then the client's connection ends.
func TestEarlyResponse(t *testing.T) {
	t.Parallel()
	addr, _ := recorder(t, "HTTP/1.1 403 No\r\nContent-Length: 4\r\n\r\nstop")
	g := start(t, setup{upstream: "http://" + addr})
	c := g.dial(t)
	c.request(g, "POST /a HTTP/1.1", "Content-Length: 1000000")
	c.Send("part")
	c.wantHead("403")
	c.wantText("stop")
	c.wantEnd("")
}

// Guarantee: if the upstream responds early and closes its connection, the request body
// fails and the response still passes whole.
func TestEarlyResponseAndClose(t *testing.T) {
	t.Parallel()
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err == nil {
			c.Send("HTTP/1.1 413 No\r\nContent-Length: 4\r\nConnection: close\r\n\r\nstop")
		}
	})
	g := start(t, setup{upstream: "http://" + addr})
	for range 30 { // the reset may come before or after the response is read
		c := g.dial(t)
		c.request(g, "POST /a HTTP/1.1", "Content-Length: 10000000")
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.Copy(c.Conn.Conn, io.LimitReader(zeros{}, 10_000_000))
		}()
		c.wantHead("413")
		c.wantText("stop")
		_ = c.Close()
		<-sent
	}
}

// Guarantee: large bodies pass whole in both directions.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		n, _ := io.Copy(io.Discard, io.LimitReader(c, size))
		if n != size {
			return
		}
		c.Send("HTTP/1.1 200 OK\r\nContent-Length: 8388608\r\n\r\n")
		_, _ = io.Copy(c.Conn, io.LimitReader(zeros{}, size))
	})
	g := start(t, setup{upstream: "http://" + addr})
	c := g.dial(t)
	c.request(g, "POST /a HTTP/1.1", "Content-Length: 8388608")
	if _, err := io.Copy(c.Conn.Conn, io.LimitReader(zeros{}, size)); err != nil {
		t.Fatal(err)
	}
	c.wantHead("200")
	if n, err := io.Copy(io.Discard, io.LimitReader(c.Conn, size)); n != size || err != nil {
		t.Errorf("got a body of %d bytes, error %v; want %d bytes", n, err, size)
	}
}

// zeros is an endless stream of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Guarantee: an invalid response of the upstream, or a switch of protocol that was not
// requested, is a 502.
func TestStrangeResponsesAre502(t *testing.T) {
	t.Parallel()
	for _, response := range []string{
		"HTTP/1.1 099 What\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"SSH-2.0-OpenSSH\r\n",
	} {
		addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			_, _ = c.ReadHead()
			c.Send(response)
		})
		g := start(t, setup{upstream: "http://" + addr})
		c := g.dial(t)
		c.request(g, "GET /a HTTP/1.1")
		c.wantRefusal("502", "upstream_unreachable")
	}
}
