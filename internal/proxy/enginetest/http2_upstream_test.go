package enginetest_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/upstream/upstreamtest"
)

// tlsUpstreamOf starts a TLS upstream that speaks HTTP/2, or only HTTP/1.1, and returns its
// URL and certificate.
func tlsUpstreamOf(t testing.TB, isHTTP2 bool, handler http.HandlerFunc) (url, ca string) {
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = isHTTP2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// overUpstreams runs test with each kind of upstream other than plain HTTP/1.1, and with both
// versions of HTTP for the client.
func overUpstreams(t *testing.T, handler func(t *testing.T) http.HandlerFunc, test func(t *testing.T, s setup, client http.RoundTripper)) {
	t.Helper()
	kinds := map[string]func(t *testing.T, s *setup){
		"h2c":               func(t *testing.T, s *setup) { s.upstream = h2cUpstream(t, handler(t)) },
		"HTTP/2 over TLS":   func(t *testing.T, s *setup) { s.upstream, s.ca = tlsUpstreamOf(t, true, handler(t)) },
		"HTTP/1.1 over TLS": func(t *testing.T, s *setup) { s.upstream, s.ca = tlsUpstreamOf(t, false, handler(t)) },
		"plain HTTP/1.1":    func(t *testing.T, s *setup) { s.upstream = plainUpstream(t, handler(t)) },
	}
	for name, prepare := range kinds {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, client http.RoundTripper) {
				s := setup{}
				prepare(t, &s)
				test(t, s, client)
			})
		})
	}
}

func plainUpstream(t testing.TB, handler http.HandlerFunc) string {
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

// Guarantee: large bodies arrive whole in both directions at the same time, whatever the
// versions of HTTP on both sides.
func TestBodiesOverUpstreams(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	overUpstreams(t, func(t *testing.T) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			if _, err := io.Copy(w, r.Body); err != nil {
				t.Errorf("the upstream could not echo the body: %v", err)
			}
		}
	}, func(t *testing.T, s setup, client http.RoundTripper) {
		g := start(t, s)
		for range 3 {
			resp, got := g.do(client, "POST", "/echo", bytes.NewReader(body))
			if resp.StatusCode != http.StatusOK || got != string(body) {
				t.Errorf("got %s with %d bytes, want 200 with the %d bytes that were sent", resp.Status, len(got), len(body))
			}
		}
		for _, r := range g.records() {
			if r.Part != accesslog.Started && r.BytesIn != int64(len(body)) || r.Part != accesslog.Started && r.BytesOut != int64(len(body)) {
				t.Errorf("the record has %d bytes in and %d out, want %d each", r.BytesIn, r.BytesOut, len(body))
			}
		}
	})
}

// Guarantee: a body larger than max_body_bytes gets a 413, whatever the upstream speaks and whether or
// not the length was declared, and the upstream never gets all of it.
func TestMaxBodyOverUpstreams(t *testing.T) {
	overUpstreams(t, func(t *testing.T) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			if n, err := io.Copy(io.Discard, r.Body); err == nil && n > 100_000 {
				t.Errorf("the upstream got a whole body of %d bytes", n)
			}
		}
	}, func(t *testing.T, s setup, client http.RoundTripper) {
		s.maxBody = 100_000
		g := start(t, s)
		for name, body := range map[string]io.Reader{
			"declared":        strings.NewReader(strings.Repeat("x", 100_001)),
			"undeclared":      io.LimitReader(zeros{}, 100_001),
			"at the limit":    strings.NewReader(strings.Repeat("x", 100_000)),
			"small and whole": strings.NewReader("x"),
		} {
			want := http.StatusRequestEntityTooLarge
			if strings.HasPrefix(name, "at") || strings.HasPrefix(name, "small") {
				want = http.StatusOK
			}
			if resp, _ := g.do(client, "POST", "/", body); resp.StatusCode != want {
				t.Errorf("%s: got %s, want %d", name, resp.Status, want)
			}
		}
	})
}

