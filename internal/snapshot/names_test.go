package snapshot_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/resolve"
	"github.com/keygate/keygate/internal/snapshot"
)

// names is what names resolve to at the moment: addresses, "" for a failure.
type names struct {
	mu   sync.Mutex
	of   map[string][]string
	slow time.Duration // how long each look-up takes
}

func (n *names) set(name string, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[name] = addrs
}

func (n *names) LookupNetIP(ctx context.Context, _, host string) (found []netip.Addr, err error) {
	n.mu.Lock()
	addrs, slow := n.of[host], n.slow
	n.mu.Unlock()
	if slow > 0 {
		timer := time.NewTimer(slow)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for _, a := range addrs {
		found = append(found, netip.MustParseAddr(a))
	}
	if found == nil {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return found, err
}

func (n *names) LookupSRV(_ context.Context, _, _, name string) (string, []*net.SRV, error) {
	return "", []*net.SRV{
		{Target: "one", Port: 81, Priority: 1, Weight: 65535}, {Target: "two", Port: 82, Priority: 2, Weight: 0},
	}, nil
}

// newNamed returns a harness, in a bubble of synctest, whose Follower has a Fleet and looks up names. stop ends the look-ups.
func newNamed(t *testing.T, by resolve.Lookup) (h *harness, fleet *balance.Fleet, stop func()) {
	t.Helper()
	h = newHarness(t)
	began := time.Now()
	fleet = balance.NewFleet(nil)
	var f *snapshot.Follower
	r, err := resolve.New(resolve.Config{Lookup: by, Now: func() time.Duration { return time.Since(began) }, Changed: func(n balance.Name) { f.Resolved(n) }})
	if err != nil {
		t.Fatal(err)
	}
	if f, err = snapshot.New(snapshot.Config{
		Source: h.source, Reserver: h.reserver, GatewayDomain: "gw.test", Fleet: fleet, Names: r,
		MayReach: func(a netip.AddrPort) bool { return a.Addr().String() == "192.0.2.1" },
		Now: func() ratelimit.Instant {
			return ratelimit.Instant{Mono: int64(time.Hour + time.Since(began)), Wall: time.Now().UnixNano()}
		},
		OpenSealed: func(b []byte) ([]byte, error) { return b, nil },
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.follower = f
	return h, fleet, func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// targetsOf returns what the upstream default of a gateway chooses from: address, weight, and flags.
func targetsOf(h *harness, gatewayID string) (list []string) {
	u := h.follower.Current().GatewayByID(gatewayID).Upstream
	if u.Balance == nil {
		return nil
	}
	for _, s := range u.Balance.Observe(time.Duration(1<<40), nil) {
		use := s.Target.Use().(*snapshot.Target)
		text := fmt.Sprintf("%s weight %d", s.Target.Address().Key().Address, s.Weight)
		for i, is := range []bool{s.Backup, s.Degraded, s.Draining} {
			if is {
				text += []string{" backup", " degraded", " draining"}[i]
			}
		}
		switch {
		case use.Address != "" && use.Address != s.Target.Address().Key().Address:
			text += " at " + use.Address
		case use.Address == "":
			text += " by name"
		}
		list = append(list, text)
	}
	return list
}

func wantTargets(t *testing.T, h *harness, gatewayID, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := targetsOf(h, gatewayID); !slices.Equal(got, want) {
		t.Errorf("%s: got targets %q; want %q", when, got, want)
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time

// Guarantee (targets.md, section 5): until a name is looked up, its target is one whose name is looked up at each connect; from then on
// each address is a target. What cannot be looked up stays as it was and is degraded.
func TestTargetsOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := &names{of: map[string][]string{}, slow: time.Second}
		h, _, stop := newNamed(t, by)
		defer stop()
		g := h.gateway()
		g.Upstream = gateway.Upstream{URL: "http://app:8080", Refresh: "5s", Targets: []gateway.Target{
			{URL: "http://app:8080", Resolve: gateway.ResolveA, Weight: 3}, {URL: "http://10.9.9.9:80", Backup: true},
		}}
		h.source.PutGateway(g)
		h.catchUp()
		wantTargets(t, h, g.ID, "before a look-up", "app:8080 weight 3 by name", "10.9.9.9:80 weight 1 backup by name")
		pass(time.Second)
		wantTargets(t, h, g.ID, "after a failure", "app:8080 weight 3 degraded by name", "10.9.9.9:80 weight 1 backup by name")
		by.set("app", "10.0.0.2", "fd00::1", "10.0.0.1")
		pass(5 * time.Second)
		wantTargets(t, h, g.ID, "after a look-up", "10.0.0.1:8080 weight 3", "10.0.0.2:8080 weight 3", "[fd00::1]:8080 weight 3", "10.9.9.9:80 weight 1 backup by name")
		use := h.follower.Current().GatewayByID(g.ID).Upstream.Balance.Observe(0, nil)[0].Target.Use().(*snapshot.Target)
		by.set("app", "10.0.0.1")
		pass(5 * time.Second)
		wantTargets(t, h, g.ID, "after it has shrunk", "10.0.0.1:8080 weight 3", "10.9.9.9:80 weight 1 backup by name")
		if again := h.follower.Current().GatewayByID(g.ID).Upstream.Balance.Observe(0, nil)[0].Target.Use(); again != use {
			t.Error("a target at an address that stays is another one, so its connections are not found")
		}
		by.set("app")
		pass(5 * time.Second)
		wantTargets(t, h, g.ID, "after it does not exist", "10.0.0.1:8080 weight 3 degraded", "10.9.9.9:80 weight 1 backup by name")
		g.Upstream.Targets = []gateway.Target{{URL: "http://app:8080", Resolve: gateway.ResolveA, Drain: true}}
		h.source.PutSettings(g)
		h.catchUp()
		wantTargets(t, h, g.ID, "after a change of the configuration", "10.0.0.1:8080 weight 1 degraded draining")
		g.Upstream.Targets = []gateway.Target{{URL: "http://services", Resolve: gateway.ResolveSRV, Weight: 20}}
		by.set("one", "10.0.0.1")
		by.set("two", "10.0.0.2")
		h.source.PutSettings(g)
		h.catchUp()
		pass(5 * time.Second)
		wantTargets(t, h, g.ID, "with SRV records", "10.0.0.1:81 weight 1000000", "10.0.0.2:82 weight 20 backup")
		g.Upstream = gateway.Upstream{URL: "http://services"}
		h.source.PutSettings(g)
		h.catchUp()
		wantTargets(t, h, g.ID, "without look-ups", "services:80 weight 1 by name")
		h.source.DeleteGateway(g.ID)
		h.catchUp()
	})
}

// Guarantee (contract, 4.6): an account that may reach only public addresses has no target at another address, and sees none, while one that may
// reach all has them. If none is left, the target keeps its name and connects to an address that the guard refuses: a connection that was
// made when the name had another one serves no more requests.
func TestAddressesThatAnAccountMayNotReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := &names{of: map[string][]string{"app": {"10.0.0.1", "192.0.2.1"}, "db": {"10.0.0.2"}}}
		h, _, stop := newNamed(t, by)
		defer stop()
		tenant := account.Account{ID: id.New(id.Account), Name: "acme", Tier: account.Platform}
		h.source.PutAccount(tenant)
		g := h.gateway()
		g.Upstream = gateway.Upstream{URL: "http://app", Targets: []gateway.Target{
			{URL: "http://app", Resolve: gateway.ResolveA}, {URL: "http://db", Resolve: gateway.ResolveA},
		}}
		h.source.PutGateway(g)
		other := g
		other.ID, other.AccountID = id.New(id.Gateway), tenant.ID
		h.source.PutGateway(other)
		h.catchUp()
		wantTargets(t, h, g.ID, "of the operator", "10.0.0.1:80 weight 1", "192.0.2.1:80 weight 1", "10.0.0.2:80 weight 1")
		wantTargets(t, h, other.ID, "of a tenant", "192.0.2.1:80 weight 1 degraded", "db:80 weight 1 at 10.0.0.2:80")
	})
}

// Guarantee: a target has the first 256 of 300 addresses, and the targets of an upstream share 1,024.
func TestAddressesOfAnUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := &names{of: map[string][]string{}}
		var many []string
		for i := range 300 {
			many = append(many, fmt.Sprintf("10.0.%d.%d", i/256, i%256))
		}
		h, _, stop := newNamed(t, by)
		defer stop()
		g := h.gateway()
		for _, n := range []int{1, 4, 8, 256} {
			g.Upstream = gateway.Upstream{URL: "http://0"}
			for i := range n {
				by.set(fmt.Sprint("n", i), many...)
				g.Upstream.Targets = append(g.Upstream.Targets, gateway.Target{URL: fmt.Sprintf("http://n%d", i), Resolve: gateway.ResolveA})
			}
			h.source.PutGateway(g)
			h.catchUp()
			pass(time.Second)
			synctest.Wait()
			of := map[string]int{}
			for _, s := range h.follower.Current().GatewayByID(g.ID).Upstream.Balance.Observe(0, nil) {
				of[s.Target.URL()]++
			}
			for url, count := range of {
				if want := min(256, 1024/n); count > want || n <= 8 && count != want || len(of) != n {
					t.Errorf("with %d targets, %s has %d addresses; want %d", n, url, count, want)
				}
			}
		}
	})
}

