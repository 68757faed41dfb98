package edge_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/edge"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// Guarantee: a connection beyond a limit is closed at once and counted, the log says so once rather
// than for each connection, and a connection that ends frees its slot.
func TestConnectionLimits(t *testing.T) {
	h := start(t, edge.Config{MaxConnections: 4, MaxConnectionsPerAddress: 2})
	first := h.dialFrom("127.0.0.1")
	first.wantEcho("x")
	h.dialFrom("127.0.0.1").wantEcho("x")
	for range 3 {
		h.dialFrom("127.0.0.1").wantClosed()
	}
	h.dialFrom("127.0.0.2").wantEcho("x")
	h.dialFrom("127.0.0.3").wantEcho("x")
	h.dialFrom("127.0.0.4").wantClosed()

	want := edge.Stats{Open: 4, Accepted: 8, RefusedAddress: 3, RefusedTotal: 1}
	if got := h.server.Stats(); got != want {
		t.Errorf("got stats %+v, want %+v", got, want)
	}
	h.wantLogged("too many connections", 1)

	_ = first.Close()
	h.wantOpen(3)
	h.dialFrom("127.0.0.1").wantEcho("x")
}

// failingListener is a listener whose first calls of Accept fail as in a process
// that has no file descriptor left.
type failingListener struct {
	net.Listener
	mu       sync.Mutex
	failures int // still to come
}

func (l *failingListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failures > 0 {
		l.failures--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// Guarantee: after errors of Accept the server retries and serves again; each error is counted, and
// one of them is logged.
func TestServeRetriesAfterAcceptErrors(t *testing.T) {
	h := startOn(t, &failingListener{Listener: listen(t), failures: 4}, edge.Config{})
	h.dial().wantEcho("x")
	if n := h.server.Stats().AcceptErrors; n != 4 {
		t.Errorf("got %d accept errors, want 4", n)
	}
	h.wantLogged("accepting a connection failed", 1)
}

// Guarantee: a shutdown ends the backoff after an error of Accept.
func TestShutdownEndsBackoff(t *testing.T) {
	h := startOn(t, &failingListener{Listener: listen(t), failures: 1 << 30}, edge.Config{})
	awaittest.True(t, "the backoff has grown", func() bool { return h.server.Stats().AcceptErrors > 5 })
	h.close()
}

// Guarantee: Serve returns an error if something other than Shutdown closed its
// listener.
func TestServeReportsClosedListener(t *testing.T) {
	l := listen(t)
	h := startOn(t, l, edge.Config{})
	_ = l.Close()
	if err := <-h.served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: got error %v, want %v", err, net.ErrClosed)
	}
	h.served <- nil
}

// Guarantee: a shutdown refuses new connections, closes those without a whole
// first line at once, shuts down both engines, and waits for running requests.
func TestShutdownDrains(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	h := start(t, edge.Config{HTTP2: newHTTP2Server(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		_, _ = io.WriteString(w, "done")
	})})
	stream, streamBody := priorKnowledgeClient(t), make(chan string, 1)
	go func() { streamBody <- bodyOrError(stream, "http://"+h.addr) }()
	<-arrived
	silent, partial, idle := h.dial(), h.dial(), h.dial()
	partial.send("PRI")
	idle.wantEcho("x")

	ended := make(chan error, 1)
	go func() { ended <- h.server.Shutdown(context.Background()) }()
	silent.wantClosed()
	partial.wantClosed()
	<-h.http1.ended
	idle.wantClosed()
	if err := <-h.served; err != nil {
		t.Errorf("Serve: got error %v, want nil", err)
	}
	if c, err := net.Dial("tcp", h.addr); err == nil {
		_ = c.Close()
		t.Error("a new connection was accepted during the shutdown, want it refused")
	}
	select {
	case err := <-ended:
		t.Fatalf("Shutdown returned %v while a stream was running, want it to wait", err)
	default:
	}
	close(release)
	if body := <-streamBody; body != "done" {
		t.Errorf("running stream: got body %q, want %q", body, "done")
	}
	stream.CloseIdleConnections()
	if err := <-ended; err != nil {
		t.Errorf("Shutdown: got error %v, want nil", err)
	}
	if err := h.server.Serve(listen(t)); err != nil {
		t.Errorf("Serve after Shutdown: got error %v, want nil", err)
	}
	h.served <- nil
}

// bodyOrError returns the body of a response, or the text of the error.
func bodyOrError(c *http.Client, url string) string {
	resp, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// Guarantee: requests that still run when the shutdown's context ends are cut off,
// and Shutdown reports no error.
func TestShutdownCutsOffAtDeadline(t *testing.T) {
	arrived := make(chan struct{})
	h := start(t, edge.Config{HTTP2: &closingServer{newHTTP2Server(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})}})
	failed := make(chan error, 1)
	go func() {
		resp, err := priorKnowledgeClient(t).Get("http://" + h.addr)
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	<-arrived
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := h.server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: got error %v, want nil", err)
	}
	if err := <-failed; err == nil || strings.Contains(err.Error(), "Timeout") {
		t.Errorf("running stream: got error %v, want it cut off by the server", err)
	}
}

// closingServer is an http2Server that cuts off running requests when the context
// of Shutdown ends, as h2.Engine does.
type closingServer struct{ *http2Server }

func (s *closingServer) Shutdown(ctx context.Context) error {
	if err := s.http2Server.Shutdown(ctx); err != nil {
		return s.Close()
	}
	return nil
}

// Guarantee: after many concurrent connections have come and gone, none counts as
// open.
func TestManyConnectionsReleaseTheirSlots(t *testing.T) {
	h := start(t, edge.Config{})
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := range 50 {
				c, err := net.Dial("tcp", h.addr)
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					_, _ = io.WriteString(c, "x\n")
					_, _ = c.Read(make([]byte, 100))
				}
				_ = c.Close()
			}
		})
	}
	all.Wait()
	awaittest.True(t, "1600 connections were accepted and none is open", func() bool {
		s := h.server.Stats()
		return s.Accepted == 1600 && s.Open == 0
	})
}
