package admit

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Guarantee: plans.md, section 10: with 64 callers at once, the limits of a plan admit exactly what they say: rates and quotas
// count each request once, whichever other limit refuses; never more requests are in flight than the limit says; tokens are
// exceeded by no more than what requests in flight cost beyond their reserves, and what is left in the end is what was not used.
// Units that are granted meanwhile are used too, and those of a key that moves between owners count for the one that it had.
func TestPlansTogether(t *testing.T) {
	const (
		callers, each                       = 64, 150
		most, perDay, perMonth, tokensMonth = 6, 4000, 3000, 7000
		granted                             = 500
	)
	h := newHarness(t)
	p := h.plan("pro", "a owner 4000/day", "c owner 6", "q owner quota:3000/month", "t owner quota:7000/month")
	p.Limits[3].Meter = "tokens"
	h.source.PutPlan(p)
	r := route("/", "GET")
	r.Cost = cost.Rules{{Meter: "tokens", Reserve: reserved, Max: mostToken, From: cost.From{Source: cost.FromHeader, Header: "X-Tokens"}}}
	h.gateway(nil, r)
	o, other := h.owner("acme", p.ID), h.owner("other", p.ID)
	moving, movingSecret := h.keyOf(&o, "")
	var secrets []string
	for range 3 {
		_, secret := h.keyOf(&o, "")
		secrets = append(secrets, secret)
	}
	var inFlight, inFlightOfBoth, admitted, refused, tokens atomic.Int64
	var all sync.WaitGroup
	quota := func(owner, limit, meter string) ratelimit.QuotaKey {
		return ratelimit.QuotaKey{QuotaName: ratelimit.QuotaName{AccountID: h.account.ID, Limit: limit, Meter: meter, Unit: calendar.Month}, Subject: owner}
	}
	// Each owner has a request before all others, so that there is a window to grant units in, and both have counted.
	moved := moving
	moved.Owner, moved.OwnerID = other.ExternalID, other.ID
	h.source.PutKey(moved)
	if err := h.follower.CatchUp(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{secrets[0], movingSecret} {
		first := h.get("/", secret)
		if first.Action != Forward {
			t.Fatalf("the first request of an owner is refused: %v", first.Action)
		}
		h.admit.Settle(&first.Charge, &ratelimit.Used{})
		admitted.Add(1)
	}
	all.Go(func() {
		ofGrant := quota(o.ID, "q", ratelimit.Requests)
		h.stored.Grant(ofGrant, granted)
		if err := h.quotas.Granted(context.Background(), ofGrant); err != nil {
			t.Error(err)
		}
		for i := range each {
			k := moving
			if i%2 == 0 {
				k.Owner, k.OwnerID = other.ExternalID, other.ID
			}
			h.source.PutKey(k)
			if err := h.follower.CatchUp(context.Background()); err != nil {
				t.Error(err)
			}
			runtime.Gosched()
		}
	})
	for caller := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(caller)))
			for range each {
				secret, count, bound := movingSecret, &inFlightOfBoth, int64(2*most)
				if n := random.IntN(len(secrets) + 1); n < len(secrets) {
					secret, count, bound = secrets[n], &inFlight, most
				}
				v := h.get("/", secret)
				if v.Action != Forward {
					refused.Add(1)
					runtime.Gosched()
					continue
				}
				if n := count.Add(1); n > bound {
					t.Errorf("%d requests are in flight under %d", n, bound)
				}
				runtime.Gosched()
				cost := random.Int64N(mostToken + 1)
				admitted.Add(1)
				tokens.Add(cost)
				count.Add(-1)
				h.admit.Settle(&v.Charge, &ratelimit.Used{ratelimit.UseCost: cost})
			}
		})
	}
	all.Wait()
	if admitted.Load() == 0 || refused.Load() == 0 {
		t.Fatalf("%d requests were admitted, and %d refused: the limits did not matter", admitted.Load(), refused.Load())
	}
	counted := map[string]int64{} // by owner and limit
	for _, limit := range []struct {
		name, meter string
		want        int64
	}{{"q", ratelimit.Requests, admitted.Load()}, {"t", "tokens", tokens.Load()}} {
		sum := int64(0)
		for _, of := range []string{o.ID, other.ID} {
			key := quota(of, limit.name, limit.meter)
			if err := h.quotas.Settle(context.Background(), []ratelimit.QuotaKey{key}); err != nil {
				t.Fatal(err)
			}
			w := h.stored.Window(key)
			counted[of+limit.name] = w.Used()
			sum += w.Used()
		}
		if sum != limit.want {
			t.Errorf("the quotas %s have counted %d, want %d", limit.name, sum, limit.want)
		}
	}
	for of, grants := range map[string]int64{o.ID: granted, other.ID: 0} {
		if n := counted[of+"q"]; n == 0 || n > perMonth+grants {
			t.Errorf("an owner has used %d requests of %d", n, perMonth+grants)
		}
		if n := counted[of+"t"]; n > tokensMonth+most*(mostToken-reserved) {
			t.Errorf("an owner has used %d tokens of %d", n, tokensMonth)
		}
	}
	left := map[string]int64{
		"pro.a": perDay - counted[o.ID+"q"], "pro.c": most, "pro.q": perMonth + granted - counted[o.ID+"q"], "pro.t": max(0, tokensMonth-counted[o.ID+"t"]),
	}
	v := h.get("/none", secrets[0]) // no route: it charges nothing
	for i := range v.Charge.Shown() {
		if s := v.Charge.Status(i); s.LimitName() != "" && s.Remaining != left[s.LimitName()] {
			t.Errorf("%s has %d left, want %d", s.LimitName(), s.Remaining, left[s.LimitName()])
		}
	}
}
