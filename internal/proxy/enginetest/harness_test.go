package enginetest_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/keygatetest/logtest"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
	"github.com/keygate/keygate/internal/upstream"
)

// setup configures the harness's gateway. The gateway accepts every method on every
// path; below /public it needs no key.
type setup struct {
	upstream        string // base URL
	ca              string // PEM, for an https upstream
	timeout         string // "" means 10m
	maxBody         int64  // bytes
	headers         map[string]string
	continueTimeout time.Duration // 0 means testTimeout
	cors            *gateway.CORS
	host            string       // upstream_host, as stored; "" means target
	errors          fault.Format // "" means FormatKeygate
	limit           string       // the key's rate limit
	concurrency     int64        // how many requests of the key may be in flight; 0 for any number
	trusted         bool         // the client is a trusted proxy
	secure          *tls.Config  // of the clients' connections; nil in clear
	realClock       bool         // the engines use the real clock; otherwise no timeout of theirs expires
	wall            time.Time    // what the wall clock of the decisions shows; the zero Time means the machine's time
	mono            func() int64 // of the engines; nil means that of the decisions
	bytes           bool         // a plan limits the bytes of bodies, to byteLimit in each direction
	cost            string       // what requests cost, as in a configuration file; a plan then limits the units of each meter
	adjust          func(*gateway.Upstream)
	store           func(*snapshottest.Source) // changes the store before it is read
	routes          []gateway.Route            // beside the two
	slashes         bool                       // encoded slashes are allowed
	holders         proxy.SelfService          // serves the holders of keys; nil: no self-service

	owner string // of the key; "" for Ann <ann@example.com>

	requestHeaders, responseHeaders *gateway.HeaderRules // of the gateway
}

// harness is a data plane on a free loopback port.
type harness struct {
	t      testing.TB
	addr   string
	key    string
	server *front
	log    *logtest.Recorder

	balance   *balance.Upstream    // nil with one target
	now       func() time.Duration // of balance
	collector *accesslog.Collector
	sink      *recordSink
}

// recordSink is a sink that keeps the access records it takes.
type recordSink struct {
	discard bool // it keeps none
	mu      sync.Mutex
	entries []accesslog.Entry
}

