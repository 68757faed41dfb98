package enginetest_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// served is a request at an upstream of either version of HTTP.
type served interface {
	method() string
	target() string
	body(n int) (string, bool)       // n bytes of the request's body; false if it ends, or is broken off
	interim(status int)              // an interim response
	respond(status int, body string) // a whole response
	begin()                          // the head of a response without a length
	data(s string)
	end()
	malformed() // the head of a response that is none
	hangUp()    // closes the connection
}

// serving is an upstream that calls handle for each request.
type serving struct {
	isHTTP2 bool
	secure  *tls.Config // nil in clear
	handle  func(r served)
}

// start starts the upstream, and returns its URL.
func (u *serving) start(t testing.TB) (url string) {
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		if u.secure != nil {
			over := tls.Server(c.Conn, u.secure)
			c = &upstreamtest.Conn{Conn: over, Reader: bufio.NewReader(over)}
		}
		if u.isHTTP2 {
			u.serveHTTP2(c)
		} else {
			u.serveHTTP1(c)
		}
	})
	return schemeOf(u.isHTTP2, u.secure) + "://" + addr
}

func schemeOf(isHTTP2 bool, secure *tls.Config) string {
	switch {
	case secure != nil:
		return "https"
	case isHTTP2:
		return "h2c"
	}
	return "http"
}

// servedHTTP1 is a served over HTTP/1.1.
type servedHTTP1 struct {
	c     *upstreamtest.Conn
	head  head
	in    string // of the body
	ended bool   // the body has
}

func (u *serving) serveHTTP1(c *upstreamtest.Conn) {
	for {
		text, err := c.ReadHead()
		if err != nil {
			return
		}
		r := &servedHTTP1{c: c, head: parse(text)}
		u.handle(r)
		if !r.ended && r.head.get("transfer-encoding") != "" {
			_, _ = r.body(math.MaxInt)
		}
	}
}

func (r *servedHTTP1) method() string { return strings.Fields(r.head.line)[0] }
func (r *servedHTTP1) target() string { return strings.Fields(r.head.line)[1] }
func (r *servedHTTP1) malformed()     { r.c.Send("HTTP/1.1 200 OK\r\nX A: 1\r\n\r\n") }

func (r *servedHTTP1) body(n int) (string, bool) {
	if r.head.get("transfer-encoding") == "" {
		b := make([]byte, n)
		k, err := io.ReadFull(r.c, b)
		return string(b[:k]), err == nil
	}
	for len(r.in) < n {
		piece, err := readChunk(r.c)
		if err != nil || piece == "" {
			r.ended = true
			_, _ = r.c.ReadHead() // the trailers
			return r.in, false
		}
		r.in += strings.TrimSuffix(piece, "\r\n")
	}
	got := r.in[:n]
	r.in = r.in[n:]
	return got, true
}

func (r *servedHTTP1) interim(status int) { r.c.Send(fmt.Sprintf("HTTP/1.1 %d X\r\n\r\n", status)) }

func (r *servedHTTP1) respond(status int, body string) {
	r.c.Send(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body))
}

