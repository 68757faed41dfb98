package snapshot_test

import (
	"context"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// rated returns the record of a plan with one limit for each owner and one for each key.
func (h *harness) rated(planID string, perMinute int64) plan.Plan {
	r := ratelimit.Rate{Count: perMinute, Per: time.Minute}
	return plan.Plan{
		ID: planID, AccountID: h.account.ID, Name: "free", TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor,
		Limits: []plan.Limit{{Name: "together", Sustained: ratelimit.UnitRate{Rate: r}, Per: plan.PerOwner}, {Name: "each", Sustained: ratelimit.UnitRate{Rate: r}, Per: plan.PerKey}},
	}
}

// BenchmarkPlanChange changes a plan that a million keys and their 100,000 owners have and have used, each key a request,
// and suspends and resumes one of the owners: until the call that puts it in force returns. Neither cost may depend on
// their number.
func BenchmarkPlanChange(b *testing.B) {
	const keys = 1_000_000
	m := &manyKeys{harness: newHarness(b), n: keys, owner: true, planID: id.New(id.Plan)}
	m.source.PutPlan(m.rated(m.planID, 1000))
	g := m.gateway()
	m.source.PutGateway(g, route("/", ratelimit.Config{}, "GET"))
	l := followerOf(b, m)
	ctx := context.Background()
	if err := l.Load(ctx); err != nil {
		b.Fatal(err)
	}
	gw := l.Current().GatewayByID(g.ID)
	limiter := ratelimit.NewLimiter(func() int64 { return m.clock.Now().Mono })
	for i := range keys {
		var c ratelimit.Charge
		if _, problem := gw.AddPlanLimits(&c, &l.Current().KeyByDigest(m.digest(i)).Caller, gw.FindNode("/").Route("GET"), &ratelimit.Used{1}); problem != "" {
			b.Fatal(problem)
		}
		if r := limiter.Decide(m.clock.Now(), &c); r != ratelimit.Admitted {
			b.Fatalf("got %d, want the request admitted", r)
		}
	}
	b.Run("plan", func(b *testing.B) {
		for i := int64(0); b.Loop(); i++ {
			m.source.PutPlan(m.rated(m.planID, 1000+i%2))
			if err := l.CatchUp(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("owner", func(b *testing.B) {
		o := m.nthOwner(7)
		for i := 0; b.Loop(); i++ {
			o.State = []owner.State{owner.Suspended, owner.Active}[i%2]
			m.source.PutOwner(o)
			if err := l.CatchUp(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}
