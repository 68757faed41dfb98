package admit

import (
	"net/netip"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/balance"
	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/gateway"
)

// withCanary gives a gateway a canary of routes, with a weight.
func withCanary(percent string, routes ...gateway.Route) func(*gateway.Gateway) {
	return withNext(func(g *gateway.Gateway) {
		g.Canary = &gateway.CanaryShare{ID: "can_1", Upstream: "next", Weight: gateway.ParsePercent(percent), Step: 2, Counts: true}
		for _, r := range routes {
			g.Canary.Routes = append(g.Canary.Routes, r.ID)
		}
	})
}

// Guarantee: the callers of a canary's routes go to the sides to which a sticky split with its weight sends them, and each step
// only adds callers. The verdict says which canary has decided, for which side, by which caller, and why; one of another route,
// or of a route with a split, does not.
func TestCanaryDecides(t *testing.T) {
	const callers = 5_000
	h := newHarness(t)
	r, other, split := public(route("/p", "GET")), public(route("/other", "GET")), public(route("/split", "GET"))
	split.Split = weighted("100", nil)
	g := h.gateway(withCanary("1", r, split), r, other, split)
	plain := newHarness(t)
	same := r
	reference := plain.gateway(withNext(nil), same)
	before := make([]bool, callers)
	for _, percent := range []string{"1", "5", "25", "50", "100"} {
		withCanary(percent, r, split)(&g)
		h.source.PutGateway(g, r, other, split)
		h.catchUp()
		same.Split = weighted(percent, nil)
		plain.source.PutRoute(reference.ID, same)
		plain.catchUp()
		for i := range callers {
			var v Verdict
			h.admit.Decide(fromAddress(i), &v)
			h.admit.limiter.Release(&v.Charge)
			principal := clientip.GroupOf(fromAddress(i).Client)
			next := v.Upstream.Name == "next"
			if v.Action != Forward || v.Canary == nil || v.Canary.ID != "can_1" || v.Canary.Step != 2 || !v.Canary.Counts || v.CanaryNext != next || v.CanaryCaller != balance.HashValue(principal[:]) {
				t.Fatalf("%s %%: got the verdict %+v, want one of the canary", percent, v)
			}
			if want := plain.sideOf(fromAddress(i)); v.Upstream.Name != want {
				t.Fatalf("%s %%: caller %d goes to %s, a split sends it to %s", percent, i, v.Upstream.Name, want)
			}
			why := percent + " % of callers, by the address, of canary can_1"
			if !next {
				why = (gateway.ParsePercent("100") - gateway.ParsePercent(percent)).String() + " % of callers, by the address, of canary can_1"
			}
			if v.SideReason != why || before[i] && !next {
				t.Fatalf("%s %%: caller %d goes to %s (%s), and went to the canary before: %t", percent, i, v.Upstream.Name, v.SideReason, before[i])
			}
			before[i] = next
		}
	}
	for target, want := range map[string]string{"/other": "default", "/split": "next"} {
		var v Verdict
		h.admit.Decide(fromAddress(1), &v)
		h.admit.limiter.Release(&v.Charge)
		h.admit.Decide(&Request{Method: "GET", Target: target, Host: "h", Client: netip.MustParseAddr("10.0.0.1")}, &v)
		if v.Upstream == nil || v.Upstream.Name != want || v.Canary != nil || v.CanaryNext || v.CanaryCaller != 0 {
			t.Errorf("%s: got the verdict %+v, want %s and no canary", target, v, want)
		}
	}
}

// Guarantee: the keys of a rotation are one caller of a canary, which also is the principal of a key.
func TestCallersOfCanaries(t *testing.T) {
	h := newHarness(t)
	r := route("/p", "GET")
	h.gateway(withCanary("50", r), r)
	for range 20 {
		first, secret := h.key(nil)
		_, rotated := h.key(func(k *apikey.Key) { k.BucketID, k.RotatedFrom = first.ID, first.ID })
		var one, two Verdict
		h.admit.Decide(&Request{Method: "GET", Target: "/p", Host: "h", Authorization: "Bearer " + secret, Authorizations: 1}, &one)
		h.admit.Decide(&Request{Method: "GET", Target: "/p", Host: "h", Authorization: "Bearer " + rotated, Authorizations: 1}, &two)
		if one.CanaryCaller == 0 || one.CanaryCaller != two.CanaryCaller || one.CanaryNext != two.CanaryNext {
			t.Errorf("got the callers %x on next: %t, and %x on next: %t; want one caller", one.CanaryCaller, one.CanaryNext, two.CanaryCaller, two.CanaryNext)
		}
	}
}

// Guarantee: a decision for a canary does not allocate.
func TestCanaryDoesNotAllocate(t *testing.T) {
	h := newHarness(t)
	r := public(route("/p", "GET"))
	h.gateway(withCanary("50", r), r)
	req, v := fromAddress(1), &Verdict{}
	if n := testing.AllocsPerRun(1000, func() { h.admit.Decide(req, v) }); n > 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
