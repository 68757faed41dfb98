package h1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// adapted serves every request on a loopback port through the adapter, with only those
// parts of an engine that the adapter needs.
func adapted(t testing.TB, handler http.HandlerFunc) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{cfg: Config{Forward: func(w http.ResponseWriter, r *http.Request, _ *proxy.Exchange) { handler(w, r) }}}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { serveAdapted(e, c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	return l.Addr().String()
}

func serveAdapted(e *Engine, c net.Conn) {
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	in := &adaptedBody{r: bufio.NewReader(c)}
	info := &ConnInfo{Client: netip.MustParseAddrPort("192.0.2.7:1234"), Trusted: true}
	for {
		var parser http1.RequestParser
		var request http1.Request
		var head []byte
		for {
			b, err := in.r.ReadByte()
			if err != nil {
				return
			}
			head = append(head, b)
			if done, err := parser.Parse(head, &request); err != nil {
				return
			} else if done {
				break
			}
		}
		f := &bridge{
			engine: e, conn: c, info: info, request: &request, head: head, ctx: ctx,
			hijack:  func() []byte { b, _ := in.r.Peek(in.r.Buffered()); return b },
			date:    []byte("Thu, 01 Jan 1970 00:00:00 GMT"),
			closing: !request.KeepAlive(),
		}
		if request.HasBody() {
			in.reset(&request)
			f.body = in
		}
		if !e.serveBridged(f) {
			return
		}
	}
}

// adaptedBody reads a request's body in small pieces.
type adaptedBody struct {
	r        *bufio.Reader
	length   int64 // -1 means chunked
	chunked  http1.Chunked
	data     []byte
	section  []byte
	trailers http1.Trailers
	ended    bool
}

func (b *adaptedBody) reset(r *http1.Request) {
	*b = adaptedBody{r: b.r, length: r.ContentLength()}
}

func (b *adaptedBody) Read(p []byte) (int, error) {
	if b.length >= 0 {
		n, err := b.r.Read(p[:min(int64(len(p)), b.length)])
		if b.length -= int64(n); b.length == 0 {
			b.ended = true
			return n, io.EOF
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	for len(b.data) == 0 && !b.ended {
		c, err := b.r.ReadByte()
		if err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		if b.chunked.InTrailer() {
			b.section = append(b.section, c)
			var parser http1.TrailerParser
			b.ended, err = parser.Parse(b.section, &b.trailers)
		} else {
			_, b.data, err = b.chunked.Next([]byte{c})
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	if n == 0 && b.ended {
		return 0, io.EOF
	}
	return n, nil
}

func (b *adaptedBody) Close() error { return nil }
func (b *adaptedBody) Ended() bool  { return b.ended }
func (b *adaptedBody) Trailers() ([]byte, []http1.Field) {
	return b.section, b.trailers.Fields()
}

// exchangeBytes sends text and returns everything received until the connection ends. A
// reset is shown as "<reset>" at the end.
func exchangeBytes(t testing.TB, addr, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		return string(got) + "<" + errorText(err) + ">"
	}
	return string(got)
}

func errorText(err error) string {
	if strings.Contains(err.Error(), "reset") {
		return "reset"
	}
	return err.Error()
}

// Guarantee: a handler receives the same request from the adapter as from net/http.
func TestAdapterRequest(t *testing.T) {
	t.Parallel()
	type seen struct {
		Method, URI, URL, Proto, Host, Body string
		Header, Trailer, announced          http.Header
		Length                              int64
		Coding                              []string
		Err                                 string
	}
	requests := make(chan seen, 10)
	handler := func(w http.ResponseWriter, r *http.Request) {
		announced := r.Trailer.Clone()
		body, err := io.ReadAll(r.Body)
		s := seen{r.Method, r.RequestURI, r.URL.String(), r.Proto, r.Host, string(body), r.Header, r.Trailer, announced, r.ContentLength, r.TransferEncoding, ""}
		if err != nil {
			s.Err = "broken"
		}
		requests <- s
	}
	reference := httptest.NewServer(http.HandlerFunc(handler))
	defer reference.Close()
	addr := adapted(t, handler)
	for _, text := range []string{
		"GET /a?b=c HTTP/1.1\r\nHost: a.test\r\nx-low: 1\r\nX-LOW: 2\r\nAccept:  text/html \r\nX_Under: 3\r\n\r\n",
		"GET http://b.test:81/a/b?c HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET //a.test/b HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"OPTIONS /%2e?%zz HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello",
		"POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n1\r\n!\r\n0\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTrailer: x-digest, X-More\r\n\r\n5\r\nhello\r\n0\r\nX-Digest: d\r\nx-more: m\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
		"POST /a HTTP/1.1\r\nHost: a.test\r\nConnection: close, x-a\r\nCookie: a=1\r\nCookie: b=2\r\nContent-Length: 1\r\n\r\nx",
	} {
		c, err := net.Dial("tcp", reference.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		want := <-requests
		_ = c.Close()
		if c, err = net.Dial("tcp", addr); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		got := <-requests
		_ = c.Close()
		if got.Trailer.Get("X-Digest") != "" && got.announced == nil {
			t.Errorf("%q: got no announced trailers, want them before the body is read", text)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q\n got %+v\nwant %+v", text, got, want)
		}
	}
}

// Guarantee: a handler also receives what is not part of the message: the client's address,
// whether it used TLS, and the context.
func TestAdapterConnectionInfo(t *testing.T) {
	t.Parallel()
	addr := adapted(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.RemoteAddr, " ", r.TLS != nil, " ", r.Context().Err())
	})
	got := exchangeBytes(t, addr, "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	wantIn(t, got, "192.0.2.7:1234 false <nil>")
}

// responders returns handlers by path, each of which responds in a different way.
func responders(t *testing.T) map[string]http.HandlerFunc {
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	return map[string]http.HandlerFunc{
		"/nothing": func(http.ResponseWriter, *http.Request) {},
		"/status":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) },
		"/unknown": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299) },
		"/length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "he")
			flush(w)
			_, _ = io.WriteString(w, "llo")
		},
		"/stream": func(w http.ResponseWriter, _ *http.Request) {
			flush(w)
			_, _ = io.WriteString(w, "one")
			flush(w)
			_, _ = io.WriteString(w, "two")
			flush(w)
		},
		"/empty": func(w http.ResponseWriter, _ *http.Request) { flush(w) },
		"/none":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"/same": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(304)
			if _, err := io.WriteString(w, "x"); err == nil {
				t.Error("writing a body to a 304: got no error, want one")
			}
		},
		"/close": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.Header().Set("Content-Length", "2")
			_, _ = io.WriteString(w, "ok")
		},
		"/trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-One")
			flush(w)
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-One", "1")
			w.Header().Set(http.TrailerPrefix+"X-Two", "2")
			flush(w)
		},
		"/early": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style>")
			w.WriteHeader(103)
			w.Header().Del("Link")
			w.Header().Set("Content-Length", "2")
			_, _ = io.WriteString(w, "ok")
		},
		"/evil": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Split", "a\r\nX-Other: b")
			w.Header()["X Bad"] = []string{"1"}
			w.Header().Set("Content-Length", "0")
		},
		"/large": func(w http.ResponseWriter, _ *http.Request) {
			for range 40 {
				_, _ = io.WriteString(w, strings.Repeat("x", 9000))
				flush(w)
			}
		},
	}
}

