package wire

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/keygatetest/logtest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/h1"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
	"github.com/keygate/keygate/internal/upstream"
)

// viaName is the name of the gateway in Via.
const viaName = "keygate-wire"

// plane is a data plane on a free loopback port.
type dataPlane struct {
	t      testing.TB
	addr   string
	key    string
	tls    *tls.Config // of the listener; nil means plain TCP
	log    *logtest.Recorder
	engine *h1.Engine
	clock  *manualClock // of the engine
	stop   func(context.Context)
}

// start starts a data plane in front of the upstream at addr. over is the TLS
// configuration of the listener; nil means plain TCP.
func start(t testing.TB, s setup, addr string, over *tls.Config) *dataPlane {
	t.Helper()
	source, key := newSource(t, s, addr)
	admitter := newAdmitter(t, source)
	// The gateway never sends a 100 in the upstream's place: no timeout expires by itself.
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New(), ContinueTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	log := &logtest.Recorder{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	shared := proxy.Config{Admit: admitter, Pools: pools, Log: logger, Via: viaName}
	clock := newManualClock()
	engine, err := h1.New(h1.Config{
		Config: shared, Now: clock.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &dataPlane{t: t, addr: l.Addr().String(), key: key, tls: over, log: log, engine: engine, clock: clock}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(engine, c, over, s.trusted) })
		}
	})
	var once sync.Once
	p.stop = func(ctx context.Context) {
		once.Do(func() {
			_ = l.Close()
			if err := engine.Shutdown(ctx); err != nil {
				t.Errorf("shut down the engine: %v", err)
			}
			serving.Wait()
			pools.Close()
		})
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.stop(ctx)
	})
	return p
}

// serve serves a connection, after its TLS handshake if over is not nil.
func serve(engine *h1.Engine, c net.Conn, over *tls.Config, trusted bool) {
	info := h1.ConnInfo{Trusted: trusted, TLS: over != nil}
	if addr, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		info.Client = addr.AddrPort()
		info.Client = netip.AddrPortFrom(info.Client.Addr().Unmap(), info.Client.Port())
	}
	if over != nil {
		secure := tls.Server(c, over)
		if err := secure.HandshakeContext(context.Background()); err != nil {
			_ = c.Close()
			return
		}
		c = secure
	}
	engine.ServeConn(c, info)
}

func newAdmitter(t testing.TB, source *snapshottest.Source) *admit.Admitter {
	t.Helper()
	reserver, err := ratelimit.NewReserver(ratelimit.ReserverConfig{Store: source})
	if err != nil {
		t.Fatal(err)
	}
	clock := ratelimit.NewClock().Now
	follower, err := snapshot.New(snapshot.Config{
		Source: source, Reserver: reserver, Now: clock, DefaultGlobalLimit: ratelimit.Rate{Count: 1000000, Per: time.Second},
		OpenSealed: func(sealed []byte) ([]byte, error) { return sealed, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := follower.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	admitter, err := admit.New(admit.Config{Follower: follower, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	return admitter
}
