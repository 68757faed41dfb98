package upstream

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/netguard"
)

// call is an exchange of a test. It collects the response.
type call struct {
	H2Stream
	fields []string // name, value, ...; pseudo-header fields first

	hold    bool              // Consumed is not called
	onData  func(b []byte)    // called on the reader
	onWrite func()            // called by WriteHead
	onHead  func()            // called on the reader
	refill  func()            // CanSend
	headIn  chan struct{}     // closed when the head has arrived
	over    chan struct{}     // closed at the end
	check   func(kind string) // called at the beginning of each callback
	mu      sync.Mutex        // guards what follows
	trace   []string          // the callbacks
	status  int
	body    bytes.Buffer
	unread  int
	trailer string
	err     error
	safe    bool
}

func newCall(method, path string, fields ...string) *call {
	return &call{
		headIn: make(chan struct{}), over: make(chan struct{}),
		fields: append([]string{":method", method, ":scheme", "http", ":authority", "up.example", ":path", path}, fields...),
	}
}

func (c *call) note(kind string) {
	if c.check != nil {
		c.check(kind)
	}
	if n := len(c.trace); kind != "data" || n == 0 || c.trace[n-1] != "data" {
		c.trace = append(c.trace, kind)
	}
}

func (c *call) WriteHead(w *http2.Conn) {
	if c.onWrite != nil {
		c.onWrite()
	}
	for i := 0; i < len(c.fields); i += 2 {
		w.FieldString(c.fields[i], c.fields[i+1], false)
	}
}

func (c *call) TakeInterim(r *http2.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("interim " + strconv.Itoa(r.Status))
}

func (*call) Settle(bool) Flusher { return nil }

func (c *call) TakeHead(r *http2.Response, end bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("head")
	c.status = r.Status
	if c.onHead != nil {
		c.onHead()
	}
	close(c.headIn)
	c.finish(end)
}

func (c *call) TakeData(b []byte, end bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("data")
	c.body.Write(b)
	if c.onData != nil {
		c.onData(b)
	}
	if c.hold {
		c.unread += len(b)
	} else {
		c.Consumed(len(b))
	}
	c.finish(end)
}

func (c *call) TakeTrailers(t *http2.TrailerFields) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("trailers")
	c.trailer = string(t.Text)
	c.finish(true)
}

func (c *call) finish(end bool) {
	if end {
		close(c.over)
	}
}

func (c *call) CanSend() {
	if c.refill != nil {
		c.refill()
	}
}

func (c *call) Fail(err error, safe bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("fail")
	c.err, c.safe = err, safe
	close(c.over)
}

// read consumes what the call holds, now and from now on.
func (c *call) read() {
	c.mu.Lock()
	c.hold = false
	n := c.unread
	c.unread = 0
	c.mu.Unlock()
	c.Consumed(n)
}

// wait waits for the end and closes the stream.
func (c *call) wait(t testing.TB) {
	t.Helper()
	select {
	case <-c.over:
	case <-t.Context().Done():
		t.Fatal("the test has ended")
	}
	c.Close()
}

func newMultiplexed(t testing.TB, cfg Config, o Origin) (*Pools, *H2Pool) {
	t.Helper()
	if cfg.Guard == nil {
		cfg.Guard = netguard.New()
	}
	pools, err := NewPools(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	pool, err := pools.Multiplexed(o)
	if err != nil {
		t.Fatal(err)
	}
	return pools, pool
}

func (c *call) start(t testing.TB, p *H2Pool, end bool) *call {
	t.Helper()
	if err := p.Open(t.Context(), time.Now().Add(time.Minute), &c.H2Stream, H2Request{Exchange: c, End: end, Head: c.fields[1] == "HEAD"}); err != nil {
		t.Fatal(err)
	}
	return c
}

func get(t testing.TB, p *H2Pool, path string) *call {
	t.Helper()
	c := newCall("GET", path).start(t, p, true)
	c.wait(t)
	return c
}

func (c *call) want(t testing.TB, status int, body string) {
	t.Helper()
	if c.err != nil || c.status != status || c.body.String() != body {
		t.Errorf("got %d %.100q, error %v; want %d %.100q", c.status, c.body.String(), c.err, status, body)
	}
}

// serverKinds are HTTP/2 servers that the pool must get on with.
var serverKinds = []string{"net/http h2c", "net/http TLS", "x/net h2c", "x/net TLS"}

// serve starts a server and returns its origin.
func serve(t testing.TB, kind string, streams int, h http.Handler) Origin {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams, MaxReceiveBufferPerStream: 64 << 10}
	t.Cleanup(s.Close)
	server := &xhttp2.Server{MaxConcurrentStreams: uint32(streams), MaxUploadBufferPerStream: 64 << 10} //nolint:staticcheck // deprecated, and still in use out there
	switch kind {
	case "net/http h2c":
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	case "x/net h2c":
		return script(t, func(s *scripted) {
			server.ServeConn(s.net, &xhttp2.ServeConnOpts{Handler: h}) //nolint:staticcheck // as above
		})
	case "x/net TLS":
		s.Config.HTTP2 = nil
		s.TLS = &tls.Config{NextProtos: []string{"h2"}}
		s.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
			"h2": func(_ *http.Server, c *tls.Conn, h http.Handler) {
				server.ServeConn(c, &xhttp2.ServeConnOpts{Handler: h}) //nolint:staticcheck // as above
			},
		}
	default:
		s.EnableHTTP2 = true
	}
	if strings.HasSuffix(kind, "h2c") {
		s.Start()
		return Origin{Scheme: "h2c", Host: s.Listener.Addr().String()}
	}
	s.StartTLS()
	return Origin{Scheme: "https", Host: s.Listener.Addr().String(), CA: caOf(s)}
}

