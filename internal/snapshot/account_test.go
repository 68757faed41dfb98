package snapshot_test

import (
	"context"
	"testing"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
)

// tenant is an account with a gateway, which has one limited route, and a key with a limit.
type tenant struct {
	account account.Account
	gateway gateway.Gateway
	route   string
	key     string
}

func (h *harness) tenant() tenant {
	h.t.Helper()
	t := tenant{account: account.Account{ID: id.New(id.Account), Name: "acme", Tier: account.Starter, State: account.Active}, gateway: h.gateway()}
	h.source.PutAccount(t.account)
	t.gateway.AccountID, t.gateway.Hostname, t.gateway.HostGiven = t.account.ID, "api.acme.example", true
	r := route("/a", config(h.t, "5/day", "", "", ""), "GET")
	t.route = r.ID
	h.source.PutGateway(t.gateway, r)
	k, secret := h.key()
	k.AccountID, k.RateLimit, t.key = t.account.ID, keyLimit(h.t, "5/day"), secret
	h.source.PutKey(k)
	h.source.PutGateway(h.gateway()) // of the account default: unknown hosts reach it
	h.catchUp()
	return t
}

func (h *harness) setState(a account.Account, s account.State) {
	h.t.Helper()
	a.State = s
	h.source.PutAccount(a)
	h.catchUp()
}

// Guarantee: no host leads to a gateway of a suspended account, nor from there to the gateway
// for unknown hosts, also after everything is loaded again, and no lookup allocates.
func TestSuspendedAccountHasNoHosts(t *testing.T) {
	h := newHarness(t)
	acme := h.tenant()
	const host = "API.acme.example.:8080"
	find := func() *snapshot.Gateway { return h.follower.Current().GatewayByHost(host) }
	if g := find(); g == nil || g.ID != acme.gateway.ID {
		t.Fatalf("active: got %v, want the gateway", g)
	}
	h.setState(acme.account, account.Suspended)
	if g := find(); g != nil {
		t.Errorf("suspended: got gateway %s, want none", g.ID)
	}
	if n := testing.AllocsPerRun(100, func() { find() }); n != 0 {
		t.Errorf("suspended: GatewayByHost allocates %v times, want 0", n)
	}
	h.source.PutGateway(acme.gateway) // a change of a gateway does not resume it
	h.catchUp()
	if err := h.follower.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	if g := find(); g != nil {
		t.Errorf("suspended and loaded again: got gateway %s, want none", g.ID)
	}
	h.setState(acme.account, account.Active)
	if g := find(); g == nil || g.ID != acme.gateway.ID {
		t.Errorf("resumed: got %v, want the gateway", g)
	}
}

// Guarantee: suspending and resuming an account refills none of its limits.
func TestSuspensionKeepsLimits(t *testing.T) {
	h := newHarness(t)
	acme := h.tenant()
	use := func() ratelimit.Result {
		s := h.follower.Current()
		k := s.FindKey(acme.key)
		var c ratelimit.Charge
		k.AddLimits(&c)
		s.GatewayByID(acme.gateway.ID).RouteByID(acme.route).AddLimits(&c, k.BucketID(), clientip.Group{})
		return new(ratelimit.Limiter).Decide(h.clock.Now(), &c)
	}
	for range 5 {
		if got := use(); got != ratelimit.Admitted {
			t.Fatalf("got %v, want 5 requests to be admitted", got)
		}
	}
	h.setState(acme.account, account.Suspended)
	h.setState(acme.account, account.Active)
	if got := use(); got != ratelimit.Refused {
		t.Errorf("after the account was resumed: got %v, want the sixth request to be refused", got)
	}
}

// Guarantee: when an account is deleted, its gateways are not found and its keys are forgotten,
// before its records are removed, and also after everything is loaded again. Other accounts keep
// their gateways and keys.
func TestDeletedAccountIsForgotten(t *testing.T) {
	h := newHarness(t)
	acme := h.tenant()
	k, ours := h.key()
	k.RateLimit = keyLimit(t, "1/s")
	h.source.PutKey(k)
	h.source.DeleteAccount(acme.account.ID)
	h.catchUp()
	check := func(when string) {
		t.Helper()
		s := h.follower.Current()
		if s.FindKey(acme.key) != nil || s.GatewayByHost(acme.gateway.Hostname) != nil || s.Account(acme.account.ID) != nil {
			t.Errorf("%s: the account still has a key, a gateway or itself", when)
		}
		if s.FindKey(ours) == nil {
			t.Errorf("%s: the key of another account is gone", when)
		}
	}
	check("deleted")
	h.source.Trim()
	h.source.PutKey(k)
	h.catchUp() // loads everything
	check("loaded again")
	h.source.DeleteGateway(acme.gateway.ID)
	h.catchUp()
	if h.follower.Current().GatewayByID(acme.gateway.ID) != nil {
		t.Error("the removed gateway is still there")
	}
}