// Guarantee: a request that its client cancels ends at an upstream of any kind, also while the
// response is arriving.
func TestClientHangUpEndsUpstreams(t *testing.T) {
	var all sync.Map // the channel of each subtest
	overUpstreams(t, func(t *testing.T) http.HandlerFunc {
		ended := make(chan struct{}, 1)
		all.Store(t.Name(), ended)
		return func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}, func(t *testing.T, s setup, client http.RoundTripper) {
		s.realClock = true
		g := start(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+g.addr+"/forever", nil)
		req.Header.Set("Authorization", "Bearer "+g.key)
		resp, err := client.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, len("begun"))); err != nil {
			t.Fatal(err)
		}
		cancel()
		ended, _ := all.Load(t.Name())
		receive(t, "the end of the upstream's work", ended.(chan struct{}))
	})
}

// scripted is a cleartext HTTP/2 upstream that responds frame by frame.
type scripted struct {
	*http2.Framer
	encoder *hpack.Encoder
	block   *bytes.Buffer
}

// accept reads the beginning of a connection and sends settings. ok is false if the connection has ended.
func accept(c *upstreamtest.Conn, settings ...http2.Setting) (s *scripted, ok bool) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return nil, false
	}
	s = &scripted{Framer: http2.NewFramer(c.Conn, c), block: &bytes.Buffer{}}
	s.encoder, s.ReadMetaHeaders = hpack.NewEncoder(s.block), hpack.NewDecoder(4096, nil)
	return s, s.WriteSettings(settings...) == nil
}

// acknowledge answers SETTINGS and PING.
func (s *scripted) acknowledge(frame http2.Frame) {
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = s.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = s.WritePing(true, f.Data)
		}
	}
}

func (s *scripted) head(stream uint32, end bool, fields ...string) {
	s.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = s.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: s.block.Bytes(), EndHeaders: true, EndStream: end})
}

// scriptedUpstream serves requests with onRequest, which is called when all of a request has
// arrived on the connection with that number, from 0.
func scriptedUpstream(t testing.TB, onRequest func(s *scripted, conn int64, stream uint32, body string)) string {
	var conns atomic.Int64
	addr := upstreamtest.Serve(t, func(c *upstreamtest.Conn) {
		conn := conns.Add(1) - 1
		s, ok := accept(c)
		if !ok {
			return
		}
		bodies := map[uint32]string{}
		for {
			f, err := s.ReadFrame()
			if err != nil {
				return
			}
			s.acknowledge(f)
			id := f.Header().StreamID
			if f, ok := f.(*http2.DataFrame); ok {
				bodies[id] += string(f.Data())
			}
			if f.Header().Flags.Has(http2.FlagDataEndStream) && (f.Header().Type == http2.FrameData || f.Header().Type == http2.FrameHeaders) {
				onRequest(s, conn, id, bodies[id])
			}
		}
	})
	return "h2c://" + addr
}

// atOnce is stream with head and body in one piece.
func (g *harness) atOnce(fields [][2]string, body []byte) *http2.MetaHeadersFrame {
	g.t.Helper()
	var piece bytes.Buffer
	piece.WriteString(http2.ClientPreface)
	out := &framer{Framer: http2.NewFramer(&piece, nil)}
	out.enc = hpack.NewEncoder(&out.block)
	_ = out.WriteSettings()
	out.request(1, false, fields)
	_ = out.WriteData(1, true, body)
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	_, _ = conn.Write(piece.Bytes())
	in := &framer{Framer: http2.NewFramer(conn, conn)}
	in.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := in.ReadFrame()
		if err != nil {
			g.t.Fatal(err)
		}
		if head, ok := frame.(*http2.MetaHeadersFrame); ok {
			return head
		}
	}
}

