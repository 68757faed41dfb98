package h2

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/snapshot"
)

// The differential test plays the same random script of frames to the engine, in front of an
// upstream, and to the HTTP/2 server of net/http, with the upstream's handler. A client must
// see the same: for each stream the interim responses, the status, fields, body and trailers,
// or the code of a reset, and whether and with which code the connection ends. What may differ
// is listed here with its reason. Scripts have no GOAWAY, after which net/http serves no new
// streams, and no trailers that were not announced, which it drops.

// ownFieldNames are the fields that differ: because the gateway adds them to every response,
// because a clock is in them, or because they announce trailers, of which the gateway may
// remove some.
var ownFieldNames = []string{"date", "x-request-id", "trailer"}

// stricter lists the inputs that net/http accepts, or repairs, and the engine refuses.
var stricter = map[string]string{
	`"content-length": "abc"`:                  smuggling,
	`"content-length": "-1"`:                   smuggling,
	`"content-length": "5, 5"`:                 smuggling,
	`"content-length": "99999999999999999999"`: smuggling,
	"two content-length":                       smuggling,
	"the same content-length twice":            smuggling,
	"less data than content-length":            "RFC 9113, 8.1.1: net/http lets the handler find out",
	"trailers before the data is complete":     "RFC 9113, 8.1.1: net/http lets the handler find out",
	`"host": "b.test"`:                         "contract, 4.5: two hosts; net/http prefers :authority",
	"two host":                                 "contract, 4.5: two hosts",
	`"x-test-a": " b"`:                         "RFC 9113, 8.2.1",
	`"x-test-a": "b\t"`:                        "RFC 9113, 8.2.1",
	`:path "/a b"`:                             "it is the target of a request over HTTP/1.1",
	`:authority ""`:                            "contract, 4.5: no host",
	"no :authority":                            "contract, 4.5: no host",
	`:method "GE T"`:                           "contract, 4.5: an invalid token",
	`:path "*"`:                                "RFC 9113, 8.3.1: only for OPTIONS",
	`:authority "a b"`:                         "it is the Host of a request over HTTP/1.1",
}

// smuggling is why only one form of content-length is accepted.
const smuggling = "contract, 4.5: a content-length that parsers can read in different ways"

// otherwise lists the errors for which both end the connection, but with different codes.
var otherwise = map[string]string{
	"HEADERS on a closed stream":         "RFC 9113, 5.1: STREAM_CLOSED; net/http has PROTOCOL_ERROR",
	"a frame that is too long":           "RFC 9113, 4.2: FRAME_SIZE_ERROR; net/http has PROTOCOL_ERROR",
	"a head without end of CONTINUATION": "a flood is ENHANCE_YOUR_CALM; net/http has PROTOCOL_ERROR",
}

// behave is the upstream's behaviour, which the field x-do chooses.
func behave(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	switch r.Header.Get("X-Do") {
	case "early": // the response does not wait for the body
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "no")
	case "copy":
		_ = rc.EnableFullDuplex()
		w.Header().Set("Content-Type", "text/plain")
		_ = rc.Flush()
		buf := make([]byte, 3000)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = rc.Flush()
			if err != nil {
				break
			}
		}
		w.Header().Set(http.TrailerPrefix+"X-Sum", r.Trailer.Get("X-Sum"))
	case "none":
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	case "unchanged":
		w.Header().Set("Etag", `"a"`)
		w.WriteHeader(http.StatusNotModified)
	case "long":
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", "150000")
		_, _ = w.Write(bytes.Repeat([]byte("0123456789abcdef"), 150000/16))
	case "fields":
		for i := range 40 {
			w.Header().Add("X-Many", fmt.Sprint(i, strings.Repeat("v", 700)))
		}
		w.Header().Add("Set-Cookie", "a=b")
		w.Header().Add("Set-Cookie", "c=d")
		_, _ = io.WriteString(w, "fields")
	case "hints":
		w.Header().Set("Link", "</a.css>")
		w.Header().Set("Content-Length", "0") // so that net/http sends a copy of the fields, which change below
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.Header().Del("Content-Length")
		report(w, r)
	case "broken": // breaks off a body that has begun
		_, _ = w.Write(make([]byte, 2000))
		_ = rc.Flush()
		panic(http.ErrAbortHandler)
	case "hold":
		if _, err := io.Copy(io.Discard, r.Body); err == nil { // reading the body fails when the connection ends before the body
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	default:
		report(w, r)
	}
}

