package h1

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/logtest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
	"github.com/keygate/keygate/internal/tlspump"
	"github.com/keygate/keygate/internal/upstream"
)

// setup configures the harness's gateway. The gateway accepts every method on every
// path; below /public it needs no key.
type setup struct {
	upstream        string // base URL
	timeout         string // "" means 10m
	maxBody         int64  // bytes
	headers         map[string]string
	cors            *gateway.CORS
	limit           string        // the rate limit of the keys
	trusted         bool          // the client is a trusted proxy
	continueTimeout time.Duration // upstream.Config.ContinueTimeout
	maxConns        int           // upstream.Config.MaxConns
	trust           *clientip.Trust
	mono            func() int64
	tracer          proxy.Tracer
	wrap            func(net.Conn) net.Conn // wraps each client connection; nil ends it
	tls             uint16                  // the version of TLS to the client; 0 means none
	now             func() time.Time        // Config.Now; nil means slowClock
	maxPipes        int                     // Config.MaxPipes
	keepStreams     bool                    // cut_streams: false
	cost            cost.Rules              // what requests cost
	edits           [2]*gateway.HeaderRules // of requests, and of responses
}

// testTimeout bounds every wait of a test. Reaching it is a failure.
const testTimeout = time.Minute

// slowClock returns a clock that advances by a millisecond each time it is read, so that
// no two readings are equal. However slow the machine is, no timeout expires.
func slowClock() func() time.Time {
	now := time.Now()
	return func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	}
}

// edge is an engine on a free loopback port.
type harness struct {
	t      testing.TB
	addr   string
	key    string
	other  string // a second key
	tls    *tls.Config
	engine *Engine
	pools  *upstream.Pools
	log    *logtest.Recorder
	stop   func(ctx context.Context)

	collector *accesslog.Collector
	sink      *recordSink
	access    *access // unless the test has a decider of its own
}

// access changes what admits the requests of a harness.
type access struct {
	source   *snapshottest.Source
	follower *snapshot.Follower
	lost     atomic.Bool  // the lease
	ahead    atomic.Int64 // nanoseconds that the clocks are ahead
}

// Held implements admit.Lease.
func (a *access) Held() bool { return !a.lost.Load() }

// apply changes the store and puts that in force.
func (a *access) apply(t testing.TB, change func(*snapshottest.Source)) {
	change(a.source)
	if err := a.follower.CatchUp(t.Context()); err != nil {
		t.Error(err)
	}
}

// changeKey changes the harness's first key.
func (a *access) changeKey(t testing.TB, change func(k *apikey.Key)) {
	a.apply(t, func(s *snapshottest.Source) {
		k, err := s.KeyByID(t.Context(), keyID)
		if err != nil {
			t.Error(err)
			return
		}
		change(k)
		s.PutKey(*k)
	})
}

// newKey stores a key, and returns what revokes it.
func (a *access) newKey(t testing.TB) (secret string, revoke func()) {
	secret, err := apikey.Generate(apikey.GatewayLevel, rand.Reader)
	if err != nil {
		t.Error(err)
	}
	k, err := a.source.KeyByID(t.Context(), keyID)
	if err != nil {
		t.Error(err)
	}
	k.ID, k.Digest = id.New(id.Key), apikey.DigestOf(secret)
	k.BucketID = k.ID
	a.apply(t, func(s *snapshottest.Source) { s.PutKey(*k) })
	return secret, func() {
		k.RevokedAt = time.Now()
		a.apply(t, func(s *snapshottest.Source) { s.PutKey(*k) })
	}
}

func (a *access) revoke(t testing.TB) {
	a.changeKey(t, func(k *apikey.Key) { k.RevokedAt = time.Now() })
}

// recordSink is a sink that keeps the access records it takes.
type recordSink struct {
	mu      sync.Mutex
	entries []accesslog.Entry
	discard bool // keep nothing
}

func (r *recordSink) Take(batch []accesslog.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range batch {
		if r.discard {
			return
		}
		e.Path, e.MethodText, e.Cost = strings.Clone(e.Path), strings.Clone(e.MethodText), strings.Clone(e.Cost)
		r.entries = append(r.entries, e)
	}
}

