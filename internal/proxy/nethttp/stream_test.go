package nethttp_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// Both bodies pass at the same time, each piece at once (contract, 4.4).
func TestBothDirections(t *testing.T) {
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
	e := start(t, setup{upstream: "http://" + addr})
	c := e.dial()
	c.request(e, "POST /a HTTP/1.1", "Transfer-Encoding: chunked")
	if h := c.head(); h.status() != "200" || c.readChunk() != "ready" {
		t.Fatalf("answer\n%s", h.text)
	}
	for _, s := range []string{"one", "two", "three"} {
		c.Send(chunk(s))
		if got := c.readChunk(); got != "echo "+s {
			t.Fatalf("got %q", got)
		}
	}
	c.Send("0\r\n\r\n")
	if got := c.readChunk(); got != "" {
		t.Errorf("the end is %q", got)
	}
}

// The head and each event of a server-sent stream are there before the next.
func TestEvents(t *testing.T) {
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
	e := start(t, setup{upstream: "http://" + addr})
	c := e.dial()
	c.request(e, "GET /a HTTP/1.1")
	if h := c.head(); h.get("content-type") != "text/event-stream" {
		t.Fatalf("answer\n%s", h.text)
	}
	for _, s := range []string{"data: 1\n\n", "data: 2\n\n"} {
		next <- s
		if got := c.readChunk(); got != s {
			t.Fatalf("got %q", got)
		}
	}
	close(next)
	if got := c.readChunk(); got != "" {
		t.Errorf("the end is %q", got)
	}
}

// A body that breaks upstream breaks the client's message, whatever tells its
// length; it never ends cleanly.
func TestBrokenBody(t *testing.T) {
	for _, c := range []struct{ name, version, answer, then, begin, properEnd string }{
		{"chunked", "1.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("part"), "", chunk("part"), "0\r\n\r\n"},
		{"known", "1.1", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart", "", "part", ""},
		{"bad chunk", "1.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("part"), "zz\r\n", chunk("part"), "0\r\n\r\n"},
		{"to an old client", "1.0", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("part"), "", "part", "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			finish := make(chan struct{})
			addr := upstreamtest.Serve(t, func(conn *upstreamtest.Conn) {
				if _, err := conn.ReadHead(); err == nil {
					conn.Send(c.answer)
					<-finish
					conn.Send(c.then)
				}
			})
			e := start(t, setup{upstream: "http://" + addr})
			client := e.dial()
			client.request(e, "GET /a HTTP/"+c.version)
			if h := client.head(); h.status() != "200" {
				t.Fatalf("answer\n%s", h.text)
			}
			if got := client.text(len(c.begin)); got != c.begin {
				t.Fatalf("the body begins %q", got)
			}
			close(finish)
			rest, err := client.rest()
			if c.properEnd == "EOF" && err == nil || c.properEnd != "" && strings.Contains(rest, c.properEnd) || len(rest) > 0 {
				t.Errorf("the broken body ended with %q, %v", rest, err)
			}
		})
	}
}

// A client that leaves ends the upstream's work: before the head, within the
// answer, and within its own upload. How soon, edge/h1 holds.
func TestClientLeaves(t *testing.T) {
	for _, c := range []struct{ name, answer, field, body string }{
		{"before the head", "", "X-A: b", ""},
		{"within the answer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("part"), "X-A: b", ""},
		{"within the upload", "", "Content-Length: 100", "part"},
		{"within both", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("part"), "Transfer-Encoding: chunked", chunk("part")},
	} {
		t.Run(c.name, func(t *testing.T) {
			arrived, ended := make(chan struct{}), make(chan struct{})
			addr := upstreamtest.Serve(t, func(conn *upstreamtest.Conn) {
				if _, err := conn.ReadHead(); err != nil {
					return
				}
				conn.Send(c.answer)
				close(arrived)
				_, _ = io.Copy(io.Discard, conn)
				close(ended)
			})
			e := start(t, setup{upstream: "http://" + addr, moving: true})
			client := e.dial()
			client.request(e, "POST /a HTTP/1.1", c.field)
			client.Send(c.body)
			within(t, "the request", arrived)
			if c.answer != "" {
				client.head()
			}
			_ = client.Close()
			within(t, "the end of the upstream's work", ended)
		})
	}
}

// A 100 comes from the upstream and from nobody else; the body follows it.
func TestContinue(t *testing.T) {
	asked, ask := make(chan head, 1), make(chan struct{})
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		text, err := c.ReadHead()
		if err != nil {
			return
		}
		asked <- parse(text)
		<-ask
		c.Send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
		body := make([]byte, 4)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		c.Send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + string(body))
	})
	e := start(t, setup{upstream: "http://" + addr})
	c := e.dial()
	c.request(e, "POST /a HTTP/1.1", "Content-Length: 4", "Expect: 100-continue")
	if h := within(t, "the request", asked); h.get("expect") != "100-continue" {
		t.Errorf("the upstream was not told:\n%s", h.text)
	}
	close(ask)
	if h := c.head(); h.status() != "103" {
		t.Fatalf("first\n%s", h.text)
	}
	if h := c.head(); h.status() != "100" || len(h.fields) != 0 {
		t.Fatalf("second\n%s", h.text)
	}
	c.Send("body")
	if h := c.head(); h.status() != "200" || c.text(4) != "body" {
		t.Fatalf("final\n%s", h.text)
	}
}

