package nethttp_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/netguard"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/proxy/nethttp"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
	"github.com/keygate/keygate/internal/upstream"
)

// setup is what a test wants of the one gateway behind the edge: it takes every
// method on every path, below /public without a key.
type setup struct {
	upstream        string
	ca              string
	timeout         string // "" is 10m
	maxBody         int64
	headers         map[string]string
	continueTimeout time.Duration // 0 is patience
	cors            *gateway.CORS
	limit           string // the key's rate limit
	trusted         bool   // the client is a proxy that is believed
	moving          bool   // the clock of the engine of HTTP/1.1 moves; else nothing is late there
	mono            func() int64
}

// edge is a data plane on a free loopback port.
type edge struct {
	t      testing.TB
	addr   string
	key    string
	server *front
	log    *logbook

	outcomes *accesslog.Collector
	told     *book
}

// book is a sink that keeps what it takes.
type book struct {
	mu      sync.Mutex
	entries []accesslog.Entry
}

func (b *book) Take(batch []accesslog.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range batch {
		e.Path, e.MethodText = strings.Clone(e.Path), strings.Clone(e.MethodText)
		b.entries = append(b.entries, e)
	}
}

// records returns what was told since the last call.
func (e *edge) records() []accesslog.Entry {
	e.t.Helper()
	if err := e.outcomes.Sync(context.Background()); err != nil {
		e.t.Fatal(err)
	}
	e.told.mu.Lock()
	defer e.told.mu.Unlock()
	entries := e.told.entries
	e.told.entries = nil
	return entries
}

const (
	gatewayID = "gw_00000000000000000000000001"
	keyID     = "key_00000000000000000000000002"
	// ownListener stands for a listener of Keygate.
	ownListener = "127.0.0.1:2"
)

func start(t testing.TB, s setup) *edge {
	t.Helper()
	source, key := newSource(t, s)
	ledger, err := ratelimit.NewReserver(ratelimit.ReserverConfig{Store: source})
	if err != nil {
		t.Fatal(err)
	}
	watch := ratelimit.NewClock()
	clock := watch.Now
	s.mono = watch.Mono
	live, err := snapshot.New(snapshot.Config{
		Source: source, Reserver: ledger, Now: clock,
		OpenSealed: func(sealed []byte) ([]byte, error) { return sealed, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := live.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	admitter, err := admit.New(admit.Config{Follower: live, Reserver: ledger, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	e := serve(t, admitter, s)
	e.key = key
	return e
}

func serve(t testing.TB, decider proxy.Decider, s setup) *edge {
	t.Helper()
	guard := netguard.New()
	guard.SetListeners(netip.MustParseAddrPort(ownListener))
	if s.continueTimeout == 0 {
		s.continueTimeout = patience
	}
	pools, err := upstream.NewPools(upstream.Config{Guard: guard, ContinueTimeout: s.continueTimeout})
	if err != nil {
		t.Fatal(err)
	}
	log, told := &logbook{}, &book{}
	outcomes, err := accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{told}})
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(log, nil))
	driver, err := nethttp.New(nethttp.Config{
		Config:  proxy.Config{Admit: decider, Pools: pools, Via: "keygate", Log: logger, Shard: outcomes.Shard, Mono: s.mono},
		Trusted: func(net.Conn) bool { return s.trusted },
		Linger:  5 * time.Second, // at its end a client and a driver that wait for each other go on
	})
	if err != nil {
		t.Fatal(err)
	}
	server := newFront(t, decider, pools, driver, s, outcomes, logger)
	served := make(chan error, 1)
	go func() { served <- server.serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		pools.Close()
	})
	return &edge{t: t, addr: server.Addr().String(), server: server, log: log, outcomes: outcomes, told: told}
}

// newSource returns a store of one account, one gateway and one key.
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
	acct := account.Account{ID: id.Format(id.Account, [16]byte{3}), Name: account.Default, Plan: account.Platform}
	stored := &snapshottest.Source{}
	stored.PutAccount(acct)
	stored.PutGateway(gateway.Gateway{
		ID: gatewayID, AccountID: acct.ID, Name: "test", Hostname: "gw.localhost",
		Upstream: gateway.Upstream{URL: s.upstream, Headers: headers, TLS: gateway.UpstreamTLS{CA: s.ca}},
		Timeout:  s.timeout, MaxBodyBytes: s.maxBody, CORS: s.cors,
	},
		gateway.Route{ID: id.Format(id.Route, [16]byte{4}), GatewayID: gatewayID, Path: "/*", Methods: methods, Auth: gateway.AuthKey},
		gateway.Route{ID: id.Format(id.Route, [16]byte{5}), GatewayID: gatewayID, Path: "/public/*", Methods: methods, Auth: gateway.AuthNone},
	)
	stored.PutKey(apikey.Key{
		ID: keyID, BucketID: keyID, AccountID: acct.ID, Digest: apikey.DigestOf(secret), Level: apikey.GatewayLevel,
		Scope: apikey.Scope{Word: apikey.Admin}, Owner: "Ann <ann@example.com>", RateLimit: limit,
	})
	return stored, secret
}

// logbook keeps what is logged.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
