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
	"github.com/keygate/keygate/internal/proxy/h2"
	"github.com/keygate/keygate/internal/proxy/nethttp"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/upstream"
)

// engineAlone is the prefix of the names of tests in which the HTTP/1.1 engine speaks to
// the upstream itself. In all others it passes its requests to this driver.
const engineAlone = "TestEngineAlone/"

// Guarantee: HTTP/1.1 requests that the engine forwards itself pass the same tests as those
// that it hands to this driver.
func TestEngineAlone(t *testing.T) {
	for name, test := range sharedTests() {
		t.Run(name, test)
	}
}

// sharedTests returns the tests for both kinds of requests. They call t.Parallel.

func sharedTests() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"DecisionIsRepeatedAfterWait": TestDecisionIsRepeatedAfterWait,
		"RateLimitIs429":              TestRateLimitIs429,
		"CORS":                        TestCORS,

		"RequestFields":              TestRequestFields,
		"KeyIsRemoved":               TestKeyIsRemoved,
		"ResponseFields":             TestResponseFields,
		"PathsArriveUnchanged":       TestPathsArriveUnchanged,
		"InterimFields":              TestInterimFields,
		"TrustedProxyFields":         TestTrustedProxyFields,
		"LoopIs502":                  TestLoopIs502,
		"ConfiguredFieldsWin":        TestConfiguredFieldsWin,
		"NoUpgradeToHTTP2Upstream":   TestNoUpgradeToHTTP2Upstream,
		"HeadsWithinLimitsAreServed": TestHeadsWithinLimitsAreServed,

		"RefusalDoesNotWaitForBody": TestRefusalDoesNotWaitForBody,
		"MaxBody":                   TestMaxBody,
		"MalformedBodyIs400":        TestMalformedBodyIs400,
		"UpstreamFailures":          TestUpstreamFailures,
		"StrangeResponsesAre502":    TestStrangeResponsesAre502,
		"HeadHasNoBody":             TestHeadHasNoBody,

		"BodiesPassInBothDirections":  TestBodiesPassInBothDirections,
		"EventsPassAtOnce":            TestEventsPassAtOnce,
		"BrokenBodyNeverEndsProperly": TestBrokenBodyNeverEndsProperly,
		"ClientHangUpEndsUpstream":    TestClientHangUpEndsUpstream,
		"Continue":                    TestContinue,
		"FinalResponseInsteadOf100":   TestFinalResponseInsteadOf100,
		"ContinueTimeout":             TestContinueTimeout,
		"RequestTrailers":             TestRequestTrailers,
		"ResponseTrailers":            TestResponseTrailers,
		"EarlyResponse":               TestEarlyResponse,
		"EarlyResponseAndClose":       TestEarlyResponseAndClose,
		"LargeBodies":                 TestLargeBodies,

		"Tunnel":             TestTunnel,
		"UpgradeDeclined":    TestUpgradeDeclined,
		"TunnelEnds":         TestTunnelEnds,
		"TunnelOverTLS":      TestTunnelOverTLS,
		"DrainWaits":         TestDrainWaits,
		"DrainCutsOff":       TestDrainCutsOff,
		"ResponseHeadLimits": TestResponseHeadLimits,

		"OneRecordForEachRequest":       TestOneRecordForEachRequest,
		"RecordOfBrokenResponse":        TestRecordOfBrokenResponse,
		"RecordOfClientHangUp":          TestRecordOfClientHangUp,
		"RecordOfTimeout":               TestRecordOfTimeout,
		"RecordOfPanic":                 TestRecordOfPanic,
		"InterimHeadLimits":             TestInterimHeadLimits,
		"PanicIs500":                    TestPanicIs500,
		"GRPCRefusals":                  TestGRPCRefusals,
		"GRPCFailures":                  TestGRPCFailures,
		"ErrorsOfOtherCallersStayJSON":  TestErrorsOfOtherCallersStayJSON,
		"PriorKnowledgeRequest":         TestPriorKnowledgeRequest,
		"PriorKnowledgeRefusal":         TestPriorKnowledgeRefusal,
		"GRPCStream":                    TestGRPCStream,
		"TrailersOnlyStaysOneFrame":     TestTrailersOnlyStaysOneFrame,
		"ResetDuringInterimResponses":   TestResetDuringInterimResponses,
		"DrainWaitsForStream":           TestDrainWaitsForStream,
		"RefusalEndsStreamWithoutReset": TestRefusalEndsStreamWithoutReset,
		"InvalidContentLengthOverHTTP2": TestInvalidContentLengthOverHTTP2Is400,
		"SpaceInTargetOverHTTP2":        TestSpaceInTargetOverHTTP2Is400,
		"AmbiguousTargetOverHTTP2":      TestAmbiguousTargetOverHTTP2Is400,
		"HostOtherThanAuthority":        TestHostOtherThanAuthorityIs400,
		"UnaskedResponseReachesNobody":  TestUnaskedResponseReachesNobody,
	}
}

