package h2_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/edge/h1"
	"github.com/keygate/keygate/internal/edge/h2"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// throughEngine and engineAlone are how the tests below know that they run behind
// the engine of HTTP/1.1.
const (
	throughEngine = "TestThroughEngine/"
	engineAlone   = "TestEngineAlone/"
)

// What holds for a client of HTTP/1.1 that this driver serves itself holds for
// one that the engine serves through it (h1.Config.Forward).
func TestThroughEngine(t *testing.T) {
	for name, test := range sharedTests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// What holds for this driver holds for the engine's own exchanges.
func TestEngineAlone(t *testing.T) {
	tests := sharedTests()
	// The engine asks for no body that the upstream did not ask for.
	delete(tests, "ContinueNeverComes")
	for name, test := range tests {
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

// server is what a test needs of the data plane.
type server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
}

// engine serves HTTP/1.1 through h1, which passes every request on to inner.
type engine struct {
	*h1.Engine
	inner   *h2.Server
	trusted bool
	conns   sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
}

func newEngine(t testing.TB, decider h2.Decider, pools *upstream.Pools, inner *h2.Server, trusted bool, log *slog.Logger) *engine {
	t.Helper()
	d := &elsewhere{Decider: decider, off: strings.HasPrefix(t.Name(), engineAlone)}
	e, err := h1.New(h1.Config{
		Admit: d, Pools: pools, Via: inner.Via(), Log: log,
		Forward: func(w http.ResponseWriter, r *http.Request, v *admit.Verdict, requestID string) {
			d.restore(v)
			inner.ServeDecided(w, r, v, requestID)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &engine{Engine: e, inner: inner, trusted: trusted}
}

func (e *engine) Serve(l net.Listener) error {
	e.mu.Lock()
	e.listeners = append(e.listeners, l)
	e.mu.Unlock()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		info := h1.ConnInfo{Client: netip.MustParseAddrPort(c.RemoteAddr().String()), Trusted: e.trusted}
		e.conns.Go(func() { e.ServeConn(c, info) })
	}
}

func (e *engine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	for _, l := range e.listeners {
		_ = l.Close()
	}
	e.mu.Unlock()
	outer := make(chan error, 1)
	go func() { outer <- e.Engine.Shutdown(ctx) }()
	err := errors.Join(e.inner.Shutdown(ctx), <-outer)
	e.conns.Wait()
	return err
}

// elsewhere makes every upstream look like one that the engine does not speak
// to itself.
type elsewhere struct {
	h2.Decider
	off      bool
	gateways sync.Map // *snapshot.Gateway as the engine sees it to the true one
}

func (d *elsewhere) Decide(req *admit.Request, v *admit.Verdict) {
	d.Decider.Decide(req, v)
	if v.Outcome != admit.Forward || d.off {
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

func isThroughEngine(t testing.TB) bool {
	return strings.HasPrefix(t.Name(), throughEngine) || strings.HasPrefix(t.Name(), engineAlone)
}