// records returns the access records emitted since the last call.
func (g *harness) records() []accesslog.Entry {
	g.t.Helper()
	if err := g.collector.Sync(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	g.sink.mu.Lock()
	defer g.sink.mu.Unlock()
	entries := g.sink.entries
	g.sink.entries = nil
	return entries
}

const (
	gatewayID = "gw_00000000000000000000000001"
	keyID     = "key_00000000000000000000000002"
)

// start starts an engine whose requests package admit decides.
func start(t testing.TB, s setup) *harness {
	t.Helper()
	source, key, other := newSource(t, s)
	reserver, err := ratelimit.NewReserver(ratelimit.ReserverConfig{Store: source})
	if err != nil {
		t.Fatal(err)
	}
	clock, a := ratelimit.NewClock(), &access{source: source}
	now := func() ratelimit.Instant {
		i, ahead := clock.Now(), a.ahead.Load()
		return ratelimit.Instant{Wall: i.Wall + ahead, Mono: i.Mono + ahead}
	}
	s.mono = func() int64 { return now().Mono }
	a.follower, err = snapshot.New(snapshot.Config{
		Source: source, Reserver: reserver, Now: now,
		OpenSealed: func(sealed []byte) ([]byte, error) { return sealed, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.follower.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	admitter, err := admit.New(admit.Config{Follower: a.follower, Now: now, Lease: a})
	if err != nil {
		t.Fatal(err)
	}
	g := serve(t, admitter, s)
	g.key, g.other, g.access = key, other, a
	return g
}

// serve starts an engine whose requests decider decides.
func serve(t testing.TB, decider proxy.Decider, s setup) *harness {
	t.Helper()
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New(), ContinueTimeout: s.continueTimeout, MaxConns: s.maxConns})
	if err != nil {
		t.Fatal(err)
	}
	now := s.now
	if now == nil {
		now = slowClock()
	}
	log, sink := &logtest.Recorder{}, &recordSink{}
	collector, err := accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{sink}})
	if err != nil {
		t.Fatal(err)
	}
	if err := collector.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	engine, err := New(Config{
		MaxPipes: s.maxPipes,
		Config: proxy.Config{
			Admit: decider, Pools: pools, Log: slog.New(slog.NewTextHandler(log, nil)), Via: "keygate-test",
			Shard: collector.Shard, Mono: s.mono, Trust: s.trust, Tracer: s.tracer,
		},
		Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	var secure *tls.Config
	if s.tls != 0 {
		s.wrap, secure = overTLS(t, s.tls)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			info := ConnInfo{Client: netip.MustParseAddrPort(c.RemoteAddr().String()), Trusted: s.trusted}
			running.Go(func() {
				if s.wrap != nil {
					if c = s.wrap(c); c == nil {
						return
					}
				}
				engine.ServeConn(c, info)
			})
		}
	})
	g := &harness{t: t, tls: secure, addr: l.Addr().String(), engine: engine, pools: pools, log: log, collector: collector, sink: sink}
	g.logOnFailure()
	var once sync.Once
	g.stop = func(ctx context.Context) {
		once.Do(func() {
			_ = l.Close()
			if err := engine.Shutdown(ctx); err != nil {
				t.Errorf("Shutdown: got error %v, want nil", err)
			}
			running.Wait()
			pools.Close()
			if err := collector.Stop(context.Background()); err != nil {
				t.Errorf("stop the collector: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		g.stop(ctx)
	})
	return g
}

// overTLS returns a function that accepts a connection over a version of TLS as package edge does,
// and the configuration of its clients.
func overTLS(t testing.TB, version uint16) (accept func(net.Conn) net.Conn, client *tls.Config) {
	t.Helper()
	pair := certificatetest.New(t, "localhost")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: version, DynamicRecordSizingDisabled: true}
	return func(c net.Conn) net.Conn {
		over := tls.Server(tlspump.Wrap(c.(*net.TCPConn), c), server)
		if over.Handshake() != nil {
			_ = c.Close()
			return nil
		}
		return over
	}, &tls.Config{RootCAs: pair.Pool(t), ServerName: "localhost"}
}

// newSource returns a store with one account, one gateway and two keys, and the secrets of
// the keys.
func newSource(t testing.TB, s setup) (_ *snapshottest.Source, key, other string) {
	t.Helper()
	var secrets [2]string
	for i := range secrets {
		secret, err := apikey.Generate(apikey.GatewayLevel, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		secrets[i] = secret
	}
	var limit ratelimit.Rate
	if err := limit.UnmarshalText([]byte(s.limit)); err != nil {
		t.Fatal(err)
	}
	if s.timeout == "" {
		s.timeout = "10m"
	}
	accountID := id.Format(id.Account, [16]byte{3})
	headers := map[string][]byte{}
	for name, value := range s.headers {
		headers[name] = []byte(value)
	}
	methods := []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
	keyOf := func(keyID, secret string) apikey.Key {
		return apikey.Key{
			ID: keyID, BucketID: keyID, AccountID: accountID, Digest: apikey.DigestOf(secret), Level: apikey.GatewayLevel,
			Scope: apikey.Scopes{{Word: apikey.Admin}}, Owner: "Ann <ann@example.com>", RateLimit: ratelimit.RateOf(limit),
		}
	}
	acct := account.Account{ID: accountID, Name: account.Default, Tier: account.Platform}
	stored := &snapshottest.Source{}
	stored.PutAccount(acct)
	stored.PutGateway(gateway.Gateway{
		ID: gatewayID, AccountID: acct.ID, Name: "test", Hostname: "gw.localhost", Default: true,
		Upstream: gateway.Upstream{URL: s.upstream, Headers: headers},
		Timeout:  s.timeout, MaxBodyBytes: s.maxBody, CORS: s.cors,
		Requests: gateway.Requests{KeepStreams: s.keepStreams, RequestHeaders: s.edits[0], ResponseHeaders: s.edits[1]},
	},
		gateway.Route{ID: id.Format(id.Route, [16]byte{4}), GatewayID: gatewayID, Path: "/*", Methods: methods, Auth: gateway.AuthKey, Cost: s.cost},
		gateway.Route{ID: id.Format(id.Route, [16]byte{5}), GatewayID: gatewayID, Path: "/public/*", Methods: methods, Auth: gateway.AuthNone},
	)
	stored.PutKey(keyOf(keyID, secrets[0]))
	stored.PutKey(keyOf(id.Format(id.Key, [16]byte{6}), secrets[1]))
	return stored, secrets[0], secrets[1]
}

// logOnFailure prints the engine's log if the test fails.
func (g *harness) logOnFailure() {
	g.t.Cleanup(func() {
		if g.t.Failed() {
			g.t.Log(g.log)
		}
	})
}