func caOf(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// echo responds with what it is sent, with an interim response before and trailers behind.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Link", "</a>; rel=preload")
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Set("Trailer", "X-Sum")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	n, _ := io.Copy(w, r.Body)
	w.Header().Set("X-Sum", fmt.Sprint(n, r.Trailer.Get("X-Client")))
}

// Guarantee: requests and responses with bodies, interim responses and trailers in both
// directions pass whole and in order, with any server.
func TestMultiplexedExchanges(t *testing.T) {
	for _, kind := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			_, pool := newMultiplexed(t, Config{}, serve(t, kind, 100, http.HandlerFunc(echo)))
			for _, size := range []int{0, 1, 10_000, 300_000} {
				body := strings.Repeat("0123456789", size/10+1)[:size]
				c := newCall("POST", "/", "trailer", "x-client").start(t, pool, false)
				if err := c.Send(t.Context(), []byte(body), false); err != nil {
					t.Fatal(err)
				}
				if !c.SendTrailers(func(w *http2.Conn) { w.FieldString("x-client", "!", false) }) {
					t.Fatal("trailers were not sent")
				}
				c.wait(t)
				c.want(t, 200, body)
				if want := "X-Sum: " + fmt.Sprint(size, "!"); !strings.Contains(strings.ToLower(c.trailer), strings.ToLower(want)) {
					t.Errorf("got trailers %q, want %q", c.trailer, want)
				}
				if got := strings.Join(c.trace, " "); got != "interim 103 head data trailers" && (size > 0 || got != "interim 103 head trailers") {
					t.Errorf("unexpected callbacks: %s", got)
				}
			}
			if s := pool.Stats(); s.Open != 1 || s.Live != 1 || s.Streams != 0 || s.Dials != 1 || s.Failures != 0 {
				t.Errorf("unexpected statistics %+v", s)
			}
		})
	}
}

// Guarantee: a response without a body ends with its head, also to HEAD.
func TestMultiplexedWithoutBody(t *testing.T) {
	_, pool := newMultiplexed(t, Config{}, serve(t, "net/http h2c", 100, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "HEAD" {
			w.Header().Set("Content-Length", "5")
			return
		}
		w.WriteHeader(204)
	})))
	for _, method := range []string{"HEAD", "DELETE"} {
		c := newCall(method, "/").start(t, pool, true)
		c.wait(t)
		if c.err != nil || len(c.trace) != 1 || c.body.Len() != 0 {
			t.Errorf("%s: got %q, error %v", method, c.trace, c.err)
		}
	}
}

// Guarantee: a response that is not read delays no other response on the connection, and holds no
// more of the server's data than a stream's window.
func TestSlowStreamHoldsUpNobody(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 2*http2.StreamWindow)
	_, pool := newMultiplexed(t, Config{}, serve(t, "net/http h2c", 128, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(long)
	})))
	slow := newCall("GET", "/")
	slow.hold = true
	slow.start(t, pool, true)
	<-slow.headIn
	var others sync.WaitGroup
	for range 99 {
		others.Go(func() { get(t, pool, "/").want(t, 200, string(long)) })
	}
	others.Wait()
	slow.mu.Lock()
	held := slow.body.Len()
	slow.mu.Unlock()
	if held > http2.StreamWindow {
		t.Errorf("the server could send %d bytes to a stream that is not read", held)
	}
	slow.read()
	slow.wait(t)
	slow.want(t, 200, string(long))
	if s := pool.Stats(); s.Open != 1 {
		t.Errorf("unexpected statistics %+v", s)
	}
}

