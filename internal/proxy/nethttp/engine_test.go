package nethttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/h1"
	"github.com/keygate/keygate/internal/proxy/nethttp"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// engineAlone is how the tests below know that upstreams are the engine's own.
const engineAlone = "TestEngineAlone/"

// What holds for requests that the engine of HTTP/1.1 serves through this driver,
// as in all other tests, holds for those that it serves itself.
func TestEngineAlone(t *testing.T) {
	for name, test := range sharedTests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func sharedTests() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"Wait": TestWait, "Limit": TestLimit, "CORS": TestCORS,
		"RequestFields": TestRequestFields, "KeyIsRemoved": TestKeyIsRemoved, "AnswerFields": TestAnswerFields,
		"PathBytes": TestPathBytes, "Interim": TestInterim, "NoUpgradeToH2C": TestNoUpgradeToH2C,
		"BoundsPass": TestBoundsPass, "RefusalDoesNotWait": TestRefusalDoesNotWait, "MaxBody": TestMaxBody,
		"MalformedBody": TestMalformedBody, "UpstreamFails": TestUpstreamFails, "Head": TestHead,
		"BothDirections": TestBothDirections, "Events": TestEvents, "BrokenBody": TestBrokenBody, "ClientLeaves": TestClientLeaves,
		"Continue": TestContinue, "NoContinue": TestNoContinue, "ContinueNeverComes": TestContinueNeverComes,
		"Trailers": TestTrailers, "EarlyAnswer": TestEarlyAnswer, "EarlyClose": TestEarlyClose,
		"LargeBodies": TestLargeBodies, "StrangeAnswers": TestStrangeAnswers,
		"TrustedProxy": TestTrustedProxy, "Loop": TestLoop, "SetFieldsAreOurs": TestSetFieldsAreOurs,
		"Tunnel": TestTunnel, "UpgradeDeclined": TestUpgradeDeclined, "TunnelBreaks": TestTunnelBreaks, "Drain": TestDrain, "TunnelTLS": TestTunnelTLS,
	}
}

// front gives connections of HTTP/2 to http2 and all others to the engine, which
// passes every request on to http2.
type front struct {
	engine  *h1.Engine
	http2   *nethttp.Server
	trusted bool
	l       net.Listener
	handed  chan net.Conn // to http2
	closed  chan struct{}
	closing sync.Once
	conns   sync.WaitGroup
}

func newFront(t testing.TB, decider proxy.Decider, pools *upstream.Pools, inner *nethttp.Server, s setup, outcomes *accesslog.Collector, log *slog.Logger) *front {
	t.Helper()
	d := &elsewhere{Decider: decider, off: strings.HasPrefix(t.Name(), engineAlone)}
	now := standstill()
	if s.moving {
		now = time.Now
	}
	e, err := h1.New(h1.Config{
		Config: proxy.Config{Admit: d, Pools: pools, Via: inner.Via(), Log: log, Shard: outcomes.Shard, Mono: s.mono},
		Now:    now,
		Forward: func(w http.ResponseWriter, r *http.Request, x *proxy.Exchange) {
			d.restore(&x.Verdict)
			inner.ServeDecided(w, r, x)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &front{engine: e, http2: inner, trusted: s.trusted, l: l, handed: make(chan net.Conn), closed: make(chan struct{})}
}

// standstill is a clock on which a millisecond passes at each tick, so that no
// time is told twice: however long the machine takes, nothing is late.
func standstill() func() time.Time {
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

// begun is a connection whose first bytes were read.
type begun struct {
	net.Conn
	io.Reader
}

func (b begun) Read(p []byte) (int, error) { return b.Reader.Read(p) }

func (f *front) dispatch(c net.Conn) {
	first := make([]byte, 3)
	n, _ := io.ReadFull(c, first)
	if string(first[:n]) != "PRI" {
		info := h1.ConnInfo{Client: netip.MustParseAddrPort(c.RemoteAddr().String()), Trusted: f.trusted, Prefix: first[:n]}
		f.engine.ServeConn(c, info)
		return
	}
	select {
	case f.handed <- begun{c, io.MultiReader(bytes.NewReader(first), c)}:
	case <-f.closed:
		_ = c.Close()
	}
}

// Accept, Close and Addr make a front the listener of its http2.
func (f *front) Accept() (net.Conn, error) {
	select {
	case c := <-f.handed:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

func (f *front) Close() error {
	f.closing.Do(func() { close(f.closed) })
	return nil
}

func (f *front) Addr() net.Addr { return f.l.Addr() }

// Shutdown may be called more than once.
func (f *front) Shutdown(ctx context.Context) error {
	_ = f.l.Close()
	engine := make(chan error, 1)
	go func() { engine <- f.engine.Shutdown(ctx) }()
	err := errors.Join(f.http2.Shutdown(ctx), <-engine)
	_ = f.Close()
	f.conns.Wait()
	return err
}

// elsewhere makes every upstream look like one that the engine does not speak
// to itself.
type elsewhere struct {
	proxy.Decider
	off      bool
	gateways sync.Map // *snapshot.Gateway as the engine sees it to the true one
}

func (d *elsewhere) Decide(req *admit.Request, v *admit.Verdict) {
	d.Decider.Decide(req, v)
	if v.Action != admit.Forward || d.off {
		return
	}
	seen := *v.Gateway
	seen.Upstream.Base = &url.URL{Scheme: "elsewhere", Host: v.Gateway.Upstream.Base.Host}
	d.gateways.Store(&seen, v.Gateway)
	v.Gateway = &seen
}

func (d *elsewhere) restore(v *admit.Verdict) {
	g, ok := d.gateways.LoadAndDelete(v.Gateway)
	if ok {
		v.Gateway = g.(*snapshot.Gateway)
	}
}