// report responds with what arrived of the request.
func report(w http.ResponseWriter, r *http.Request) {
	sum := crc32.NewIEEE()
	n, err := io.Copy(sum, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var lines []string
	for name, values := range r.Header {
		if strings.HasPrefix(name, "X-Test-") || name == "Cookie" || name == "Content-Type" {
			lines = append(lines, fmt.Sprintf("%s: %q", name, values))
		}
	}
	for name, values := range r.Trailer {
		if values != nil {
			lines = append(lines, fmt.Sprintf("trailer %s: %q", name, values))
		}
	}
	slices.Sort(lines)
	w.Header().Set("X-Method", r.Method)
	w.Header().Set("Trailer", "X-Sum")
	_ = http.NewResponseController(w).Flush() // otherwise net/http counts the bytes of some, but not all
	_, _ = fmt.Fprintf(w, "%s %d %x\n%s", r.Method, n, sum.Sum32(), strings.Join(lines, "\n"))
	w.Header().Set("X-Sum", fmt.Sprintf("%x", sum.Sum32()))
}

// target is a server to play scripts to.
type target struct {
	name string
	addr string
	read atomic.Int64 // how much the server reads at once; 0 means any amount
}

// cutting is a listener whose connections are read in pieces.
type cutting struct {
	net.Listener
	read *atomic.Int64
}

func (l cutting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if n := l.read.Load(); err == nil && n > 0 {
		c = cutConn{c, int(n)}
	}
	return c, err
}

// cutConn is a connection of which no read returns more than n bytes.
type cutConn struct {
	net.Conn
	n int
}

func (c cutConn) Read(b []byte) (int, error) { return c.Conn.Read(b[:min(len(b), c.n)]) }

// startNetHTTP starts net/http's server with the bounds of the engine.
func startNetHTTP(t testing.TB) *target {
	s := httptest.NewUnstartedServer(http.HandlerFunc(behave))
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	s.Config.Protocols = &p
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 128, MaxReceiveBufferPerStream: 64<<10 - 1, MaxReceiveBufferPerConnection: 1 << 20}
	s.Start()
	t.Cleanup(s.Close)
	return &target{name: "net/http", addr: s.Listener.Addr().String()}
}

// startEngine starts the engine in front of an upstream of its own.
func startEngine(t testing.TB, scheme string) *target {
	t.Helper()
	service := httptest.NewUnstartedServer(http.HandlerFunc(behave))
	service.Config.ErrorLog = log.New(io.Discard, "", 0)
	if scheme == "h2c" {
		var p http.Protocols
		p.SetUnencryptedHTTP2(true)
		service.Config.Protocols = &p
	}
	service.Start()
	t.Cleanup(service.Close)
	host := service.Listener.Addr().String()
	gateway := &snapshot.Settings{ID: "gw_1", Upstream: &snapshot.Upstream{Targets: []*snapshot.Target{{Base: &url.URL{Scheme: scheme, Host: host, Path: "/x"}}}, Timeout: time.Minute}}
	e, err := New(Config{Config: proxy.Config{Admit: forwarder{gateway}, Pools: newPools(t)}})
	if err != nil {
		t.Fatal(err)
	}
	to := &target{name: "the engine, upstream " + scheme}
	to.addr = listen(t, e, func(l net.Listener) net.Listener { return cutting{l, &to.read} })
	return to
}

// describe says what was seen of a stream.
func (v *seen) describe(r *request) string {
	if v.status == "400" || v.status == "" && v.reset == "PROTOCOL_ERROR" {
		return "refused"
	}
	text := fmt.Sprintf("interim %q, status %s, fields %q", v.interim, v.status, v.fields)
	if v.reset != "" {
		return text + ", reset " + v.reset // some of the data may be lost
	}
	text += fmt.Sprintf(", %d bytes, checksum %x", v.length, v.sum)
	if r.te {
		text += fmt.Sprintf(", trailers %q", v.trailers)
	}
	return text
}

// compare plays a script to both servers.
func compare(t *testing.T, engine, reference *target, d func() *draw) {
	t.Helper()
	s := newScript(d(), false)
	got := play(t, engine, s)
	want := play(t, reference, newScript(d(), true))
	fail := func(format string, args ...any) {
		t.Errorf("%s: %s\nscript: %s", engine.name, fmt.Sprintf(format, args...), s)
	}
	for _, wrong := range got.wrong {
		fail("%s", wrong)
	}
	for _, wrong := range want.wrong {
		fail("net/http: %s", wrong)
	}
	for _, r := range s.requests {
		if r.reset {
			continue
		}
		a, b := got.stream(r.id).describe(r), want.stream(r.id).describe(r)
		if reason := stricter[r.invalid]; reason != "" {
			if a != "refused" {
				fail("stream %d, %s: got %s; want a refusal: %s", r.id, r.invalid, a, reason)
			}
			continue
		}
		if a != b {
			fail("stream %d, invalid %q:\n got %s\nwant %s", r.id, r.invalid, a, b)
		}
	}
	if got.goAway != want.goAway && (otherwise[s.last] == "" || (got.goAway == "") != (want.goAway == "")) {
		fail("after %s: got GOAWAY with %q, want %q", s.last, got.goAway, want.goAway)
	}
}

// Guarantee: whatever a client sends, valid or not, in whatever frames and pieces, it sees the same
// from the engine as from net/http's server, except for the differences that are listed above.
func TestBehavesAsNetHTTP(t *testing.T) {
	const parts, scripts = 4, 12
	for _, scheme := range []string{"http", "h2c"} {
		for part := range uint64(parts) {
			t.Run(fmt.Sprintf("%s %d", scheme, part), func(t *testing.T) {
				t.Parallel()
				engine, reference := startEngine(t, scheme), startNetHTTP(t)
				for n := range uint64(scripts) {
					seed := part*scripts + n
					compare(t, engine, reference, func() *draw { return &draw{rand.New(rand.NewPCG(seed, 7540))} })
					if t.Failed() {
						t.Fatalf("seed %d", seed)
					}
				}
			})
		}
	}
}