// An upstream that answers without asking for the body does not get it, and the
// client is not asked for it either.
func TestNoContinue(t *testing.T) {
	rest := make(chan string, 1)
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		c.Send("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno")
		b, _ := io.ReadAll(c)
		rest <- string(b)
	})
	e := start(t, setup{upstream: "http://" + addr})
	c := e.dial()
	c.request(e, "POST /a HTTP/1.1", "Content-Length: 4", "Expect: 100-continue")
	if h := c.head(); h.status() != "417" || h.get("connection") != "close" || c.text(2) != "no" {
		t.Fatalf("answer\n%s", h.text)
	}
	if got := within(t, "the end of the upstream's connection", rest); got != "" {
		t.Errorf("the upstream got %q", got)
	}
}

// An upstream that knows no 100 gets the body after a while.
func TestContinueNeverComes(t *testing.T) {
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err != nil {
			return
		}
		body := make([]byte, 4)
		if _, err := io.ReadFull(c, body); err == nil {
			c.Send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + string(body))
		}
	})
	e := start(t, setup{upstream: "http://" + addr, continueTimeout: 50 * time.Millisecond})
	c := e.dial()
	c.request(e, "POST /a HTTP/1.1", "Content-Length: 4", "Expect: 100-continue")
	if h := c.head(); h.status() != "100" {
		t.Fatalf("first\n%s", h.text)
	}
	c.Send("body")
	if h := c.head(); h.status() != "200" || c.text(4) != "body" {
		t.Fatalf("final\n%s", h.text)
	}
}

