package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/edge"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
	"github.com/keygate/keygate/internal/keygatetest/logtest"
	"github.com/keygate/keygate/internal/proxy/h1"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// testTimeout bounds every wait of a test. Reaching it is a failure.
const testTimeout = time.Minute

// lineEcho is an HTTP1 engine that responds to each line with the type of the
// connection, its ConnInfo and the line itself. The line "panic" makes it panic.
type lineEcho struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
	ended  chan struct{} // closed by Shutdown
}

func newLineEcho() *lineEcho {
	return &lineEcho{open: map[net.Conn]struct{}{}, ended: make(chan struct{})}
}

func (l *lineEcho) Announce() {}

func (l *lineEcho) ServeConn(c net.Conn, info h1.ConnInfo) {
	l.mu.Lock()
	closed := l.closed
	l.open[c] = struct{}{}
	l.mu.Unlock()
	defer c.Close()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.open, c)
	}()
	if closed {
		return
	}
	r := bufio.NewReader(io.MultiReader(bytes.NewReader(info.Prefix), c))
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if line == "panic\n" {
			panic("panic requested by the test")
		}
		fmt.Fprintf(c, "%T %s trusted=%v tls=%v %q\n", c, info.Client.Addr(), info.Trusted, info.TLS, line)
	}
}

func (l *lineEcho) Shutdown(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		close(l.ended)
	}
	l.closed = true
	for c := range l.open {
		_ = c.Close()
	}
	return nil
}

// http2Server is an HTTP2 engine on net/http.
type http2Server struct{ http.Server }

// newHTTP2Server returns an engine with the handler h. Nil is a handler that
// responds with the protocol, the client's address and whether it is trusted.
func newHTTP2Server(h http.HandlerFunc) *http2Server {
	type trusted struct{}
	if h == nil {
		h = func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s trusted=%v tls=%v", r.Proto, r.RemoteAddr, r.Context().Value(trusted{}), r.TLS != nil)
		}
	}
	var p http.Protocols
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	s := &http2Server{}
	s.Handler, s.Protocols = h, &p
	s.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, trusted{}, edge.Trusted(c))
	}
	return s
}

func (s *http2Server) Announce() {}

func (s *http2Server) Serve(l net.Listener) error {
	if err := s.Server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// harness is a running edge.Server on a free port of the loopback.
type harness struct {
	t      *testing.T
	addr   string
	server *edge.Server
	http1  *lineEcho
	served chan error // the result of Serve
	log    *logtest.Recorder
}

// start starts a server. The engines that cfg leaves nil are a lineEcho and an
// http2Server.
func start(t *testing.T, cfg edge.Config) *harness {
	t.Helper()
	return startOn(t, listen(t), cfg)
}

// startOn is start with a listener of the test's.
func startOn(t *testing.T, l net.Listener, cfg edge.Config) *harness {
	t.Helper()
	h := &harness{t: t, addr: l.Addr().String(), served: make(chan error, 1), log: &logtest.Recorder{}}
	if cfg.HTTP1 == nil {
		h.http1 = newLineEcho()
		cfg.HTTP1 = h.http1
	}
	if cfg.HTTP2 == nil {
		cfg.HTTP2 = newHTTP2Server(nil)
	}
	if cfg.HeadTimeout == 0 {
		cfg.HeadTimeout = testTimeout
	}
	cfg.Log = slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if h.server, err = edge.New(cfg); err != nil {
		t.Fatal(err)
	}
	go func() { h.served <- h.server.Serve(l) }()
	t.Cleanup(h.close)
	return h
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// close shuts the server down and checks that no connection counts as open any
// more. It is idempotent.
func (h *harness) close() {
	h.t.Helper()
	if h.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := h.server.Shutdown(ctx); err != nil {
		h.t.Errorf("Shutdown: got error %v, want nil", err)
	}
	if err := <-h.served; err != nil {
		h.t.Errorf("Serve: got error %v, want nil", err)
	}
	if n := h.server.Stats().Open; n != 0 {
		h.t.Errorf("after Shutdown: got %d open connections, want 0", n)
	}
	h.server = nil
}

// client is a connection to a harness.
type client struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (h *harness) dial() *client {
	h.t.Helper()
	return h.dialFrom("")
}

// dialFrom dials from an address of the loopback; "" is any.
func (h *harness) dialFrom(local string) *client {
	h.t.Helper()
	var dialer net.Dialer
	if local != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(local)}
	}
	c, err := dialer.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.client(c)
}

func (h *harness) client(c net.Conn) *client {
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	h.t.Cleanup(func() { _ = c.Close() })
	return &client{c, h.t, bufio.NewReader(c)}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// sendBytewise sends each byte of s in a separate write. The kernel may join them
// again.
func (c *client) sendBytewise(s string) {
	c.t.Helper()
	for i := range len(s) {
		c.send(s[i : i+1])
	}
}

// wantLine reads a line and checks that it ends with suffix.
func (c *client) wantLine(suffix string) {
	c.t.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil || !strings.HasSuffix(line, suffix+"\n") {
		c.t.Errorf("got line %q, error %v; want a line that ends with %q", line, err, suffix)
	}
}

// wantEcho sends text and a newline and checks that lineEcho responds to it.
func (c *client) wantEcho(text string) {
	c.t.Helper()
	c.send(text + "\n")
	c.wantLine(`"` + text + `\n"`)
}

// wantClosed checks that the server closes the connection and sends nothing more.
func (c *client) wantClosed() {
	c.t.Helper()
	rest, err := io.ReadAll(c.r)
	if len(rest) > 0 {
		c.t.Errorf("got %q, want the end of the connection", rest)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Error("the connection stayed open, want it closed")
	}
}

// wantOpen waits until the server counts n open connections.
func (h *harness) wantOpen(n int64) {
	h.t.Helper()
	awaittest.True(h.t, fmt.Sprintf("%d connections are open", n), func() bool { return h.server.Stats().Open == n })
}

func trust(networks ...string) *clientip.Trust {
	var all []netip.Prefix
	for _, n := range networks {
		all = append(all, netip.MustParsePrefix(n))
	}
	return clientip.NewTrust(all)
}

// wantLogged checks how many times the server logged message.
func (h *harness) wantLogged(message string, times int) {
	h.t.Helper()
	if n := h.log.Count(message); n != times {
		h.t.Errorf("%q: logged %d times, want %d", message, n, times)
	}
}