// Guarantee: a client receives the same response from the adapter as from net/http, and so
// the next one on the connection.
func TestAdapterResponse(t *testing.T) {
	t.Parallel()
	handlers := responders(t)
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		handlers[r.URL.Path](w, r)
	}
	reference := httptest.NewServer(http.HandlerFunc(handler))
	defer reference.Close()
	addr := adapted(t, handler)
	for path := range handlers {
		for _, start := range []string{"GET %s HTTP/1.1", "HEAD %s HTTP/1.1", "GET %s HTTP/1.0", "HEAD %s HTTP/1.0"} {
			for _, connection := range []string{"keep-alive", "close", "x"} {
				if path == "/early" && strings.HasSuffix(start, "1.0") {
					continue // net/http sends a 1xx to HTTP/1.0 clients as well
				}
				first := fmt.Sprintf(start, path)
				text := first + "\r\nHost: a\r\nConnection: " + connection + "\r\n\r\n" + "GET /close HTTP/1.1\r\nHost: a\r\n\r\n"
				got, want := readResponses(t, addr, text), readResponses(t, reference.Listener.Addr().String(), text)
				if !slices.Equal(got, want) {
					t.Errorf("%s, connection %s\n got %q\nwant %q", first, connection, got, want)
				}
			}
		}
	}
}

// Guarantee: a handler cannot write more than its Content-Length, and a 304 keeps the
// Content-Length of the body that it would have.
func TestAdapterContentLength(t *testing.T) {
	t.Parallel()
	addr := adapted(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1")
		if r.URL.Path == "/same" {
			w.WriteHeader(304)
			return
		}
		if _, err := io.WriteString(w, "too much"); !errors.Is(err, http.ErrContentLength) {
			t.Errorf("writing too much: got error %v, want %v", err, http.ErrContentLength)
		}
		_, _ = io.WriteString(w, "t")
	})
	for first, want := range map[string]string{
		"GET /same HTTP/1.1": "Content-Length: 1\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nConnection: close\r\n\r\n",
		"GET /a HTTP/1.1":    "Content-Length: 1\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nConnection: close\r\n\r\nt",
	} {
		wantSuffix(t, exchangeBytes(t, addr, first+"\r\nHost: a\r\nConnection: close\r\n\r\n"), want)
	}
}