func (s *recordSink) Take(batch []accesslog.Entry) {
	if s.discard {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range batch {
		e.Path, e.MethodText, e.Cost, e.AttemptList = strings.Clone(e.Path), strings.Clone(e.MethodText), strings.Clone(e.Cost), strings.Clone(e.AttemptList)
		s.entries = append(s.entries, e)
	}
}

// records returns the access records emitted since the last call.
func (g *harness) records() []accesslog.Entry {
	g.t.Helper()
	if err := g.collector.Sync(context.Background()); err != nil {
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
	// ownListener is an address that the harness declares to be a listener of Keygate.
	ownListener = "127.0.0.1:2"
)

// start starts a data plane whose requests package admit decides.
func start(t testing.TB, s setup) *harness {
	t.Helper()
	source, key := newSource(t, s)
	if s.store != nil {
		s.store(source)
	}
	reserver, err := ratelimit.NewReserver(ratelimit.ReserverConfig{Store: source})
	if err != nil {
		t.Fatal(err)
	}
	clock := ratelimit.NewClock()
	if s.mono == nil {
		s.mono = clock.Mono
	}
	now := clock.Now
	if !s.wall.IsZero() {
		now = func() ratelimit.Instant { return ratelimit.Instant{Mono: clock.Mono(), Wall: s.wall.UnixNano()} }
	}
	follower, err := snapshot.New(snapshot.Config{
		Source: source, Reserver: reserver, Now: now,
		OpenSealed: func(sealed []byte) ([]byte, error) { return sealed, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := follower.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	admitter, err := admit.New(admit.Config{Follower: follower, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	g := serve(t, admitter, s)
	g.key, g.balance = key, follower.Current().GatewayByID(gatewayID).Upstream.Balance
	g.now = func() time.Duration { return time.Duration(clock.Mono()) }
	return g
}

// serve starts a data plane whose requests decider decides.
func serve(t testing.TB, decider proxy.Decider, s setup) *harness {
	t.Helper()
	guard := netguard.New()
	guard.SetListeners(netip.MustParseAddrPort(ownListener))
	if s.continueTimeout == 0 {
		s.continueTimeout = testTimeout
	}
	pools, err := upstream.NewPools(upstream.Config{Guard: guard, ContinueTimeout: s.continueTimeout})
	if err != nil {
		t.Fatal(err)
	}
	log, sink := &logtest.Recorder{}, &recordSink{}
	collector, err := accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{sink}})
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(log, nil))
	server := newFront(t, decider, pools, s, collector, logger)
	served := make(chan error, 1)
	go func() { served <- server.serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: got error %v, want nil", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: got error %v, want nil", err)
		}
		pools.Close()
	})
	return &harness{t: t, addr: server.Addr().String(), server: server, log: log, collector: collector, sink: sink}
}

// newSource returns a store with one account, one gateway and one key, and the secret of
// the key.
func newSource(t testing.TB, s setup) (*snapshottest.Source, string) {
	t.Helper()
	secret, err := apikey.Generate(apikey.GatewayLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var limit ratelimit.Rate
	if err := limit.UnmarshalText([]byte(s.limit)); err != nil {
		t.Fatal(err)
	}
	if s.timeout == "" {
		s.timeout = "10m"
	}
	headers := map[string][]byte{}
	for name, value := range s.headers {
		headers[name] = []byte(value)
	}
	methods := []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
	rules := costsOf(t, s.cost)
	acct := account.Account{ID: id.Format(id.Account, [16]byte{3}), Name: account.Default, Tier: account.Platform}
	up := gateway.Upstream{URL: s.upstream, Headers: headers, TLS: gateway.UpstreamTLS{CA: s.ca}, Host: s.host}
	if s.adjust != nil {
		s.adjust(&up)
	}
	stored := &snapshottest.Source{}
	stored.PutAccount(acct)
	routes := append(slices.Clone(s.routes),
		gateway.Route{ID: id.Format(id.Route, [16]byte{4}), GatewayID: gatewayID, Path: "/*", Methods: methods, Auth: gateway.AuthKey, Cost: rules},
		gateway.Route{ID: id.Format(id.Route, [16]byte{5}), GatewayID: gatewayID, Path: "/public/*", Methods: methods, Auth: gateway.AuthNone},
	)
	stored.PutGateway(gateway.Gateway{
		ID: gatewayID, AccountID: acct.ID, Name: "test", Hostname: "gw.localhost", Default: true,
		Upstream: up,
		Requests: gateway.Requests{ErrorFormat: string(s.errors), AllowEncodedSlashes: s.slashes, SelfService: gateway.SelfService{Usage: s.holders != nil, Rotate: s.holders != nil}, RequestHeaders: s.requestHeaders, ResponseHeaders: s.responseHeaders},
		Timeout:  s.timeout, MaxBodyBytes: s.maxBody, CORS: s.cors,
	}, routes...)
	planID := id.Format(id.Plan, [16]byte{6})
	switch {
	case s.bytes:
		stored.PutPlan(bytesPlan(t, planID, acct.ID))
	case s.cost != "":
		stored.PutPlan(unitsPlan(t, planID, acct.ID))
	default:
		planID = ""
	}
	stored.PutKey(apikey.Key{
		PlanID: planID,
		ID:     keyID, BucketID: keyID, AccountID: acct.ID, Digest: apikey.DigestOf(secret), Level: apikey.GatewayLevel,
		Scope: apikey.Scopes{{Word: apikey.Admin}}, Owner: cmp.Or(s.owner, "Ann <ann@example.com>"), RateLimit: ratelimit.RateOf(limit), Concurrency: s.concurrency,
	})
	return stored, secret
}