func (r *servedHTTP1) begin()        { r.c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n") }
func (r *servedHTTP1) data(s string) { r.c.Send(chunk(s)) }
func (r *servedHTTP1) end()          { r.c.Send("0\r\n\r\n") }
func (r *servedHTTP1) hangUp()       { _ = r.c.Conn.Close() }

// servedHTTP2 is a served over HTTP/2.
type servedHTTP2 struct {
	s          *lockedFramer
	id         uint32
	name, path string
	in         io.Reader
	feed       *io.PipeWriter
}

// lockedFramer is a scripted that several requests use.
type lockedFramer struct {
	mu sync.Mutex
	*scripted
	conn net.Conn
}

func (u *serving) serveHTTP2(c *upstreamtest.Conn) {
	framer, ok := accept(c)
	if !ok {
		return
	}
	s := &lockedFramer{scripted: framer, conn: c.Conn}
	requests := map[uint32]*servedHTTP2{}
	var running sync.WaitGroup
	defer running.Wait()
	defer func() {
		for _, r := range requests {
			_ = r.feed.CloseWithError(io.ErrUnexpectedEOF)
		}
	}()
	for {
		frame, err := s.ReadFrame()
		if err != nil {
			return
		}
		id := frame.Header().StreamID
		s.do(func() { s.acknowledge(frame) })
		switch f := frame.(type) {
		case *http2.RSTStreamFrame:
			if r := requests[id]; r != nil {
				_ = r.feed.CloseWithError(io.ErrUnexpectedEOF)
			}
		case *http2.MetaHeadersFrame:
			in, feed := io.Pipe()
			r := &servedHTTP2{s: s, id: id, name: f.PseudoValue("method"), path: f.PseudoValue("path"), in: in, feed: feed}
			requests[id] = r
			if f.StreamEnded() {
				_ = feed.Close()
			}
			running.Go(func() {
				u.handle(r)
				_ = in.Close()
			})
		case *http2.DataFrame:
			if r := requests[id]; r != nil {
				_, _ = r.feed.Write(f.Data())
				if f.StreamEnded() {
					_ = r.feed.Close()
				}
			}
		}
	}
}

func (s *lockedFramer) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (r *servedHTTP2) method() string { return r.name }
func (r *servedHTTP2) target() string { return r.path }
func (r *servedHTTP2) malformed()     { r.s.do(func() { r.s.head(r.id, true, "x-a", "1") }) }

func (r *servedHTTP2) body(n int) (string, bool) {
	b := make([]byte, n)
	k, err := io.ReadFull(r.in, b)
	return string(b[:k]), err == nil
}

func (r *servedHTTP2) interim(status int) {
	r.s.do(func() { r.s.head(r.id, false, ":status", strconv.Itoa(status)) })
}

func (r *servedHTTP2) respond(status int, body string) {
	r.s.do(func() {
		r.s.head(r.id, body == "", ":status", strconv.Itoa(status), "content-length", strconv.Itoa(len(body)))
		if body != "" {
			_ = r.s.WriteData(r.id, true, []byte(body))
		}
	})
}

func (r *servedHTTP2) begin() { r.s.do(func() { r.s.head(r.id, false, ":status", "200") }) }

func (r *servedHTTP2) data(s string) {
	r.s.do(func() { _ = r.s.WriteData(r.id, false, []byte(s)) })
}
func (r *servedHTTP2) end()    { r.s.do(func() { _ = r.s.WriteData(r.id, true, nil) }) }
func (r *servedHTTP2) hangUp() { _ = r.s.conn.Close() }

// open sends the head of a request whose body follows. fields are lines.
func (c *caller) open(method, target string, fields ...string) {
	fields = c.withKey(fields)
	if c.http1 != nil {
		c.http1.Send(method + " " + target + " HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n" + lines(fields) + "\r\n")
		return
	}
	c.last += 2
	c.http2.request(c.last-1, false, c.fieldsOf(method, target, fields))
}

// fieldsOf returns the head of a request over HTTP/2.
func (c *caller) fieldsOf(method, target string, fields []string) [][2]string {
	all := [][2]string{{":method", method}, {":scheme", "http"}, {":authority", "api.test"}, {":path", target}}
	names := pairs(fields)
	for i := 0; i+1 < len(names); i += 2 {
		all = append(all, [2]string{names[i], names[i+1]})
	}
	return all
}

// send sends a part of the body of the last request; "" is the end.
func (c *caller) send(part string) {
	switch {
	case c.http1 == nil:
		_ = c.http2.WriteData(c.last-1, part == "", []byte(part))
	case part == "":
		c.http1.Send("0\r\n\r\n")
	default:
		c.http1.Send(chunk(part))
	}
}

// receive reads the response to the last request.
func (c *caller) receive(method string) received {
	c.t.Helper()
	if c.http1 != nil {
		return c.receiveHTTP1(method)
	}
	return c.receiveHTTP2(c.last - 1)
}

// nextHead reads the next head of the last request's response.
func (c *caller) nextHead() head {
	c.t.Helper()
	if c.http1 != nil {
		text, err := c.http1.ReadHead()
		if err != nil {
			c.t.Fatalf("got %q, then %v", text, err)
		}
		return parse(text)
	}
	for {
		frame, err := c.http2.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			return headOfFrame(f)
		case *http2.RSTStreamFrame:
			c.t.Fatalf("got a reset with %v, want a head", f.ErrCode)
		}
	}
}

// nextData reads the next piece of the body, which has no length; "" is its end.
func (c *caller) nextData() string {
	c.t.Helper()
	if c.http1 != nil {
		piece, err := readChunk(c.http1)
		if err != nil {
			c.t.Fatal(err)
		}
		return strings.TrimSuffix(piece, "\r\n")
	}
	for {
		frame, err := c.http2.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		if f, ok := frame.(*http2.DataFrame); ok && (len(f.Data()) > 0 || f.StreamEnded()) {
			return string(f.Data())
		}
	}
}

// combination is a gateway with a client and an upstream of some versions of HTTP, with or without TLS.
type combination struct {
	*harness
	dial func() *caller
}

// overServing runs test for each combination. handle serves the requests at the upstream.
func overServing(t *testing.T, s setup, handle func(t *testing.T) func(r served), test func(t *testing.T, c combination)) {
	t.Helper()
	certified := newSecrets()
	overKinds(t, certified, func(t *testing.T, k kinds) {
		up := &serving{isHTTP2: k.upstreamIsHTTP2, secure: k.upstreamSecure, handle: handle(t)}
		s := s
		s.upstream, s.ca, s.secure = up.start(t), certified.ca, k.secure
		g := start(t, s)
		test(t, combination{g, func() *caller { return g.caller(t, k.isHTTP2, certified.pool) }})
	})
}

// kinds are the versions of HTTP of a client and an upstream, and the configurations of TLS.
type kinds struct {
	isHTTP2, upstreamIsHTTP2 bool
	secure, upstreamSecure   *tls.Config
}

// overKinds runs test for each version of HTTP on both sides, with and without TLS.
func overKinds(t *testing.T, s *secrets, test func(t *testing.T, k kinds)) {
	t.Helper()
	names := map[bool]string{false: "HTTP1", true: "HTTP2"}
	for n := range 16 {
		k := kinds{isHTTP2: n&1 != 0, upstreamIsHTTP2: n&2 != 0}
		name := names[k.isHTTP2]
		if n&4 != 0 {
			k.secure = s.server("h2", "http/1.1")
			name += " over TLS"
		}
		name += " to " + names[k.upstreamIsHTTP2]
		if n&8 != 0 {
			k.upstreamSecure = s.server("http/1.1")
			if k.upstreamIsHTTP2 {
				k.upstreamSecure = s.server("h2")
			}
			name += " over TLS"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}
