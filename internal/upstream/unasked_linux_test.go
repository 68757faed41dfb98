package upstream_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/upstream"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// forgedResponse is a response that an upstream sends without a request.
const forgedResponse = "HTTP/1.1 200 OK\r\nX-For: forged\r\nContent-Length: 6\r\n\r\nforged"

// firstExchanges are the exchanges after which an upstream sends forgedResponse. After a HEAD, a
// 204 or a 304, forgedResponse looks like a late body.
var firstExchanges = []struct{ name, method, response string }{
	{"GET", "GET", "HTTP/1.1 200 OK\r\nX-For: /first\r\nContent-Length: 2\r\n\r\nok"},
	{"chunked", "GET", "HTTP/1.1 200 OK\r\nX-For: /first\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	{"POST", "POST", "HTTP/1.1 200 OK\r\nX-For: /first\r\nContent-Length: 0\r\n\r\n"},
	{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nX-For: /first\r\nContent-Length: 59\r\n\r\n"},
	{"204", "GET", "HTTP/1.1 204 No Content\r\nX-For: /first\r\n\r\n"},
	{"304", "GET", "HTTP/1.1 304 Not Modified\r\nX-For: /first\r\nContent-Length: 59\r\n\r\n"},
}

// partial is a connection below TLS that can hold back the end of what is written.
type partial struct {
	net.Conn
	first int // if not 0, how many bytes of the next Write are sent
}

func (c *partial) Write(p []byte) (int, error) {
	if c.first == 0 {
		return c.Conn.Write(p)
	}
	_, err := c.Conn.Write(p[:min(c.first, len(p)-1)])
	return len(p), err
}

// forger is an upstream. It responds to /first with an exchange of firstExchanges, and
// forges a response after it. To every other request it responds with that request's target and
// body.
type forger struct {
	t    *testing.T
	addr string
	// The mode is one of these: together with the response; when the test says so; or at any
	// time. first is the number of bytes of a TLS record that are sent, or 0 for all.
	mode  string
	first int

	asked, written chan bool    // mode later
	racing         atomic.Int32 // mode any: 1 while forging, 2 once the gateway's kernel has the forged response

	mu   sync.Mutex
	seen map[string]int // requests by target
}

func newForger(t *testing.T, mode string, first int, secure *tls.Config) *forger {
	f := &forger{t: t, mode: mode, first: first, asked: make(chan bool), written: make(chan bool), seen: map[string]int{}}
	f.addr = upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		under := &partial{Conn: c.Conn}
		if secure == nil {
			f.serve(under, c.Conn, under, c.Reader)
			return
		}
		over := tls.Server(under, secure)
		f.serve(over, c.Conn, under, bufio.NewReader(over))
	})
	return f
}