// readResponses returns each response as text, with its body decoded.
func readResponses(t *testing.T, addr, text string) (all []string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	_, _ = io.WriteString(c, text)
	r := bufio.NewReader(c)
	method, _, _ := strings.Cut(text, " ")
	for {
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return all
		}
		body, err := io.ReadAll(resp.Body)
		for name := range resp.Header {
			// The adapter sends Connection: close to HTTP/1.0 clients, net/http does not.
			if name == "Date" || name == "Connection" && resp.ProtoMinor == 0 && resp.Close {
				delete(resp.Header, name)
			}
		}
		all = append(all, fmt.Sprint(resp.Proto, resp.StatusCode, resp.Header, resp.TransferEncoding, resp.ContentLength, resp.Close, len(body), string(body[:min(len(body), 50)]), err, resp.Trailer))
		if resp.StatusCode >= 200 {
			method = "GET"
		}
	}
}

// Guarantee: a response that the handler aborts, or that is shorter than its Content-Length,
// never looks complete, whatever its framing.
func TestAdapterBrokenResponse(t *testing.T) {
	t.Parallel()
	addr := adapted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" || r.URL.Path == "/short" {
			w.Header().Set("Content-Length", "10")
		}
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path != "/short" {
			panic(http.ErrAbortHandler)
		}
	})
	for _, first := range []string{"GET /length HTTP/1.1", "GET /short HTTP/1.1", "GET /chunked HTTP/1.1", "GET /length HTTP/1.0", "GET /close HTTP/1.0"} {
		got := exchangeBytes(t, addr, first+"\r\nHost: a\r\n\r\n")
		switch {
		case !strings.Contains(got, "part") && !strings.HasSuffix(got, "<reset>"):
			t.Errorf("%s: got %q, want the first part of the body or a reset", first, got)
		case strings.HasSuffix(got, "0\r\n\r\n"):
			t.Errorf("%s: got %q, want no last chunk", first, got)
		case strings.HasPrefix(first, "GET /close") && !strings.HasSuffix(got, "<reset>"):
			t.Errorf("%s: got %q, want a reset, since the connection's end would complete the body", first, got)
		}
	}
}

// Guarantee: a request whose body the handler did not read is the last of its connection,
// and its response arrives even if the client keeps sending.
func TestAdapterUnreadBody(t *testing.T) {
	t.Parallel()
	addr := adapted(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "no")
	})
	got := exchangeBytes(t, addr, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 90000))
	wantSuffix(t, got, "\r\n\r\nno")
	if n := strings.Count(got, "HTTP/1.1 "); n != 1 {
		t.Errorf("got %d responses in %q, want 1", n, got)
	}
}

// Guarantee: reading a body fails once the handler has returned, even in a goroutine that
// is reading it at that moment.
func TestAdapterLateReader(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	addr := adapted(t, func(w http.ResponseWriter, r *http.Request) {
		reading := make(chan struct{})
		go func() {
			close(reading)
			_, err := io.ReadAll(r.Body)
			failed <- err
		}()
		<-reading
		w.Header().Set("Content-Length", "0")
	})
	got := exchangeBytes(t, addr, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("got %q, want a 200", got)
	}
	if err := <-failed; err == nil {
		t.Error("the late reader: got the end of the body, want an error")
	}
}

// Guarantee: a handler can read the body and write the response at the same time, and a
// client that waits for it gets a 100.
func TestAdapterFullDuplex(t *testing.T) {
	t.Parallel()
	addr := adapted(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusContinue)
		rc := http.NewResponseController(w)
		if err := rc.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		buf := make([]byte, 8)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = rc.Flush()
			if err != nil {
				return
			}
		}
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	_, _ = io.WriteString(c, "POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	r := bufio.NewReader(c)
	if line, _ := r.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("got %q, want a 100", line)
	}
	_, _ = r.ReadString('\n')
	_, _ = io.WriteString(c, "a")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for _, want := range []string{"a", "b", "c"} {
		got := make([]byte, 1)
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
			t.Fatalf("got %q, error %v; want %q", got, err, want)
		}
		if want != "c" {
			_, _ = io.WriteString(c, string(want[0]+1))
		}
	}
}

// Guarantee: a handler can hijack the connection, with the bytes that the client has sent
// after its request, but not once the response has started or while a body is unread.
func TestAdapterHijack(t *testing.T) {
	t.Parallel()
	addr := adapted(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.URL.Path == "/late" {
			_ = rc.Flush()
		}
		c, buffered, err := rc.Hijack()
		if err != nil {
			_, _ = io.WriteString(w, "refused")
			return
		}
		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("write after Hijack: got error %v, want %v", err, http.ErrHijacked)
		}
		if _, _, err := rc.Hijack(); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("second Hijack: got error %v, want %v", err, http.ErrHijacked)
		}
		first := make([]byte, buffered.Reader.Buffered())
		_, _ = io.ReadFull(buffered, first)
		_, _ = fmt.Fprintf(buffered, "behind: %s", first)
		_ = buffered.Flush()
		_ = c.(*net.TCPConn).CloseWrite()
	})
	if got := exchangeBytes(t, addr, "GET /a HTTP/1.1\r\nHost: a\r\n\r\nmore"); got != "behind: more" {
		t.Errorf("got %q, want %q", got, "behind: more")
	}
	for _, text := range []string{"GET /late HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"} {
		wantIn(t, exchangeBytes(t, addr, text), "refused")
	}
}
