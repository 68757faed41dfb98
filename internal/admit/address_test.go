package admit

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// addressHarness has a gateway that allows each address 3 requests of public routes, and two routes with per:
// address: /closed needs a key, /open is public. /free is public without a limit of its own.
func addressHarness(t *testing.T) (h *harness, g gateway.Gateway, key string) {
	t.Helper()
	h = newHarness(t)
	each := config(t, "2/day", "", "", ratelimit.PerAddress)
	g = h.gateway(func(g *gateway.Gateway) {
		g.Requests.AnonymousLimit = gateway.AnonymousLimit{Sustained: rate(t, "3/day")}
	}, limited(route("/closed", "GET"), each), public(limited(route("/open", "GET"), each)), public(route("/free", "GET")))
	_, key = h.key(nil)
	return h, g, key
}

// scopes sends n requests and returns the scopes of the limits that refused them, "" for those that were admitted.
func scopes(h *harness, target, client, key string, n int) (all []string) {
	for range n {
		req := Request{Target: target, Client: netip.MustParseAddr(client)}
		if key != "" {
			req.Authorization = "Bearer " + key
		}
		v, scope := h.decide(req), ""
		if v.Action == Refuse {
			scope = string(v.Code)
			if v.Code == fault.RateLimitExceeded {
				scope = v.Fault().Limit.Scope
			}
		}
		all = append(all, scope)
	}
	return all
}

// Guarantee: plans.md, 7: per: address gives each client address a bucket of its own, with a key or without. The
// anonymous limit counts each address on public routes alone, over all of them, whether a key is sent or not.
func TestEachAddressHasItsOwnLimit(t *testing.T) {
	h, _, key := addressHarness(t)
	_, other := h.key(nil)
	made := "kg_0000000000000000000000000000000000000"
	for _, step := range []struct {
		target, client, key string
		want                []string
	}{
		{"/closed", "203.0.113.1", key, []string{"", "", "route"}},
		{"/closed", "203.0.113.1", other, []string{"route"}},
		{"/closed", "203.0.113.2", key, []string{"", "", "route"}},
		{"/closed", "::ffff:203.0.113.2", key, []string{"route"}},
		{"/closed", "2001:db8::1", key, []string{""}},
		{"/closed", "2001:db8::2", key, []string{"", "route"}},
		{"/closed", "2001:db8:0:1::1", key, []string{"", "", "route"}},
		{"/open", "203.0.113.1", "", []string{"", "", "route"}},
		{"/free", "203.0.113.1", "", []string{"", "anonymous"}}, // two of the three were used on the other public route
		{"/free", "203.0.113.1", key, []string{"anonymous"}},
		{"/free", "203.0.113.1", made, []string{"anonymous"}},
		{"/free", "203.0.113.2", made, []string{"", "", "", "anonymous"}},
	} {
		if got := scopes(h, step.target, step.client, step.key, len(step.want)); !slices.Equal(got, step.want) {
			t.Fatalf("%s of %s: %q, want %q", step.target, step.client, got, step.want)
		}
	}
}

// Guarantee: limits of addresses are shown like other limits, and a change of them keeps what was used; a limit that
// is removed and set again begins anew.
func TestLimitsOfAddressesAreShownAndChanged(t *testing.T) {
	h, g, _ := addressHarness(t)
	v := h.decide(Request{Target: "/open", Client: netip.MustParseAddr("203.0.113.1")})
	got := fields(v)
	if want := `"route";q=2;w=86400, "anonymous";q=3;w=86400`; got["RateLimit-Policy"] != want || got["X-RateLimit-Remaining"] != "1" {
		t.Errorf("got the policy %s with %s left, want %s with 1", got["RateLimit-Policy"], got["X-RateLimit-Remaining"], want)
	}
	scopes(h, "/free", "203.0.113.1", "", 2)
	set := func(l gateway.AnonymousLimit) {
		g.Requests.AnonymousLimit = l
		h.source.PutSettings(g)
		h.catchUp()
	}
	set(gateway.AnonymousLimit{Sustained: rate(t, "4/day")})
	if got := fmt.Sprint(scopes(h, "/free", "203.0.113.1", "", 2)); got != "[ anonymous]" {
		t.Errorf("after 3 of 3 were used and 4 are allowed: %s", got)
	}
	set(gateway.AnonymousLimit{})
	if got := fmt.Sprint(scopes(h, "/free", "203.0.113.1", "", 3)); got != "[  ]" {
		t.Errorf("without the limit: %s", got)
	}
	if n := h.follower.BucketBudget().Addresses(); n != 1 {
		t.Errorf("%d addresses have a place, want 1, on the route", n)
	}
	set(gateway.AnonymousLimit{Sustained: rate(t, "1/day")})
	if got := fmt.Sprint(scopes(h, "/free", "203.0.113.1", "", 2)); got != "[ anonymous]" {
		t.Errorf("with a new limit: %s", got)
	}
}

// Guarantee: the limits of addresses in use are listed with the address, and not as those of keys.
func TestLevelsOfAddresses(t *testing.T) {
	h, g, key := addressHarness(t)
	scopes(h, "/closed", "203.0.113.1", key, 1)
	scopes(h, "/free", "2001:db8::1", "", 1)
	var got []string
	h.follower.Levels(t.Context(), g.ID, func(l ratelimit.Level) {
		if l.Address != (clientip.Group{}) {
			got = append(got, fmt.Sprint(l.Scope, " ", l.Address, " ", l.Remaining, " ", l.Key == [16]byte{}))
		}
	})
	slices.Sort(got)
	if want := "[anonymous 2001:db8::/64 2 true route 203.0.113.1 1 true]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
