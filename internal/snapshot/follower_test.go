package snapshot_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// Guarantee: contract 4.1: a gateway is found by its hostname, without regard to letter
// case, port and final dot; other hosts reach the default gateway.
func TestGatewayByHost(t *testing.T) {
	h := newHarness(t)
	other := account.Account{ID: id.New(id.Account), Name: "other", Tier: account.Starter}
	h.source.PutAccount(other)
	custom, generated := h.gateway(), h.gateway()
	custom.AccountID, custom.Hostname, custom.HostGiven = other.ID, "api.other.example", true
	generated.Default = true
	h.source.PutGateway(custom)
	h.source.PutGateway(generated)
	h.catchUp()
	made := gateway.DefaultHostname(generated.ID, "gw.test")
	if !strings.HasSuffix(made, ".gw.test") || strings.Contains(made, "_") {
		t.Fatalf("generated hostname %s, want one below gw.test without underscores", made)
	}
	for _, c := range []struct{ host, want string }{
		{"api.other.example", custom.ID},
		{"API.Other.Example", custom.ID},
		{"api.other.example.", custom.ID},
		{"api.other.example:8080", custom.ID},
		{"API.OTHER.example.:443", custom.ID},
		{made, generated.ID},
		{made + ":8080", generated.ID},
		{"127.0.0.1:8080", generated.ID},
		{"[::1]:8080", generated.ID},
		{"[::1]", generated.ID},
		{"nobody.example", generated.ID},
		{strings.Repeat("a", 300), generated.ID},
		{"", generated.ID},
	} {
		if g := h.follower.Current().GatewayByHost(c.host); g == nil || g.ID != c.want {
			t.Errorf("host %q: got %v, want gateway %s", c.host, g, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { h.follower.Current().GatewayByHost("API.other.example:8080") }); n != 0 {
		t.Errorf("GatewayByHost allocates %v times, want 0", n)
	}
}

// Guarantee: a compiled gateway has the stored upstream settings, with headers and keys
// decrypted and sorted.
func TestCompiledUpstream(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	g.Upstream.Headers = map[string][]byte{"X-B": []byte("b"), "X-A": []byte("a")}
	g.Timeout, g.MaxBodyBytes = "5s", 1000
	g.Upstream.TLS.ClientCertificate, g.Upstream.TLS.ClientKey = "chain", []byte("key")
	g.Upstream.Timeouts.Connect, g.Upstream.Timeouts.Idle, g.Upstream.MaxConnections = "500ms", "1h", 7
	g.Upstream.MaxConnectionAge = "2m"
	h.source.PutGateway(g)
	foreign := h.gateway()
	foreign.AccountID = id.New(id.Account)
	h.source.PutGateway(foreign)
	h.catchUp()
	c := h.follower.Current().GatewayByID(g.ID)
	if c.Upstream.Targets[0].Base.Path != "/base" || c.Upstream.Timeout != 5*time.Second || c.Upstream.Targets[0].PublicOnly || c.MaxBodyBytes != 1000 {
		t.Errorf("got %+v to %+v, want path /base, timeout 5 s, any address, 1000 bytes", c.Upstream, c.Upstream.Targets[0])
	}
	want := []snapshot.Header{{Name: "X-A", Value: "A"}, {Name: "X-B", Value: "B"}}
	if !slices.Equal(c.Upstream.Targets[0].Headers, want) {
		t.Errorf("got headers %v, want %v", c.Upstream.Targets[0].Headers, want)
	}
	if u := c.Upstream.Targets[0]; u.Client.Value() != [2]string{"chain", "KEY"} || u.ConnectTimeout != 500*time.Millisecond || u.IdleTimeout != time.Hour || u.MaxConnAge != 2*time.Minute || u.MaxConns != 7 {
		t.Errorf("got connection settings %+v, want those of the record", u)
	}
	if !h.follower.Current().GatewayByID(foreign.ID).Upstream.Targets[0].PublicOnly {
		t.Error("the gateway of an unknown account may reach private addresses, want public ones only")
	}
}

// Guarantee: a gateway whose account may from now on reach only public addresses has another target, so
// that no connection is used that was allowed to reach private addresses. Otherwise a target stays the
// same.
func TestRestrictedAccountChangesTarget(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	h.source.PutGateway(g)
	h.catchUp()
	target := func() *snapshot.Target { return h.follower.Current().GatewayByID(g.ID).Upstream.Targets[0] }
	before := target()
	h.source.PutGateway(h.gateway())
	h.catchUp()
	if target() != before || before.PublicOnly {
		t.Errorf("after a change of another gateway: got target %+v, want %+v as before", target(), before)
	}
	h.source.DeleteAccount(g.AccountID)
	h.catchUp()
	if after := target(); after == before || !after.PublicOnly || before.PublicOnly {
		t.Errorf("without the account that may reach private addresses: got target %+v, want another one that may not", after)
	}
}

// Guarantee: a compiled CORS configuration has the header values, and allows the listed
// origins only.
func TestCompiledCORS(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	g.CORS = &gateway.CORS{Origins: []string{"https://app.example"}, Methods: []string{"GET", "PUT"}, Headers: []string{"X-One"}, MaxAge: 60}
	h.source.PutGateway(g)
	h.catchUp()
	c := h.follower.Current().GatewayByID(g.ID).CORS
	if c.Methods != "GET, PUT" || c.Headers != "X-One" || c.MaxAge != "60" {
		t.Errorf("got %+v, want the values GET, PUT; X-One; 60", c)
	}
	for origin, want := range map[string]string{"https://app.example": "https://app.example", "https://evil.example": "", "": ""} {
		if got := c.AllowOrigin(origin); got != want {
			t.Errorf("AllowOrigin(%q) = %q, want %q", origin, got, want)
		}
	}
}

// Guarantee: routes whose templates match the same paths share a node, which finds the
// route of a method and lists the methods; the node is public if all of its routes are.
func TestCompiledRoutes(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	open := route("/open", ratelimit.Config{}, "GET")
	open.Auth = gateway.AuthNone
	h.source.PutGateway(g, route("/a/{id}", ratelimit.Config{}, "GET"), route("/a/{name}", ratelimit.Config{}, "POST"), open)
	h.catchUp()
	c := h.follower.Current().GatewayByID(g.ID)
	n := c.FindNode("/a/1")
	if n.Allow() != "GET, HEAD, POST" || c.PublicNode(n) {
		t.Errorf("got Allow %q, public %v, want GET, HEAD, POST, false", n.Allow(), c.PublicNode(n))
	}
	get, post := n.Route("GET"), n.Route("POST")
	if get == nil || post == nil || get == post {
		t.Errorf("GET and POST lead to %p and %p, want two routes", get, post)
	}
	if head := n.Route("HEAD"); head != get {
		t.Error("HEAD does not lead to the route of GET")
	}
	if n.Route("PUT") != nil {
		t.Error("PUT leads to a route, want none")
	}
	if !c.PublicNode(c.FindNode("/open")) || !c.Public(c.FindNode("/open").Route("GET")) {
		t.Error("a public route is not public")
	}
}

// Guarantee: a key that was revoked before a call of CatchUp is not found after the call
// has returned, however many goroutines look for it.
func TestRevocationIsInForce(t *testing.T) {
	h := newHarness(t)
	for range 200 {
		k, secret := h.key()
		k.RateLimit = ratelimit.RateOf(rate(t, "10/s"))
		h.source.PutKey(k)
		h.catchUp()
		var (
			revoked atomic.Bool
			stop    atomic.Bool
			begun   sync.WaitGroup
			ended   sync.WaitGroup
		)
		for range 8 {
			begun.Add(1)
			ended.Go(func() {
				begun.Done()
				for !stop.Load() {
					mustBeGone := revoked.Load()
					if h.follower.Current().FindKey(secret) != nil && mustBeGone {
						t.Error("a revoked key is still found")
						return
					}
					runtime.Gosched()
				}
			})
		}
		begun.Wait()
		if h.follower.Current().FindKey(secret) == nil {
			t.Fatal("a key is not in force")
		}
		k.RevokedAt = time.Unix(1, 0)
		h.source.PutKey(k)
		h.catchUp()
		revoked.Store(true)
		for range 100 {
			runtime.Gosched()
		}
		stop.Store(true)
		ended.Wait()
	}
}

// Guarantee: changes of a key are followed, by the change log and by a load of everything
// after the log was trimmed.
func TestKeysFollow(t *testing.T) {
	for _, trimmed := range []bool{false, true} {
		h := newHarness(t)
		follow := func() {
			if trimmed {
				h.source.Trim()
			}
			h.catchUp()
		}
		k, secret := h.key()
		k.Owner, k.GatewayID = "tenant 7", id.New(id.Gateway)
		k.Scope = apikey.Scopes{{Word: apikey.Read, Resource: "caf%c3%a9/%61"}, {Word: apikey.Admin, Resource: "b"}}
		k.ExpiresAt = time.Unix(2_000_000_000, 0)
		stay, staySecret := h.key()
		h.source.PutKey(k)
		h.source.PutKey(stay)
		follow()
		c := h.follower.Current().FindKey(secret)
		if c == nil || c.ID() != k.ID || string(c.AppendID(nil)) != k.ID || c.AccountID() != k.AccountID || c.Owner() != k.Owner ||
			c.GatewayID() != k.GatewayID || c.Level() != k.Level || c.Scope().String() != "read:caf%C3%A9/a admin:b" {
			t.Fatalf("got key %+v, want the fields of the record", c)
		}
		if c.Expired(k.ExpiresAt.Add(-1)) || !c.Expired(k.ExpiresAt) {
			t.Error("the key does not expire exactly at its expiry")
		}
		before := h.follower.Current().FindKey(staySecret)
		k.Owner = "tenant 8"
		h.source.PutKey(k)
		follow()
		if got := h.follower.Current().FindKey(secret).Owner(); got != "tenant 8" {
			t.Errorf("after a change: got owner %q, want tenant 8", got)
		}
		if h.follower.Current().FindKey(staySecret) != before {
			t.Error("a key that did not change was replaced")
		}
		h.source.DeleteKey(k.ID)
		follow()
		if h.follower.Current().FindKey(secret) != nil {
			t.Error("a deleted key is still found")
		}
		if h.follower.Current().FindKey(staySecret) != before {
			t.Error("another key was deleted too")
		}
		if h.follower.Current().FindKey("kg_nonsense") != nil {
			t.Error("FindKey of a malformed string returned a key")
		}
		if h.follower.KeyClasses() != 1 {
			t.Errorf("%d key classes, want 1", h.follower.KeyClasses())
		}
	}
}

// Guarantee: a key that was rotated without overlap has expired on every node, whatever its clock shows.
func TestEndedKeyNeedsNoClock(t *testing.T) {
	h := newHarness(t)
	k, secret := h.key()
	k.ExpiresAt = time.Unix(0, h.clock.Now().Wall).Add(time.Hour).UTC().Truncate(time.Microsecond)
	h.source.PutKey(k)
	h.catchUp()
	if h.follower.Current().FindKey(secret).ExpiredAt(h.clock.Now().Wall / 1000) {
		t.Error("a key has expired an hour too early")
	}
	k.Ended = true
	h.source.PutKey(k)
	h.catchUp()
	if !h.follower.Current().FindKey(secret).ExpiredAt(h.clock.Now().Wall / 1000) {
		t.Error("a key that the store has for expired is in force by the clock of the node")
	}
	if got := k.State(k.ExpiresAt.Add(-time.Hour)); got != apikey.Expired {
		t.Errorf("its state is %s, want expired", got)
	}
}

// Guarantee: a change that a failed call could not read is read by the next.
func TestFailedCatchUpIsRetried(t *testing.T) {
	h := newHarness(t)
	k, secret := h.key()
	h.source.PutKey(k)
	lost := errors.New("the store is unavailable")
	h.source.Fail(lost)
	if err := h.follower.CatchUp(context.Background()); !errors.Is(err, lost) {
		t.Errorf("CatchUp: got %v, want the store's error", err)
	}
	h.source.Fail(nil)
	h.catchUp()
	if h.follower.Current().FindKey(secret) == nil {
		t.Error("a change was lost with a failed call")
	}
}

// Guarantee: if a gateway cannot be compiled, CatchUp returns an error; the gateway keeps its
// previous form until it can be compiled, and does not delay other changes.
func TestGatewayThatDoesNotCompile(t *testing.T) {
	h := newHarness(t)
	good := h.gateway()
	k, secret := h.key()
	h.source.PutKey(k)
	h.source.PutGateway(good, route("/a", ratelimit.Config{}, "GET"))
	h.catchUp()

	bad := good
	bad.Timeout = "soon"
	h.source.PutGateway(bad)
	k.RevokedAt = time.Unix(1, 0)
	h.source.PutKey(k)
	if err := h.follower.CatchUp(context.Background()); err == nil || !strings.Contains(err.Error(), bad.ID) {
		t.Errorf("CatchUp: got %v, want an error that names the gateway", err)
	}
	if h.follower.Current().FindKey(secret) != nil {
		t.Error("the gateway delays a revocation")
	}
	if h.follower.Current().GatewayByID(bad.ID).FindNode("/a") == nil {
		t.Error("the gateway did not keep its previous form")
	}

	h.source.Trim()
	h.source.PutAccount(h.account)
	h.source.Trim()
	if err := h.follower.CatchUp(context.Background()); err == nil {
		t.Error("CatchUp with a trimmed change log: got no error for the gateway")
	}
	if h.follower.Current().GatewayByID(bad.ID) == nil {
		t.Error("the gateway is gone after a load")
	}
	h.source.PutGateway(good, route("/b", ratelimit.Config{}, "GET"))
	h.catchUp()
	if h.follower.Current().GatewayByID(bad.ID).FindNode("/b") == nil {
		t.Error("the gateway is not in force after it was repaired")
	}
}

// Guarantee: a call that waits for another one ends with its context.
func TestCatchUpEndsWithContext(t *testing.T) {
	h := newHarness(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.follower.Lock(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer h.follower.Unlock()
	if err := h.follower.CatchUp(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("CatchUp while another call runs: got %v, want context.Canceled", err)
	}
}

// Guarantee: the first Load fails if a gateway cannot be compiled, and names it, so a
// server does not start without it.
func TestFirstLoadRefusesBrokenGateway(t *testing.T) {
	h := newHarness(t)
	bad := h.gateway()
	for _, spoil := range []func(){
		func() { bad.Upstream.Headers = map[string][]byte{"X-A": nil} },
		func() { bad.Upstream.Headers, bad.Upstream.TLS.ClientCertificate = nil, "chain" },
		func() { bad.Upstream.TLS.ClientCertificate, bad.Upstream.Timeouts.Idle = "", "long" },
		func() { bad.Upstream.Timeouts.Idle, bad.Upstream.Timeouts.Connect = "", "long" },
	} {
		spoil()
		h.source.PutGateway(bad)
		l, err := snapshot.New(snapshot.Config{Source: h.source, Reserver: h.reserver, Now: h.clock.Now, OpenSealed: func([]byte) ([]byte, error) { return nil, errors.New("another key") }})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Load(context.Background()); err == nil || !strings.Contains(err.Error(), bad.ID) {
			t.Errorf("Load: got %v, want an error that names the gateway", err)
		}
		if l.Current().GatewayByID(bad.ID) != nil {
			t.Error("the gateway was published")
		}
	}
	if _, err := snapshot.New(snapshot.Config{}); err == nil {
		t.Error("New without a source succeeded, want an error")
	}
}

// Guarantee: a started Follower puts changes of another process in force within half a
// second, also after a failure of the store.
func TestStartFollowsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		if err := h.follower.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		k, secret := h.key()
		h.source.PutKey(k)
		<-time.After(500 * time.Millisecond)
		synctest.Wait()
		if h.follower.Current().FindKey(secret) == nil {
			t.Error("a key is not in force after 500 ms")
		}
		h.source.Fail(errors.New("locked"))
		k.RevokedAt = time.Unix(1, 0)
		h.source.PutKey(k)
		<-time.After(2 * time.Minute)
		h.source.Fail(nil)
		<-time.After(500 * time.Millisecond)
		synctest.Wait()
		if h.follower.Current().FindKey(secret) != nil {
			t.Error("a revoked key is in force 500 ms after the store works again")
		}
		if err := h.follower.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Guarantee: each use of a key is drained with the time of its last use, also while other
// goroutines mark uses.
func TestUsedKeys(t *testing.T) {
	h := newHarness(t)
	var secrets []string
	for range 50 {
		k, secret := h.key()
		h.source.PutKey(k)
		secrets = append(secrets, secret)
	}
	h.catchUp()
	last := map[string]time.Time{}
	drain := func() {
		h.follower.DrainUsed(func(keyID string, at time.Time) {
			if at.After(last[keyID]) {
				last[keyID] = at
			}
		})
	}
	var users sync.WaitGroup
	start := time.Unix(1_700_000_000, 0)
	for u := range 4 {
		users.Go(func() {
			for i := range 2000 {
				h.follower.Current().FindKey(secrets[(i*7+u)%len(secrets)]).MarkUsed(start.Add(time.Duration(i) * time.Second))
			}
		})
	}
	done := make(chan struct{})
	go func() { users.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			drain()
		}
	}
	end := start.Add(time.Hour)
	for _, s := range secrets {
		h.follower.Current().FindKey(s).MarkUsed(end)
		h.follower.Current().FindKey(s).MarkUsed(end.Add(-time.Minute)) // the clock was set back
	}
	drain()
	for _, s := range secrets {
		k := h.follower.Current().FindKey(s)
		if got := last[k.ID()]; !got.Equal(end) {
			t.Errorf("key %s: got last use %v, want %v", k.ID(), got, end)
		}
	}
	h.follower.DrainUsed(func(keyID string, _ time.Time) { t.Errorf("key %s was drained without a use", keyID) })
	k := h.follower.Current().FindKey(secrets[0])
	at := end.UnixMicro()
	if n := testing.AllocsPerRun(100, func() { at += 5000; k.MarkUsedAt(at) }); n != 0 {
		t.Errorf("MarkUsedAt allocates %v times, want 0", n)
	}
}

// Guarantee: the age is reset by each successful read of the store, with or without
// changes, and grows while the store fails.
func TestAge(t *testing.T) {
	h := newHarness(t)
	h.clock.Advance(time.Second)
	if got := h.follower.Age(); got != time.Second {
		t.Errorf("one second after Load: got age %v, want 1s", got)
	}
	h.catchUp()
	h.clock.Advance(time.Second)
	h.source.Fail(errors.New("away"))
	if err := h.follower.CatchUp(t.Context()); err == nil {
		t.Fatal("CatchUp succeeded although the store fails")
	}
	h.clock.Advance(time.Second)
	if got := h.follower.Age(); got != 2*time.Second {
		t.Errorf("two seconds after the last successful read: got age %v, want 2s", got)
	}
	h.source.Fail(nil)
	h.catchUp()
	if got := h.follower.Age(); got != 0 {
		t.Errorf("after a read without changes: got age %v, want 0", got)
	}
}
