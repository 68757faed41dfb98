package h2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	protocol "github.com/keygate/keygate/internal/http2"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// testTimeout bounds every wait of a test. Reaching it is a failure.
const testTimeout = time.Minute

func TestMain(m *testing.M) { leaktest.Main(m) }

// plain starts an engine on a loopback port whose requests go to a plain HTTP/1.1 upstream.
func plain(t testing.TB, handler http.HandlerFunc) (addr string, e *Engine) {
	t.Helper()
	return startOver(t, "http", handler)
}

// startOver is plain for an upstream of the scheme http or h2c.
func startOver(t testing.TB, scheme string, handler http.HandlerFunc) (addr string, e *Engine) {
	t.Helper()
	service := httptest.NewUnstartedServer(handler)
	if scheme == "h2c" {
		service.Config.Protocols = new(http.Protocols)
		service.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	service.Start()
	t.Cleanup(service.Close)
	base := &url.URL{Scheme: scheme, Host: service.Listener.Addr().String(), Path: "/x"} // a forwarder forwards no path
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	gateway := &snapshot.Settings{ID: "gw_1", Upstream: &snapshot.Upstream{Targets: []*snapshot.Target{{Base: base}}, Timeout: time.Minute}}
	e, err = New(Config{Config: proxy.Config{Admit: forwarder{gateway}, Pools: pools}})
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, e), e
}

// serve starts an engine on a loopback port and returns its address.
func serve(t testing.TB, cfg Config) (addr string) {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, e)
}

// listen makes an engine serve a loopback port. It is shut down at the end of the test.
func listen(t testing.TB, e *Engine, wrap ...func(net.Listener) net.Listener) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrap {
		l = w(l)
	}
	served := make(chan error, 1)
	go func() { served <- e.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := errors.Join(e.Shutdown(ctx), l.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// echo responds with the body of the request, piece by piece, while it arrives.
func echo(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex()
	buf := make([]byte, 5000)
	for {
		n, err := r.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			_ = rc.Flush()
		}
		if err != nil {
			return
		}
	}
}

func client(t testing.TB) *http.Transport {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// Guarantee: whatever many streams of a connection do at the same time (bodies of all sizes
// both ways, requests that are given up), each gets the bytes of its own response, and nothing of
// any stream is left over.
func TestStorm(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		t.Run(scheme, func(t *testing.T) { storm(t, scheme) })
	}
}

func storm(t *testing.T, scheme string) {
	t.Helper()
	addr, e := startOver(t, scheme, echo)
	tr := client(t)
	body := make([]byte, 300<<10)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	var all sync.WaitGroup
	for worker := range 40 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 13))
			for range 12 {
				sent := body[:r.IntN(1+r.IntN(len(body)))]
				ctx, cancel := context.WithCancel(t.Context())
				var reader io.Reader = bytes.NewReader(sent)
				if r.IntN(4) == 0 { // given up at some point of the body
					reader = io.MultiReader(bytes.NewReader(sent[:len(sent)/2]), giveUp(cancel), bytes.NewReader(sent[len(sent)/2:]))
				}
				err := exchange(ctx, tr, addr, reader, sent)
				if err != nil && ctx.Err() == nil {
					t.Errorf("worker %d: %v", worker, err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	tr.CloseIdleConnections()
	awaittest.True(t, "the engine has no connection", func() bool { return e.Connections() == 0 })
}

type giveUp context.CancelFunc

func (g giveUp) Read([]byte) (int, error) {
	g()
	return 0, io.EOF
}

func exchange(ctx context.Context, tr http.RoundTripper, addr string, body io.Reader, want []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/", body)
	if err != nil {
		return err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !bytes.Equal(got, want) {
		return fmt.Errorf("got status %d and %d bytes, want 200 and the %d bytes that were sent", resp.StatusCode, len(got), len(want))
	}
	return nil
}

// Guarantee: a client that resets its requests at once (CVE-2023-44487) never has more of them
// at the upstream than streams are allowed, is told to calm down, and disturbs nobody else.
func TestRapidReset(t *testing.T) {
	var running, most atomic.Int64
	addr, _ := plain(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "served")
			return
		}
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-r.Context().Done()
	})
	f, _ := dial(t, addr)
	code := http2.ErrCode(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if away, ok := frame.(*http2.GoAwayFrame); ok {
				code = away.ErrCode
			}
		}
	}()
	// :method POST, :scheme http, :path /, :authority a
	block := []byte("\x83\x86\x84\x01\x01a")
	for i := range uint32(3000) {
		id := 2*i + 1
		if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true}) != nil || f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			break
		}
	}
	tr := client(t)
	resp, err := tr.RoundTrip(httptest.NewRequest(http.MethodGet, "http://"+addr+"/", http.NoBody))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("another client: got %v, %v; want 200", resp, err)
	}
	_ = resp.Body.Close()
	<-done
	if code != http2.ErrCodeEnhanceYourCalm || most.Load() > 128 {
		t.Errorf("got GOAWAY with %v and up to %d requests at the upstream, want ENHANCE_YOUR_CALM and at most 128", code, most.Load())
	}
}

// Guarantee: a client that opens a stream as soon as it has the end of another is never refused,
// even if it always has as many as are allowed.
func TestSlotIsFreeWithEndOfResponse(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		for _, status := range []int{http.StatusOK, http.StatusNoContent} {
			t.Run(fmt.Sprint(scheme, " ", status), func(t *testing.T) {
				addr, _ := startOver(t, scheme, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
				f, _ := dial(t, addr)
				opened := uint32(0)
				open := func() {
					// :method GET, :scheme http, :path /, :authority a
					head := http2.HeadersFrameParam{StreamID: 2*opened + 1, BlockFragment: []byte("\x82\x86\x84\x01\x01a"), EndHeaders: true, EndStream: true}
					if err := f.WriteHeaders(head); err != nil {
						t.Fatal(err)
					}
					opened++
				}
				for range protocol.MaxStreams {
					open()
				}
				for opened < 3000 {
					frame, err := f.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					if reset, ok := frame.(*http2.RSTStreamFrame); ok {
						t.Fatalf("stream %d: got RST_STREAM with %v, want a response", reset.StreamID, reset.ErrCode)
					}
					if kind := frame.Header().Type; (kind == http2.FrameData || kind == http2.FrameHeaders) && frame.Header().Flags.Has(http2.FlagDataEndStream) {
						open()
					}
				}
			})
		}
	}
}

// dial opens a connection and sends the preface and settings.
func dial(t testing.TB, addr string) (*http2.Framer, net.Conn) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	f := http2.NewFramer(c, c)
	_, err = io.WriteString(c, http2.ClientPreface)
	if err = errors.Join(err, f.WriteSettings(), f.WriteSettingsAck()); err != nil {
		t.Fatal(err)
	}
	return f, c
}
