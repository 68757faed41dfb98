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
	"github.com/keygate/keygate/internal/keygatetest/leaktest"
	"github.com/keygate/keygate/internal/proxy/h1"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience bounds what a test waits for; reaching it is a failure.
const patience = time.Minute

// lines is an HTTP1 that answers each line with what the edge said of the
// connection and the line itself.
type lines struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
	ended  chan struct{} // closed when Shutdown was called
}

func newLines() *lines {
	return &lines{open: map[net.Conn]struct{}{}, ended: make(chan struct{})}
}

func (l *lines) ServeConn(c net.Conn, info h1.ConnInfo) {
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
			panic("as it was told")
		}
		fmt.Fprintf(c, "%T %s trusted=%v tls=%v %q\n", c, info.Client.Addr(), info.Trusted, info.TLS, line)
	}
}

func (l *lines) Shutdown(context.Context) error {
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

// web is an HTTP2 over net/http.
type web struct{ http.Server }

func newWeb(h http.HandlerFunc) *web {
	type trusted struct{}
	if h == nil {
		h = func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s trusted=%v tls=%v", r.Proto, r.RemoteAddr, r.Context().Value(trusted{}), r.TLS != nil)
		}
	}
	var p http.Protocols
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	w := &web{}
	w.Handler, w.Protocols = h, &p
	w.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	w.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, trusted{}, edge.Trusted(c))
	}
	return w
}

func (w *web) Serve(l net.Listener) error {
	if err := w.Server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// door is a Server on a free port of the loopback.
type door struct {
	t      *testing.T
	addr   string
	server *edge.Server
	http1  *lines
	served chan error
	log    *book
}

func open(t *testing.T, cfg edge.Config) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return openOn(t, l, cfg)
}

func openOn(t *testing.T, l net.Listener, cfg edge.Config) *door {
	t.Helper()
	d := &door{t: t, addr: l.Addr().String(), served: make(chan error, 1), log: &book{}}
	if cfg.HTTP1 == nil {
		d.http1 = newLines()
		cfg.HTTP1 = d.http1
	}
	if cfg.HTTP2 == nil {
		cfg.HTTP2 = newWeb(nil)
	}
	if cfg.HeadTimeout == 0 {
		cfg.HeadTimeout = patience
	}
	cfg.Log = slog.New(slog.NewTextHandler(d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if d.server, err = edge.New(cfg); err != nil {
		t.Fatal(err)
	}
	go func() { d.served <- d.server.Serve(l) }()
	t.Cleanup(d.close)
	return d
}

// close shuts the door. A second call does nothing.
func (d *door) close() {
	d.t.Helper()
	if d.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := d.server.Shutdown(ctx); err != nil {
		d.t.Error(err)
	}
	if err := <-d.served; err != nil {
		d.t.Errorf("Serve: %v", err)
	}
	if n := d.server.Stats().Open; n != 0 {
		d.t.Errorf("%d connections still count as open", n)
	}
	d.server = nil
}

// caller is a connection to a door.
type caller struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (d *door) dial() *caller { return d.dialFrom("") }

// dialFrom dials from an address of the loopback.
func (d *door) dialFrom(local string) *caller {
	d.t.Helper()
	var dialer net.Dialer
	if local != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(local)}
	}
	c, err := dialer.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	return d.caller(c)
}

func (d *door) caller(c net.Conn) *caller {
	_ = c.SetDeadline(time.Now().Add(patience))
	d.t.Cleanup(func() { _ = c.Close() })
	return &caller{c, d.t, bufio.NewReader(c)}
}

func (c *caller) say(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// hears expects a line that ends with want.
func (c *caller) hears(want string) {
	c.t.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil || !strings.HasSuffix(line, want+"\n") {
		c.t.Errorf("heard %q, %v; want … %q", line, err, want)
	}
}

// isClosed expects that the connection ends without a word.
func (c *caller) isClosed() {
	c.t.Helper()
	rest, err := io.ReadAll(c.r)
	if len(rest) > 0 {
		c.t.Errorf("heard %q", rest)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Error("it stays open")
	}
}

// eventually waits for what happens on the other side of a connection.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func trust(networks ...string) *clientip.Trust {
	var all []netip.Prefix
	for _, n := range networks {
		all = append(all, netip.MustParsePrefix(n))
	}
	return clientip.NewTrust(all)
}

// book keeps what is logged.
type book struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *book) count(s string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), s)
}
