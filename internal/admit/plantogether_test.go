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
func TestPlansTogether(t *testing.T) {
	const (
		callers, each                       = 64, 150
		most, perDay, perMonth, tokensMonth = 6, 4000, 3000, 7000
	)
	h := newHarness(t)
	p := h.plan("pro", "a owner 4000/day", "c owner 6", "q owner quota:3000/month", "t owner quota:7000/month")
	p.Limits[3].Meter = "tokens"
	h.source.PutPlan(p)
	r := route("/", "GET")
	r.Cost = cost.Rules{{Meter: "tokens", Reserve: reserved, Max: mostToken, From: cost.From{Source: cost.FromHeader, Header: "X-Tokens"}}}
	h.gateway(nil, r)
	o := h.owner("acme", p.ID)
	var secrets []string
	for range 3 {
		_, secret := h.keyOf(&o, "")
		secrets = append(secrets, secret)
	}
	var inFlight, admitted, refused, tokens atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(caller)))
			for range each {
				v := h.get("/", secrets[random.IntN(len(secrets))])
				if v.Action != Forward {
					refused.Add(1)
					runtime.Gosched()
					continue
				}
				if n := inFlight.Add(1); n > most {
					t.Errorf("%d requests are in flight under %d", n, most)
				}
				runtime.Gosched()
				cost := random.Int64N(mostToken + 1)
				admitted.Add(1)
				tokens.Add(cost)
				inFlight.Add(-1)
				h.admit.Settle(&v.Charge, &ratelimit.Used{ratelimit.UseCost: cost})
			}
		})
	}
	all.Wait()
	if admitted.Load() == 0 || refused.Load() == 0 {
		t.Fatalf("%d requests were admitted, and %d refused: the limits did not matter", admitted.Load(), refused.Load())
	}
	if n := tokens.Load(); n > tokensMonth+most*(mostToken-reserved) {
		t.Errorf("%d tokens were used of %d", n, tokensMonth)
	}
	quota := func(limit, meter string) ratelimit.QuotaKey {
		return ratelimit.QuotaKey{QuotaName: ratelimit.QuotaName{AccountID: h.account.ID, Limit: limit, Meter: meter, Unit: calendar.Month}, Subject: o.ID}
	}
	keys := []ratelimit.QuotaKey{quota("q", ratelimit.Requests), quota("t", "tokens")}
	if err := h.quotas.Settle(context.Background(), keys); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{admitted.Load(), tokens.Load()} {
		if w := h.stored.Window(keys[i]); w.Used() != want {
			t.Errorf("the quota %s has counted %d, want %d", keys[i].Limit, w.Used(), want)
		}
	}
	left := map[string]int64{"pro.a": perDay - admitted.Load(), "pro.c": most, "pro.q": perMonth - admitted.Load(), "pro.t": max(0, tokensMonth-tokens.Load())}
	v := h.get("/none", secrets[0]) // no route: it charges nothing
	for i := range v.Charge.Shown() {
		if s := v.Charge.Status(i); s.LimitName() != "" && s.Remaining != left[s.LimitName()] {
			t.Errorf("%s has %d left, want %d", s.LimitName(), s.Remaining, left[s.LimitName()])
		}
	}
}