// Trailers pass in both directions, an answer's if the client takes them, less
// those that have no business behind a body and those that the gateway sets itself.
func TestTrailers(t *testing.T) {
	heads, got := make(chan string, 1), make(chan string, 1)
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		for {
			h, err := c.ReadHead()
			if err != nil {
				return
			}
			heads <- h
			for {
				if s, err := readChunk(c); err != nil || s == "" {
					break
				}
			}
			trailers, _ := c.ReadHead()
			got <- trailers
			c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n" + chunk("text") +
				"0\r\nX-Sum: 1\r\nX-Late: 2\r\nX-RateLimit-Limit: 1\r\nX-Request-Id: theirs\r\nSet-Cookie: a=1\r\n\r\n")
		}
	})
	e := start(t, setup{upstream: "http://" + addr, headers: map[string]string{"X-Backend-Secret": "s3"}})
	for _, wants := range []bool{true, false} {
		c := e.dial()
		te := "X-No: te"
		if wants {
			te = "TE: trailers"
		}
		c.request(e, "POST /a HTTP/1.1", te, "Transfer-Encoding: chunked", "Trailer: X-Digest, X-Keygate-Key-Id, x_backend-secret")
		c.Send(chunk("body") + "0\r\nX-Digest: d\r\nX-Keygate-Key-Id: key_0\r\nx_keygate_key_owner: root\r\nAuthorization: Bearer x\r\nX-Forwarded-For: 9.9.9.9\r\nX-Backend-Secret: theirs\r\nx_backend-secret: theirs\r\n\r\n")
		if h := parse(within(t, "the request", heads)); h.get("trailer") != "X-Digest" || h.get("x-backend-secret") != "s3" {
			t.Errorf("arrived as\n%s", h.text)
		}
		if trailers := parse("\r\n" + within(t, "the request", got)); trailers.get("x-digest") != "d" || len(trailers.fields) != 1 {
			t.Errorf("the upstream got the trailers %q", trailers.text)
		}
		h := c.head()
		if c.readChunk() != "text" || c.readChunk() != "" {
			t.Errorf("answer\n%s", h.text)
		}
		text, err := c.ReadHead()
		trailers := parse("\r\n" + text)
		if err != nil || wants && (h.get("trailer") != "X-Sum" || trailers.get("x-sum") != "1" || trailers.get("x-late") != "2" || len(trailers.fields) != 2) {
			t.Errorf("%v, trailers %q behind\n%s", err, text, h.text)
		}
		if !wants && (text != "" || h.get("trailer") != "") {
			t.Errorf("trailers %q for a client that takes none", text)
		}
	}
}

// An answer that comes before the end of the upload is passed on at once and
// whole, and then the client's connection ends.
func TestEarlyAnswer(t *testing.T) {
	addr, _ := recorder(t, "HTTP/1.1 403 No\r\nContent-Length: 4\r\n\r\nstop")
	e := start(t, setup{upstream: "http://" + addr})
	c := e.dial()
	c.request(e, "POST /a HTTP/1.1", "Content-Length: 1000000")
	c.Send("part")
	if h := c.head(); h.status() != "403" || c.text(4) != "stop" {
		t.Fatalf("answer\n%s", h.text)
	}
	if rest, err := c.rest(); rest != "" || err != nil {
		t.Errorf("behind the answer: %q, %v", rest, err)
	}
}

// An upstream that answers early and closes breaks the upload, not its answer.
func TestEarlyClose(t *testing.T) {
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if _, err := c.ReadHead(); err == nil {
			c.Send("HTTP/1.1 413 No\r\nContent-Length: 4\r\nConnection: close\r\n\r\nstop")
		}
	})
	e := start(t, setup{upstream: "http://" + addr})
	for range 30 { // the reset comes before or after the answer is read
		c := e.dial()
		c.request(e, "POST /a HTTP/1.1", "Content-Length: 10000000")
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.Copy(c.Conn.Conn, io.LimitReader(zeros{}, 10_000_000))
		}()
		if h := c.head(); h.status() != "413" || c.text(4) != "stop" {
			t.Fatalf("answer\n%s", h.text)
		}
		_ = c.Close()
		<-sent
	}
}

// A large body passes in constant memory: both sides are slow in turn.
func TestLargeBodies(t *testing.T) {
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
	e := start(t, setup{upstream: "http://" + addr})
	c := e.dial()
	c.request(e, "POST /a HTTP/1.1", "Content-Length: 8388608")
	if _, err := io.Copy(c.Conn.Conn, io.LimitReader(zeros{}, size)); err != nil {
		t.Fatal(err)
	}
	if h := c.head(); h.status() != "200" {
		t.Fatalf("answer\n%s", h.text)
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(c.Conn, size)); n != size || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// An upstream's status that is none, or a change of protocol that nobody asked
// for, is a 502 and not a crash.
func TestStrangeAnswers(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 099 What\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
		"SSH-2.0-OpenSSH\r\n",
	} {
		addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
			_, _ = c.ReadHead()
			c.Send(answer)
		})
		e := start(t, setup{upstream: "http://" + addr})
		c := e.dial()
		c.request(e, "GET /a HTTP/1.1")
		if h, body := c.refusal(); h.status() != "502" || body.Error != "upstream_unreachable" {
			t.Errorf("%q: %s", answer, h.text)
		}
	}
}