func (f *forger) serve(conn, tcp net.Conn, under *partial, from *bufio.Reader) {
	c := &upstreamtest.Conn{Conn: conn, Reader: from}
	for {
		head, err := c.ReadHead()
		if err != nil {
			return
		}
		method, rest, _ := strings.Cut(head, " ")
		target, _, _ := strings.Cut(rest, " ")
		f.mu.Lock()
		f.seen[target]++
		f.mu.Unlock()
		length := 0
		if _, value, ok := strings.Cut(head, "Content-Length: "); ok {
			value, _, _ = strings.Cut(value, "\r\n")
			length, _ = strconv.Atoi(value)
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(c.Reader, body); err != nil {
			return
		}
		if which, ok := strings.CutPrefix(target, "/first?"); ok {
			n, _ := strconv.Atoi(which)
			f.forge(c, tcp, under, firstExchanges[n].response)
			return
		}
		response := fmt.Sprintf("HTTP/1.1 200 OK\r\nX-For: %s\r\nContent-Length: %d\r\n\r\n", target, len(body))
		if method != "HEAD" {
			response += string(body)
		}
		c.Send(response)
	}
}

// forge sends response and a forged response. No request may arrive after that, unless the mode is
// any time.
func (f *forger) forge(c *upstreamtest.Conn, tcp net.Conn, under *partial, response string) {
	switch f.mode {
	case "together":
		c.Send(response + forgedResponse)
	case "later":
		c.Send(response)
		<-f.asked
		under.first = f.first
		c.Send(forgedResponse)
		awaittest.Received(f.t, tcp)
		f.written <- true
	case "any":
		f.racing.Store(1)
		c.Send(response)
		for range rand.IntN(100) {
			runtime.Gosched()
		}
		c.Send(forgedResponse)
		awaittest.Received(f.t, tcp)
		f.racing.Store(2)
	}
	head, err := c.ReadHead()
	if err == nil && f.mode != "any" {
		f.t.Errorf("got a request on the connection with the unasked response, want none:\n%s", head)
	}
}

// next sends a request with a target and body of its own, and returns the target of the request to
// which the response belongs. It fails the test if the request was not served whole.
func (f *forger) next(pools *upstream.Pools, o upstream.Origin, method, target string) string {
	req := request(method, o.Scheme+"://"+f.addr, target)
	body := ""
	if method == "POST" {
		body = "body of " + target
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	resp, err := upstream.Start(f.t.Context(), pools, o, req, time.Minute)
	if err != nil {
		if f.mode != "any" {
			f.t.Errorf("%s %s: got error %v, want a response", method, target, err)
		}
		return ""
	}
	got, err := resp.Whole()
	from := resp.Header.Get("X-For")
	if from == target && (err != nil || got != body) {
		f.t.Errorf("%s %s: the body %q came back as %q, %v", method, target, body, got, err)
	}
	return from
}

// rounds makes the upstream forge n responses, and sends a request after each.
func (f *forger) rounds(pools *upstream.Pools, o upstream.Origin, prefix string, n int) {
	for i := range n {
		first := i % len(firstExchanges)
		method := []string{"GET", "POST", "PUT", "HEAD"}[rand.IntN(4)]
		target := fmt.Sprintf("/%s/%d", prefix, i)
		if got := f.next(pools, o, firstExchanges[first].method, fmt.Sprintf("/first?%d", first)); f.mode != "any" && got != "/first" {
			f.t.Errorf("the first exchange got the response for %q", got)
			return
		}
		if f.mode == "later" {
			f.asked <- true
			<-f.written
		}
		for f.mode == "any" && rand.IntN(3) > 0 && f.racing.Load() == 1 {
			runtime.Gosched()
		}
		before := f.racing.Load() != 1
		got := f.next(pools, o, method, target)
		if before && got != target {
			f.t.Errorf("%s %s after %s: got the response for %q", method, target, firstExchanges[first].name, got)
		}
		f.mu.Lock()
		seen := f.seen[target]
		delete(f.seen, target)
		f.mu.Unlock()
		if before && seen != 1 {
			f.t.Errorf("%s %s arrived %d times, want once", method, target, seen)
		}
		for f.mode == "any" && f.racing.Load() == 1 {
			runtime.Gosched()
		}
	}
}

// tlsUpstreams returns the configuration of TLS servers, and the certificate that clients
// must trust.
func tlsUpstreams(t *testing.T) (versions map[string]*tls.Config, ca string) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	of := func(version uint16) *tls.Config {
		return &tls.Config{Certificates: s.TLS.Certificates, MaxVersion: version, NextProtos: []string{"http/1.1"}}
	}
	return map[string]*tls.Config{"http": nil, "TLS 1.2": of(tls.VersionTLS12), "TLS 1.3": of(tls.VersionTLS13)}, pemOf(s.Certificate())
}

// Guarantee: a response that an upstream sends without a request never becomes the response
// to the next request of a connection, if it has arrived before that request
// begins: neither over plain TCP nor over TLS, however soon the request comes, and whatever
// its method. The request is served whole, and once, over another connection.
func TestUnaskedResponseReachesNobody(t *testing.T) {
	versions, ca := tlsUpstreams(t)
	for name, secure := range versions {
		for _, mode := range []string{"together", "later", "any"} {
			for _, limit := range []int{0, 1} {
				t.Run(fmt.Sprintf("%s %s limit %d", name, mode, limit), func(t *testing.T) {
					t.Parallel()
					f := newForger(t, mode, 0, secure)
					o := upstream.Origin{Scheme: "http", Host: f.addr, MaxConns: limit, Target: name}
					rounds := 60
					if secure != nil {
						o.Scheme, o.CA = "https", ca
						rounds = 18
					}
					f.rounds(newPools(t, upstream.Config{}), o, mode, rounds)
				})
			}
		}
	}
}

// Guarantee: the same holds if only a part of the unasked response's TLS record has arrived, which
// shows nothing of the response.
func TestUnaskedPartOfARecordReachesNobody(t *testing.T) {
	versions, ca := tlsUpstreams(t)
	for name, secure := range versions {
		if secure == nil {
			continue
		}
		for _, first := range []int{1, 4, 5, 6, 50, 10_000} {
			t.Run(fmt.Sprintf("%s %d", name, first), func(t *testing.T) {
				t.Parallel()
				f := newForger(t, "later", first, secure)
				f.rounds(newPools(t, upstream.Config{}), upstream.Origin{Scheme: "https", Host: f.addr, CA: ca}, "part", len(firstExchanges))
			})
		}
	}
}

// Guarantee: an upstream that sends nothing unasked keeps its connection: requests that follow
// each other at once use one, also over TLS 1.3, which sends session tickets.
func TestRequestsShareAConnection(t *testing.T) {
	versions, ca := tlsUpstreams(t)
	for name, secure := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int32
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				_, _ = w.Write(body)
			}))
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			}
			o := upstream.Origin{Scheme: "http", Host: s.Listener.Addr().String()}
			if secure == nil {
				s.Start()
			} else {
				o.Scheme, o.CA = "https", ca
				s.TLS = secure.Clone()
				s.StartTLS()
			}
			t.Cleanup(s.Close)
			pools := newPools(t, upstream.Config{})
			for n := range 1000 {
				method := []string{"GET", "POST", "HEAD"}[n%3]
				req, body := request(method, o.Scheme+"://"+o.Host, "/"), ""
				if method == "POST" {
					body = strings.Repeat("x", n)
					req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
				}
				if _, got, err := send(t, pools, o, req); err != nil || got != body {
					t.Fatalf("request %d: got body %q, %v, want %q", n, got, err, body)
				}
			}
			if n := connections.Load(); n != 1 {
				t.Errorf("1,000 requests used %d connections, want 1", n)
			}
		})
	}
}
