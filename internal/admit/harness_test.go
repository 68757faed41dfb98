package admit

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/ratelimit/quotatest"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
)

// clock is a ratelimit clock that the test moves.
type clock struct {
	mu  sync.Mutex
	now ratelimit.Instant
}

func (c *clock) Now() ratelimit.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Wall() time.Time { return time.Unix(0, c.Now().Wall).UTC() }

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Mono += int64(d)
	c.now.Wall += int64(d)
}

// harness is an Admitter over an in-memory store that has the account default.
type harness struct {
	t        testing.TB
	source   *snapshottest.Source
	clock    *clock
	follower *snapshot.Follower
	admit    *Admitter
	account  account.Account
	random   *rand.ChaCha8

	quotas *ratelimit.QuotaKeeper
	stored *quotatest.Store // of quotas
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	return newHarnessWith(t, func(*snapshot.Config) {})
}

// newHarnessWith returns a harness whose follower is configured as edit says.
func newHarnessWith(t testing.TB, edit func(*snapshot.Config)) *harness {
	t.Helper()
	h := &harness{
		t: t, source: &snapshottest.Source{}, random: rand.NewChaCha8([32]byte{1}),
		clock: &clock{now: ratelimit.Instant{Mono: int64(time.Hour), Wall: time.Date(2026, 8, 26, 12, 0, 0, 0, time.UTC).UnixNano()}},
	}
	h.account = account.Account{ID: id.New(id.Account), Name: account.Default, Tier: account.Platform}
	h.source.PutAccount(h.account)
	reserver, err := ratelimit.NewReserver(ratelimit.ReserverConfig{Store: h.source, Now: h.clock.Wall})
	if err != nil {
		t.Fatal(err)
	}
	if err := reserver.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := reserver.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	h.stored = quotatest.New()
	quotas, err := ratelimit.NewQuotaKeeper(ratelimit.QuotaKeeperConfig{Store: h.stored, Alone: true, Now: h.clock.Wall})
	if err != nil {
		t.Fatal(err)
	}
	if err := quotas.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := quotas.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	h.quotas = quotas
	cfg := snapshot.Config{Source: h.source, Reserver: reserver, Quotas: quotas, Now: h.clock.Now}
	edit(&cfg)
	h.follower, err = snapshot.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.admit, err = New(Config{Follower: h.follower, Now: h.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	h.catchUp()
	return h
}

func (h *harness) catchUp() {
	h.t.Helper()
	if err := h.follower.CatchUp(context.Background()); err != nil {
		h.t.Fatal(err)
	}
}

// gateway stores a gateway of the account default; edit may change it first. It is the default gateway
// unless edit gives it a hostname.
func (h *harness) gateway(edit func(*gateway.Gateway), routes ...gateway.Route) gateway.Gateway {
	h.t.Helper()
	g := gateway.Gateway{ID: id.New(id.Gateway), AccountID: h.account.ID, Upstream: gateway.Upstream{URL: "http://127.0.0.1:9"}}
	if edit != nil {
		edit(&g)
	}
	g.Default = !g.HostGiven
	h.source.PutGateway(g, routes...)
	h.catchUp()
	return g
}

func route(path string, methods ...string) gateway.Route {
	return gateway.Route{ID: id.New(id.Route), Path: path, Methods: methods, Auth: gateway.AuthKey}
}

func limited(r gateway.Route, c ratelimit.Config) gateway.Route {
	r.RateLimit = c
	return r
}

func public(r gateway.Route) gateway.Route {
	r.Auth = gateway.AuthNone
	return r
}

// key stores a gateway-level key with the scope admin; edit may change it first.
func (h *harness) key(edit func(*apikey.Key)) (apikey.Key, string) {
	h.t.Helper()
	k := apikey.Key{ID: id.New(id.Key), AccountID: h.account.ID, Level: apikey.GatewayLevel, Scope: apikey.Scopes{{Word: apikey.Admin}}}
	k.BucketID = k.ID
	if edit != nil {
		edit(&k)
	}
	secret, err := apikey.Generate(k.Level, h.random)
	if err != nil {
		h.t.Fatal(err)
	}
	k.Digest, k.Prefix = apikey.DigestOf(secret), apikey.PrefixOf(secret)
	h.source.PutKey(k)
	h.catchUp()
	return k, secret
}

func (h *harness) scoped(text string) string {
	h.t.Helper()
	scope, err := apikey.ParseScopes(text)
	if err != nil {
		h.t.Fatal(err)
	}
	_, secret := h.key(func(k *apikey.Key) { k.Scope = scope })
	return secret
}

// decide decides a request, and waits where a daily cap requires it.
func (h *harness) decide(req Request) *Verdict {
	h.t.Helper()
	if req.Method == "" {
		req.Method = "GET"
	}
	if req.Host == "" {
		req.Host = "any.example"
	}
	if req.Authorization != "" && req.Authorizations == 0 {
		req.Authorizations = 1
	}
	v := new(Verdict)
	for {
		h.admit.Decide(&req, v)
		if v.Action != Wait {
			return v
		}
		if err := h.admit.Wait(context.Background(), v); err != nil {
			h.t.Fatal(err)
		}
	}
}

// fields returns the header fields of a verdict by name.
func fields(v *Verdict) map[string]string {
	var each []byte
	v.EachField(make([]byte, 0, 256), func(name string, value []byte) {
		each = append(append(append(append(each, name...), ": "...), value...), "\r\n"...)
	})
	if got := v.AppendFields(nil); !bytes.Equal(got, each) {
		panic("AppendFields and EachField differ: " + string(got) + string(each))
	}
	all := map[string]string{}
	for line := range strings.SplitSeq(string(v.AppendFields(nil)), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			all[name] = value
		}
	}
	return all
}

func config(t testing.TB, sustained, burst, daily, per string) ratelimit.Config {
	t.Helper()
	c, err := ratelimit.ParseConfig(sustained, burst, daily, per)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func rate(t testing.TB, s string) ratelimit.Rate {
	t.Helper()
	r, err := ratelimit.ParseRate(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