// Guarantee: a connection without an exchange does not keep the buffers of large exchanges.
func TestIdleConnectionKeepsLittle(t *testing.T) {
	for _, kind := range serverKinds[:2] {
		_, pool := newMultiplexed(t, Config{}, serve(t, kind, 100, http.HandlerFunc(echo)))
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				c := newCall("POST", "/").start(t, pool, false)
				if err := c.Send(t.Context(), make([]byte, 200_000), true); err != nil {
					t.Errorf("got %v", err)
				}
				c.wait(t)
			})
		}
		all.Wait()
		for _, c := range pool.all() {
			kept := func() (n int) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.flushing {
					return math.MaxInt
				}
				out := c.http.Take(nil)
				n = cap(c.spare) + cap(out) + cap(c.buf)
				c.http.Take(out)
				if c.seal != nil {
					c.seal.mu.Lock()
					defer c.seal.mu.Unlock()
					n += cap(c.seal.buf) + cap(c.seal.spare)
				}
				return n
			}
			await(t, func() bool { return kept() <= 80<<10 }, func() any { return kept() })
		}
	}
}

// Guarantee: while an upload is stuck because its server does not read it, other exchanges go on.
func TestSlowUploadHoldsUpNobody(t *testing.T) {
	release := make(chan struct{})
	_, pool := newMultiplexed(t, Config{}, serve(t, "net/http h2c", 128, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stuck" {
			<-release
		}
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n)
	})))
	const size = 1 << 20
	stuck := newCall("POST", "/stuck")
	left := size
	chunk := make([]byte, 100_000)
	var sending sync.Mutex
	fill := func() {
		sending.Lock()
		defer sending.Unlock()
		for left > 0 {
			b := chunk[:min(left, len(chunk))]
			n, ok := stuck.SendData(b, left == len(b))
			if left -= n; n < len(b) || !ok {
				return
			}
		}
	}
	stuck.refill = fill
	stuck.start(t, pool, false)
	fill()
	for range 20 {
		c := newCall("POST", "/").start(t, pool, false)
		if err := c.Send(t.Context(), chunk[:20_000], true); err != nil {
			t.Fatal(err)
		}
		c.wait(t)
		c.want(t, 200, "20000")
	}
	close(release)
	stuck.wait(t)
	stuck.want(t, 200, strconv.Itoa(size))
}

// Guarantee: no server gets more streams at once than it allows. Beyond that, connections are
// added up to the limit, and then requests wait and are sent in the order in which they came.
func TestStreamLimit(t *testing.T) {
	const streams, conns, all = 3, 2, 30
	var mu sync.Mutex
	perConn, most := map[string]int{}, 0
	release := make(chan struct{})
	o := serve(t, "net/http h2c", streams, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		perConn[r.RemoteAddr]++
		most = max(most, perConn[r.RemoteAddr])
		mu.Unlock()
		<-release
		mu.Lock()
		perConn[r.RemoteAddr]--
		mu.Unlock()
	}))
	_, pool := newMultiplexed(t, Config{}, o)
	pool.most = conns
	var order []string
	var calls []*call
	var opened sync.WaitGroup
	for i := range all {
		c := newCall("GET", "/"+strconv.Itoa(i))
		c.onWrite = func() {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, c.fields[7])
		}
		calls = append(calls, c)
		opened.Go(func() { c.start(t, pool, true) })
		awaitStats(t, pool, func(s H2Stats) bool {
			return s.Streams == min(i+1, streams*conns) && s.Waiting == max(0, i+1-streams*conns)
		})
	}
	if s := pool.Stats(); s.Live != conns || s.Open != conns {
		t.Errorf("unexpected statistics %+v", s)
	}
	close(release)
	for _, c := range calls {
		c.wait(t)
		c.want(t, 200, "")
	}
	opened.Wait()
	mu.Lock()
	defer mu.Unlock()
	if most > streams {
		t.Errorf("the server got %d streams at once on a connection, and allows %d", most, streams)
	}
	for i, path := range order {
		if path != calls[i].fields[7] {
			t.Fatalf("requests were sent in the order %q", order)
		}
	}
}

// awaitStats waits until the pool's statistics are as wanted.
func awaitStats(t testing.TB, p *H2Pool, ok func(H2Stats) bool) {
	t.Helper()
	await(t, func() bool { return ok(p.Stats()) }, func() any { return p.Stats() })
}

// await waits until ok returns true. If it does not, the test says in which state it stayed.
func await(t testing.TB, ok func() bool, state func() any) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the state is %+v", state())
		}
	}()
	awaittest.True(t, "the pool reaches its state", ok)
}
