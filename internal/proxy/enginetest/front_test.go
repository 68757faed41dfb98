package enginetest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/h1"
	"github.com/keygate/keygate/internal/proxy/h2"
	"github.com/keygate/keygate/internal/tlspump"
	"github.com/keygate/keygate/internal/upstream"
)

// front is a listener that hands HTTP/2 connections to one engine and all others to the other.
type front struct {
	engine     *h1.Engine
	http2      *h2.Engine
	trusted    bool
	secure     *tls.Config // nil in clear
	l          net.Listener
	http2Conns chan net.Conn
	closed     context.Context //nolint:containedctx // until Close
	cancel     context.CancelFunc
	conns      sync.WaitGroup
}

func newFront(t testing.TB, decider proxy.Decider, pools *upstream.Pools, s setup, collector *accesslog.Collector, log *slog.Logger) *front {
	t.Helper()
	http1Now, http2Now := slowClock(), slowClock()
	if s.realClock {
		http1Now, http2Now = time.Now, time.Now
	}
	shared := proxy.Config{SelfService: s.holders, Admit: decider, Pools: pools, Via: "keygate", Log: log, Shard: collector.Shard, Mono: s.mono}
	e, err := h1.New(h1.Config{Config: shared, Now: http1Now})
	if err != nil {
		t.Fatal(err)
	}
	http2, err := h2.New(h2.Config{Config: shared, Now: http2Now, Trusted: func(net.Conn) bool { return s.trusted }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{engine: e, http2: http2, trusted: s.trusted, secure: s.secure, l: l, http2Conns: make(chan net.Conn)}
	f.closed, f.cancel = context.WithCancel(context.Background())
	return f
}

// slowClock returns a clock that advances by a millisecond each time it is read, so that
// no two readings are equal. However slow the machine is, no timeout expires.
func slowClock() func() time.Time {
	now := time.Now()
	return func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	}
}

func (f *front) serve() error {
	http2 := make(chan error, 1)
	go func() { http2 <- f.http2.Serve(f) }()
	for {
		c, err := f.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return <-http2
		} else if err != nil {
			return err
		}
		f.conns.Go(func() { f.dispatch(c) })
	}
}

// prefixed is a connection whose first bytes have been read and are read again.
type prefixed struct {
	net.Conn
	io.Reader
}

func (p prefixed) Read(b []byte) (int, error) { return p.Reader.Read(b) }

func (f *front) dispatch(c net.Conn) {
	info := h1.ConnInfo{Client: netip.MustParseAddrPort(c.RemoteAddr().String()), Trusted: f.trusted}
	if f.secure != nil {
		tcp := c.(*net.TCPConn)
		over := tls.Server(tlspump.Wrap(tcp, tcp), f.secure)
		switch {
		case over.Handshake() != nil:
			_ = tcp.Close()
		case over.ConnectionState().NegotiatedProtocol == "h2":
			f.passHTTP2(over)
		default:
			info.TLS = true
			f.engine.ServeConn(over, info)
		}
		return
	}
	first := make([]byte, 3)
	stop := context.AfterFunc(f.closed, func() { _ = c.SetReadDeadline(time.Now()) }) // a client may never send anything
	n, _ := io.ReadFull(c, first)
	if !stop() && n == 0 {
		_ = c.Close()
		return
	}
	if string(first[:n]) != "PRI" {
		info.Prefix = first[:n]
		f.engine.ServeConn(c, info)
		return
	}
	f.passHTTP2(prefixed{c, io.MultiReader(bytes.NewReader(first), c)})
}

// passHTTP2 hands a connection to the engine of HTTP/2.
func (f *front) passHTTP2(c net.Conn) {
	select {
	case f.http2Conns <- c:
	case <-f.closed.Done():
		_ = c.Close()
	}
}

// Accept, Close and Addr implement the net.Listener that http2 serves.
func (f *front) Accept() (net.Conn, error) {
	select {
	case c := <-f.http2Conns:
		return c, nil
	case <-f.closed.Done():
		return nil, net.ErrClosed
	}
}

func (f *front) Close() error {
	f.cancel()
	return nil
}

func (f *front) Addr() net.Addr { return f.l.Addr() }

// Shutdown drains the engines. It may be called more than once.
func (f *front) Shutdown(ctx context.Context) error {
	_ = f.l.Close()
	engine := make(chan error, 1)
	go func() { engine <- f.engine.Shutdown(ctx) }()
	err := errors.Join(f.http2.Shutdown(ctx), <-engine)
	_ = f.Close()
	f.conns.Wait()
	return err
}