// Guarantee (docs/adr/0033): whatever the order of publications and of the results of look-ups, the last of both are in force together.
func TestConfigurationsAndNamesMeet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) { meet(t, rt) })
	})
}

func meet(t *testing.T, rt *rapid.T) {
	by := &names{of: map[string][]string{"a": {"10.0.0.1"}, "b": {"10.0.1.1"}}, slow: 300 * time.Millisecond}
	h, fleet, stop := newNamed(t, by)
	defer stop()
	g := h.gateway()
	drawTargets := func() {
		hosts := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b"}), 1, 2, rapid.ID).Draw(rt, "hosts")
		g.Upstream = gateway.Upstream{URL: "http://" + hosts[0], Refresh: rapid.SampledFrom([]string{"1s", "2s"}).Draw(rt, "refresh")}
		for _, host := range hosts {
			g.Upstream.Targets = append(g.Upstream.Targets, gateway.Target{
				URL: "http://" + host, Resolve: gateway.ResolveA, Weight: rapid.IntRange(1, 3).Draw(rt, "weight"), Backup: rapid.Bool().Draw(rt, "backup"),
			})
		}
	}
	drawTargets()
	h.source.PutGateway(g)
	h.catchUp()
	for range rapid.IntRange(1, 8).Draw(rt, "steps") {
		switch rapid.SampledFrom([]string{"publish", "resolve", "both", "delete"}).Draw(rt, "step") {
		case "publish":
			drawTargets()
			h.source.PutGateway(g)
			h.catchUp()
		case "delete":
			h.source.DeleteGateway(g.ID)
			h.catchUp()
			h.source.PutGateway(g)
			h.catchUp()
		case "both": // a result comes while a configuration is published
			drawTargets()
			h.source.PutGateway(g)
			var both sync.WaitGroup
			both.Go(func() {
				for _, host := range []string{"a", "b"} {
					by.set(host, fmt.Sprintf("10.0.0.%d", rapidByte(host, len(g.Upstream.Targets))))
				}
				pass(time.Second)
			})
			both.Go(func() { pass(300 * time.Millisecond); h.catchUp() })
			both.Wait()
		case "resolve":
			var list []string
			for i := range rapid.IntRange(0, 3).Draw(rt, "addresses") {
				list = append(list, fmt.Sprintf("10.0.%d.%d", rapid.IntRange(0, 3).Draw(rt, "net"), i+1))
			}
			if list != nil {
				slices.Sort(list)
				by.set(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "host"), list...)
			}
		}
		pass(time.Duration(rapid.IntRange(0, 2500).Draw(rt, "ms")) * time.Millisecond)
	}
	pass(3 * time.Second)
	var want []string
	for _, target := range g.Upstream.Targets {
		for _, a := range by.of[strings.TrimPrefix(target.URL, "http://")] {
			text := fmt.Sprintf("%s:80 weight %d", a, target.WeightOf())
			if target.Backup {
				text += " backup"
			}
			want = append(want, text)
		}
	}
	synctest.Wait()
	if got := targetsOf(h, g.ID); !slices.Equal(got, want) {
		rt.Fatalf("got targets %q; want %q", got, want)
	}
	h.source.DeleteGateway(g.ID)
	h.catchUp()
	if left := fleet.Names(); len(left) > 0 {
		rt.Fatalf("%v is left of a gateway that was deleted", left)
	}
}

// rapidByte returns a number that follows from what was drawn.
func rapidByte(host string, n int) int { return int(host[0]-'a')*10 + n }
