package h1

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/clientip"
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

// setup is what a test wants of the one gateway behind the edge: it takes every
// method on every path, below /public without a key.
type setup struct {
	upstream string
	timeout  string // "" is 10m
	maxBody  int64
	headers  map[string]string
	cors     *gateway.CORS
	limit    string // the key's rate limit
	trusted  bool
	invite   time.Duration // upstream.Config.ContinueTimeout
	maxConns int           // upstream.Config.MaxConns
	trust    *clientip.Trust
	mono     func() int64
	tracer   proxy.Tracer
	wrap     func(net.Conn) net.Conn // of each client's connection
	forward  http.HandlerFunc        // Config.Forward; nil is a teapot
	handed   func(*proxy.Exchange)   // called with what Config.Forward is given, unless nil
	now      func() time.Time        // Config.Now; nil is standstill
}

// patience bounds what a test waits for; reaching it is a failure.
const patience = time.Minute

// standstill is a clock on which a millisecond passes at each tick, so that no
// time is told twice: however long the machine takes, nothing is late.
func standstill() func() time.Time {
	now := time.Now()
	return func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	}
}

// edge is an engine on a free loopback port.
type edge struct {
	t      testing.TB
	addr   string
	key    string
	other  string // another key
	engine *Engine
	pools  *upstream.Pools
	log    *logtest.Recorder
	stop   func(ctx context.Context)

	outcomes *accesslog.Collector
	told     *book
}

// book is a sink that keeps what it takes.
type book struct {
	mu      sync.Mutex
	entries []accesslog.Entry
	deaf    bool // keep nothing
}

func (b *book) Take(batch []accesslog.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range batch {
		if b.deaf {
			return
		}
		e.Path, e.MethodText = strings.Clone(e.Path), strings.Clone(e.MethodText)
		b.entries = append(b.entries, e)
	}
}

// records returns what was told since the last call.
func (e *edge) records() []accesslog.Entry {
	e.t.Helper()
	if err := e.outcomes.Sync(e.t.Context()); err != nil {
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
)

func start(t testing.TB, s setup) *edge {
	t.Helper()
	source, key, other := newSource(t, s)
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
	e.key, e.other = key, other
	return e
}

func serve(t testing.TB, decider proxy.Decider, s setup) *edge {
	t.Helper()
	pools, err := upstream.NewPools(upstream.Config{Guard: netguard.New(), ContinueTimeout: s.invite, MaxConns: s.maxConns})
	if err != nil {
		t.Fatal(err)
	}
	now := s.now
	if now == nil {
		now = standstill()
	}
	log, told := &logtest.Recorder{}, &book{}
	outcomes, err := accesslog.NewCollector(accesslog.Config{Sinks: []accesslog.Sink{told}})
	if err != nil {
		t.Fatal(err)
	}
	if err := outcomes.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	engine, err := New(Config{
		Config: proxy.Config{
			Admit: decider, Pools: pools, Log: slog.New(slog.NewTextHandler(log, nil)), Via: "keygate-test",
			Shard: outcomes.Shard, Mono: s.mono, Trust: s.trust, Tracer: s.tracer,
		},
		Forward: func(w http.ResponseWriter, r *http.Request, x *proxy.Exchange) {
			if s.handed != nil {
				s.handed(x)
			}
			if s.forward != nil {
				s.forward(w, r)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusTeapot)
		},
		Now: now,
	})
	if err != nil {
		t.Fatal(err)
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
			if s.wrap != nil {
				c = s.wrap(c)
			}
			running.Go(func() { engine.ServeConn(c, info) })
		}
	})
	e := &edge{t: t, addr: l.Addr().String(), engine: engine, pools: pools, log: log, outcomes: outcomes, told: told}
	e.logOnFailure()
	var once sync.Once
	e.stop = func(ctx context.Context) {
		once.Do(func() {
			_ = l.Close()
			if err := engine.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			running.Wait()
			pools.Close()
			if err := outcomes.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		e.stop(ctx)
	})
	return e
}

// newSource returns a store of one account, one gateway and two keys.
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
			Scope: apikey.Scope{Word: apikey.Admin}, Owner: "Ann <ann@example.com>", RateLimit: limit,
		}
	}
	acct := account.Account{ID: accountID, Name: account.Default, Plan: account.Platform}
	stored := &snapshottest.Source{}
	stored.PutAccount(acct)
	stored.PutGateway(gateway.Gateway{
		ID: gatewayID, AccountID: acct.ID, Name: "test", Hostname: "gw.localhost",
		Upstream: gateway.Upstream{URL: s.upstream, Headers: headers},
		Timeout:  s.timeout, MaxBodyBytes: s.maxBody, CORS: s.cors,
	},
		gateway.Route{ID: id.Format(id.Route, [16]byte{4}), GatewayID: gatewayID, Path: "/*", Methods: methods, Auth: gateway.AuthKey},
		gateway.Route{ID: id.Format(id.Route, [16]byte{5}), GatewayID: gatewayID, Path: "/public/*", Methods: methods, Auth: gateway.AuthNone},
	)
	stored.PutKey(keyOf(keyID, secrets[0]))
	stored.PutKey(keyOf(id.Format(id.Key, [16]byte{6}), secrets[1]))
	return stored, secrets[0], secrets[1]
}

// logOnFailure shows what was logged if the test fails.
func (e *edge) logOnFailure() {
	e.t.Cleanup(func() {
		if e.t.Failed() {
			e.t.Log(e.log)
		}
	})
}
