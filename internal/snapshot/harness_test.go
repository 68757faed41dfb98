package snapshot_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
)

// clock is a ratelimit clock that the test moves.
type clock struct {
	mu  sync.Mutex
	now ratelimit.Instant
}

func newClock() *clock {
	return &clock{now: ratelimit.Instant{Mono: int64(time.Hour), Wall: time.Date(2026, 8, 26, 12, 0, 0, 0, time.UTC).UnixNano()}}
}

func (c *clock) Now() ratelimit.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// micros returns the time as access records have it.
func (c *clock) micros() int64 { return c.Now().Wall / 1000 }

// wall returns the time as records have it.
func (c *clock) wall() time.Time { return time.Unix(0, c.Now().Wall) }

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Mono += int64(d)
	c.now.Wall += int64(d)
}

// harness is a Follower over an in-memory store that has the account default.
type harness struct {
	t        testing.TB
	source   *snapshottest.Source
	clock    *clock
	reserver *ratelimit.Reserver
	follower *snapshot.Follower
	fleet    *balance.Fleet
	account  account.Account
	random   *rand.ChaCha8
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	source := &snapshottest.Source{}
	a := account.Account{ID: id.New(id.Account), Name: account.Default, Tier: account.Platform}
	source.PutAccount(a)
	h := newHarnessOn(t, source, newClock())
	h.account = a
	return h
}

// newHarnessOn returns a Follower over source, as after a restart.
func newHarnessOn(t testing.TB, source *snapshottest.Source, c *clock) *harness {
	t.Helper()
	h := &harness{t: t, source: source, clock: c, random: rand.NewChaCha8([32]byte{1}), fleet: balance.NewFleet(nil)}
	var err error
	h.reserver, err = ratelimit.NewReserver(ratelimit.ReserverConfig{Store: h.source, Now: func() time.Time { return time.Unix(0, h.clock.Now().Wall) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.reserver.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.reserver.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	h.follower = newFollower(t, h)
	if err := h.follower.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	return h
}

// newFollower returns a Follower that has loaded nothing.
func newFollower(t testing.TB, h *harness) *snapshot.Follower {
	t.Helper()
	f, err := snapshot.New(snapshot.Config{
		Source: h.source, Reserver: h.reserver, Now: h.clock.Now, GatewayDomain: "gw.test", Fleet: h.fleet,
		OpenSealed: func(b []byte) ([]byte, error) { return []byte(strings.ToUpper(string(b))), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (h *harness) catchUp() {
	h.t.Helper()
	if err := h.follower.CatchUp(context.Background()); err != nil {
		h.t.Fatal(err)
	}
}

// gateway returns the record of a gateway that is not stored yet.
func (h *harness) gateway() gateway.Gateway {
	return gateway.Gateway{ID: id.New(id.Gateway), AccountID: h.account.ID, Name: "orders", Upstream: gateway.Upstream{URL: "http://127.0.0.1:9/base"}}
}

func route(path string, limit ratelimit.Config, methods ...string) gateway.Route {
	return gateway.Route{ID: id.New(id.Route), Path: path, Methods: methods, RateLimit: limit, Auth: gateway.AuthKey}
}

// key returns the record of a key that is not stored yet, and its string.
func (h *harness) key() (apikey.Key, string) {
	h.t.Helper()
	secret, err := apikey.Generate(apikey.GatewayLevel, h.random)
	if err != nil {
		h.t.Fatal(err)
	}
	k := apikey.Key{
		ID: id.New(id.Key), AccountID: h.account.ID, Digest: apikey.DigestOf(secret), Prefix: apikey.PrefixOf(secret),
		Level: apikey.GatewayLevel, Scope: apikey.Scopes{{Word: apikey.Admin}},
	}
	k.BucketID = k.ID
	return k, secret
}

func config(t testing.TB, sustained, burst, daily, per string) ratelimit.Config {
	t.Helper()
	c, err := ratelimit.ParseConfig(sustained, burst, daily, per)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// keyLimit parses the limit of a key, a rate or an object.
func keyLimit(t testing.TB, s string) ratelimit.KeyLimit {
	t.Helper()
	l, err := ratelimit.ParseKeyLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func rate(t testing.TB, s string) ratelimit.Rate {
	t.Helper()
	r, err := ratelimit.ParseRate(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