// front is a listener that hands HTTP/2 connections to the driver and all others to the
// engine. The engine passes its requests to the driver, unless the test's name begins
// with engineAlone.
type front struct {
	engine     *h1.Engine
	http2      *h2.Engine
	trusted    bool
	l          net.Listener
	http2Conns chan net.Conn
	closed     chan struct{}
	closeOnce  sync.Once
	conns      sync.WaitGroup
}

func newFront(t testing.TB, decider proxy.Decider, pools *upstream.Pools, inner *nethttp.Server, s setup, collector *accesslog.Collector, log *slog.Logger) *front {
	t.Helper()
	d := &bridgedUpstreams{Decider: decider, off: s.native || strings.HasPrefix(t.Name(), engineAlone)}
	http1Now, http2Now := slowClock(), slowClock()
	if s.realClock {
		http1Now, http2Now = time.Now, time.Now
	}
	shared := proxy.Config{Admit: d, Pools: pools, Via: inner.Via(), Log: log, Shard: collector.Shard, Mono: s.mono}
	forward := func(w http.ResponseWriter, r *http.Request, x *proxy.Exchange) {
		d.restore(&x.Verdict)
		inner.ServeDecided(w, r, x)
	}
	e, err := h1.New(h1.Config{Config: shared, Now: http1Now, Forward: forward})
	if err != nil {
		t.Fatal(err)
	}
	http2, err := h2.New(h2.Config{Config: shared, Now: http2Now, Forward: forward, Trusted: func(net.Conn) bool { return s.trusted }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &front{engine: e, http2: http2, trusted: s.trusted, l: l, http2Conns: make(chan net.Conn), closed: make(chan struct{})}
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
	first := make([]byte, 3)
	n, _ := io.ReadFull(c, first)
	if string(first[:n]) != "PRI" {
		info := h1.ConnInfo{Client: netip.MustParseAddrPort(c.RemoteAddr().String()), Trusted: f.trusted, Prefix: first[:n]}
		f.engine.ServeConn(c, info)
		return
	}
	select {
	case f.http2Conns <- prefixed{c, io.MultiReader(bytes.NewReader(first), c)}:
	case <-f.closed:
		_ = c.Close()
	}
}

// Accept, Close and Addr implement the net.Listener that http2 serves.
func (f *front) Accept() (net.Conn, error) {
	select {
	case c := <-f.http2Conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

func (f *front) Close() error {
	f.closeOnce.Do(func() { close(f.closed) })
	return nil
}

func (f *front) Addr() net.Addr { return f.l.Addr() }

// Shutdown drains the engine and the driver. It may be called more than once.
func (f *front) Shutdown(ctx context.Context) error {
	_ = f.l.Close()
	engine := make(chan error, 1)
	go func() { engine <- f.engine.Shutdown(ctx) }()
	err := errors.Join(f.http2.Shutdown(ctx), <-engine)
	_ = f.Close()
	f.conns.Wait()
	return err
}

// bridgedUpstreams is a Decider that gives every upstream a URL scheme that the engine
// does not support, so that the engine passes the request to the driver.
type bridgedUpstreams struct {
	proxy.Decider
	off      bool
	gateways sync.Map // from the *snapshot.Gateway that the engine sees to the real one
}

func (d *bridgedUpstreams) Decide(req *admit.Request, v *admit.Verdict) {
	d.Decider.Decide(req, v)
	if v.Action != admit.Forward || d.off {
		return
	}
	seen := *v.Gateway
	seen.Upstream.Base = &url.URL{Scheme: "bridged", Host: v.Gateway.Upstream.Base.Host}
	d.gateways.Store(&seen, v.Gateway)
	v.Gateway = &seen
}

// restore puts the real gateway back into the verdict.
func (d *bridgedUpstreams) restore(v *admit.Verdict) {
	g, ok := d.gateways.LoadAndDelete(v.Gateway)
	if ok {
		v.Gateway = g.(*snapshot.Gateway)
	}
}