// Guarantee: a request that an upstream refuses with REFUSED_STREAM, or excludes by GOAWAY, is sent
// once more with its whole body, whatever its method; but only once, and not if the upstream may
// have processed it.
func TestUnprocessedRequestsAreRepeated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		refuse func(s *scripted, stream uint32)
		times  int // that the upstream refuses
		want   int
	}{
		{"REFUSED_STREAM", func(s *scripted, id uint32) { _ = s.WriteRSTStream(id, http2.ErrCodeRefusedStream) }, 1, 200},
		{"GOAWAY", func(s *scripted, _ uint32) { _ = s.WriteGoAway(0, http2.ErrCodeNo, nil) }, 1, 200},
		{"REFUSED_STREAM twice", func(s *scripted, id uint32) { _ = s.WriteRSTStream(id, http2.ErrCodeRefusedStream) }, 2, 502},
		{"CANCEL", func(s *scripted, id uint32) { _ = s.WriteRSTStream(id, http2.ErrCodeCancel) }, 1, 502},
		{"INTERNAL_ERROR", func(s *scripted, id uint32) { _ = s.WriteRSTStream(id, http2.ErrCodeInternal) }, 1, 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bodies := make(chan string, 16)
			var refused atomic.Int64
			url := scriptedUpstream(t, func(s *scripted, _ int64, id uint32, body string) {
				bodies <- body
				if refused.Add(1) <= int64(c.times) {
					c.refuse(s, id)
					return
				}
				s.head(id, true, ":status", "200")
			})
			g := start(t, setup{upstream: url})
			head := g.atOnce([][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "api.test"}, {":path", "/"}, {"authorization", "Bearer " + g.key}}, []byte("the body"))
			attempts := c.times
			if c.want == 200 {
				attempts++
			}
			if got := head.PseudoValue("status"); got != strconv.Itoa(c.want) || len(bodies) != attempts {
				t.Errorf("got %s after %d attempts, want %d after %d", got, len(bodies), c.want, attempts)
			}
			for range len(bodies) {
				if b := <-bodies; b != "the body" {
					t.Errorf("the upstream got the body %q", b)
				}
			}
		})
	}
}

// Guarantee: a response that an upstream breaks off never looks complete to the client, and a
// malformed one is a 502.
func TestBrokenResponsesOverHTTP2(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		respond func(s *scripted, id uint32)
		status  int // 0 for a response that is broken off
	}{
		{"reset within the body", func(s *scripted, id uint32) {
			s.head(id, false, ":status", "200", "content-length", "10")
			_ = s.WriteData(id, false, []byte("half"))
			_ = s.WriteRSTStream(id, http2.ErrCodeInternal)
		}, 0},
		{"a body that is too short", func(s *scripted, id uint32) {
			s.head(id, false, ":status", "200", "content-length", "10")
			_ = s.WriteData(id, true, []byte("half"))
		}, 0},
		{"reset before the head", func(s *scripted, id uint32) { _ = s.WriteRSTStream(id, http2.ErrCodeProtocol) }, 502},
		{"no status", func(s *scripted, id uint32) { s.head(id, true, "a", "b") }, 502},
		{"101", func(s *scripted, id uint32) { s.head(id, true, ":status", "101") }, 502},
		{"status 600", func(s *scripted, id uint32) { s.head(id, true, ":status", "600") }, 502},
		{"a field of a connection", func(s *scripted, id uint32) {
			s.head(id, true, ":status", "200", "connection", "close")
		}, 502},
		{"interim responses without end", func(s *scripted, id uint32) {
			for range 5000 {
				s.head(id, false, ":status", "103")
			}
		}, 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := scriptedUpstream(t, func(s *scripted, _ int64, id uint32, _ string) { c.respond(s, id) })
			g := start(t, setup{upstream: url})
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+g.addr+"/", nil)
			req.Header.Set("Authorization", "Bearer "+g.key)
			resp, err := h2cClient(t).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			switch {
			case c.status == 0 && (err == nil || errors.Is(err, io.EOF)):
				t.Errorf("got a complete response: %s with %q", resp.Status, body)
			case c.status != 0 && resp.StatusCode != c.status:
				t.Errorf("got %s, want %d", resp.Status, c.status)
			}
		})
	}
}
