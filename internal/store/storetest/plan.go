package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

func newPlan(a *account.Account, name string) *plan.Plan {
	return &plan.Plan{ID: id.New(id.Plan), AccountID: a.ID, Name: name, Limits: []plan.Limit{{Name: "per-minute", Sustained: ratelimit.UnitRate{Rate: rate("600/min")}, Per: plan.PerKey}},
		TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor, CreatedAt: epoch(), Version: 1}
}

// insertPlan inserts a plan.
func (h *harness) insertPlan(a *account.Account, name string) *plan.Plan {
	h.Helper()
	p := newPlan(a, name)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertPlan(ctx, p) })
	return p
}

func (h *harness) plan(accountID, planID string) *plan.Plan {
	h.Helper()
	return get(h, func(ctx context.Context, tx control.ReadTx) (*plan.Plan, error) {
		return tx.Plan(ctx, accountID, planID)
	})
}

func limitOf() *rapid.Generator[plan.Limit] {
	return rapid.Custom(func(t *rapid.T) plan.Limit {
		l := plan.Limit{Name: text().Draw(t, "name"), Sustained: ratelimit.UnitRate{Rate: rateOf().Draw(t, "sustained")},
			Burst: ratelimit.UnitRate{Rate: maybe(rateOf()).Draw(t, "burst")}, Meter: rapid.SampledFrom([]string{"", ratelimit.BytesIn, ratelimit.BytesOut, "tokens"}).Draw(t, "meter"), Per: rapid.SampledFrom([]plan.Subject{plan.PerKey, plan.PerOwner}).Draw(t, "per"), GatewayID: maybe(rapid.Just(id.New(id.Gateway))).Draw(t, "gateway")}
		if rapid.Bool().Draw(t, "has routes") {
			l.Routes = rapid.SliceOfN(text(), 1, 3).Draw(t, "routes")
		}
		if rapid.IntRange(0, 3).Draw(t, "is of requests in flight") == 0 {
			l.Sustained, l.Burst, l.Meter = ratelimit.UnitRate{}, ratelimit.UnitRate{}, ""
			l.Concurrency = rapid.Int64Range(1, ratelimit.MaxConcurrency).Draw(t, "concurrency")
		}
		return l
	})
}

func planOf(a *account.Account) *rapid.Generator[*plan.Plan] {
	return rapid.Custom(func(t *rapid.T) *plan.Plan {
		p := newPlan(a, "")
		p.Name = rapid.StringMatching(`[a-z]{9}`).Draw(t, "name") + p.ID
		p.Title = text().Draw(t, "title")
		p.Limits = rapid.SliceOfN(limitOf(), 0, plan.MaxLimits).Draw(t, "limits")
		p.TimeZone = rapid.SampledFrom([]string{"UTC", "Africa/Cairo"}).Draw(t, "time_zone")
		p.AnchorDay = rapid.IntRange(1, 28).Draw(t, "anchor_day")
		p.CreatedAt = moment().Draw(t, "created_at")
		p.Version = rapid.Int64Min(1).Draw(t, "version")
		return p
	})
}

// Guarantee: a plan is returned as it was inserted and as it was updated, to the data plane too. An update does not
// change fixed fields.
func testPlanRoundTrip(h *harness) {
	a := h.insertAccount("a")
	rapid.Check(h, func(t *rapid.T) {
		p, changed := planOf(a).Draw(t, "plan"), planOf(a).Draw(t, "changed")
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertPlan(ctx, p) })
		same(t, "inserted", h.plan(a.ID, p.ID), p)
		changed.ID = p.ID
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdatePlan(ctx, changed) })
		changed.CreatedAt = p.CreatedAt
		same(t, "by its name", get(h, func(ctx context.Context, tx control.ReadTx) (*plan.Plan, error) {
			return tx.PlanByName(ctx, a.ID, changed.Name)
		}), changed)
		got, err := h.PlanByID(h.Context(), p.ID)
		same(t, "for the data plane", []any{got, err}, []any{changed, error(nil)})
	})
}

// Guarantee: names of plans are unique in an account, and no account finds, lists or changes the plans of another one.
func testPlanRules(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	free, gold := h.insertPlan(a, "free"), h.insertPlan(a, "gold")
	h.insertPlan(b, "free")
	h.conflict("name", func(ctx context.Context, tx control.Tx) error { return tx.InsertPlan(ctx, newPlan(a, "free")) })
	h.conflict("name", func(ctx context.Context, tx control.Tx) error {
		twin := *gold
		twin.Name = "free"
		return tx.UpdatePlan(ctx, &twin)
	})
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error { return tx.DeletePlan(ctx, b.ID, free.ID) })
	h.rejected(fault.NotFound, func(ctx context.Context, tx control.Tx) error {
		stolen := *free
		stolen.AccountID = b.ID
		return tx.UpdatePlan(ctx, &stolen)
	})
	missing(h, "Plan", func(ctx context.Context, tx control.ReadTx) (*plan.Plan, error) { return tx.Plan(ctx, b.ID, free.ID) })
	missing(h, "PlanByName", func(ctx context.Context, tx control.ReadTx) (*plan.Plan, error) {
		return tx.PlanByName(ctx, b.ID, "gold")
	})
	same(h, "unchanged", h.plan(a.ID, free.ID), free)
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.DeletePlan(ctx, a.ID, free.ID) })
	missing(h, "a deleted plan", func(ctx context.Context, tx control.ReadTx) (*plan.Plan, error) {
		return tx.Plan(ctx, a.ID, free.ID)
	})
	if _, err := h.PlanByID(h.Context(), free.ID); fault.CodeOf(err) != fault.NotFound {
		h.Errorf("PlanByID of a deleted plan: got %v, want not found", err)
	}
	h.insertPlan(a, "free")
}

// Guarantee: a list of plans has exactly those that the filter selects, newest first and page by page.
func testPlanList(h *harness) {
	a, b := h.insertAccount("a"), h.insertAccount("b")
	h.insertPlan(b, "gold")
	var plans []*plan.Plan
	for i := range 12 {
		p := newPlan(a, fmt.Sprintf("%s-%d", []string{"free", "gold", "100_"}[i%3], i))
		p.Title = []string{"", "Für alle", "GOLD"}[i%3]
		h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertPlan(ctx, p) })
		plans = append(plans, p)
	}
	slices.Reverse(plans)
	rapid.Check(h, func(t *rapid.T) {
		f := control.PlanFilter{Name: rapid.SampledFrom([]string{"", "", "gold-1", "gold-9"}).Draw(t, "name"),
			Query: rapid.SampledFrom([]string{"", "gold", "Gold", "free", "_", "%", "für", "-1", "absent"}).Draw(t, "query")}
		var want []plan.Plan
		for _, p := range plans {
			in := strings.Contains(lowerASCII(p.Name), lowerASCII(f.Query)) || strings.Contains(lowerASCII(p.Title), lowerASCII(f.Query))
			if in && (f.Name == "" || p.Name == f.Name) {
				want = append(want, *p)
			}
		}
		same(t, "plans", pages(t, h, func(ctx context.Context, tx control.ReadTx, p control.Page) ([]plan.Plan, error) {
			return tx.Plans(ctx, a.ID, f, p)
		}, func(p *plan.Plan) string { return p.ID }), want)
	})
}

// Guarantee: the use of a plan counts the keys that have it and are not revoked, the owners, the gateways and the account
// whose default it is, each kind up to a bound. A key whose gateway has ended is revoked.
func testPlanUse(h *harness) {
	a := h.insertAccount("a")
	p, other := h.insertPlan(a, "free"), h.insertPlan(a, "other")
	want := func(what string, most int, use control.PlanUse) {
		h.Helper()
		got := get(h, func(ctx context.Context, tx control.ReadTx) (control.PlanUse, error) {
			return tx.PlanUse(ctx, a.ID, p.ID, most)
		})
		same(h, what, got, use)
	}
	want("of nobody", 9, control.PlanUse{})
	ending, kept := h.insertGateway(a), newGateway(a)
	for i := range 5 {
		h.insertKey(a, func(k *apikey.Key) {
			if k.PlanID = p.ID; i == 0 {
				k.GatewayID = ending.ID
			}
		})
		h.insertOwner(a, fmt.Sprint(i), func(o *owner.Owner) { o.PlanID = []string{p.ID, other.ID}[i%2] })
	}
	h.insertKey(a, func(k *apikey.Key) { k.PlanID = other.ID })
	revoked := h.insertKey(a, func(k *apikey.Key) { k.PlanID, k.RevokedAt = p.ID, epoch() })
	h.insertKey(a, func(k *apikey.Key) { k.PlanID, k.ExpiresAt, k.ExpiryNotified = p.ID, epoch(), epoch() })
	kept.DefaultPlanID, a.DefaultPlanID = p.ID, p.ID
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.InsertGateway(ctx, kept) })
	h.setState(a, account.Active)
	want("all", 9, control.PlanUse{Keys: 6, Owners: 3, Gateways: 1, Account: true})
	want("up to a bound", 2, control.PlanUse{Keys: 2, Owners: 2, Gateways: 1, Account: true})
	h.update(func(ctx context.Context, tx control.Tx) error {
		return tx.EndGateway(ctx, &control.EndedGateway{ID: ending.ID, AccountID: a.ID, At: epoch()})
	})
	want("after a gateway has ended", 9, control.PlanUse{Keys: 5, Owners: 3, Gateways: 1, Account: true})
	same(h, "the gateway", h.gateway(a.ID, kept.ID).DefaultPlanID, p.ID)
	same(h, "a revoked key", h.key(a.ID, revoked.ID).PlanID, p.ID)
	kept.DefaultPlanID, a.DefaultPlanID = "", ""
	h.update(func(ctx context.Context, tx control.Tx) error { return tx.UpdateGateway(ctx, kept) })
	h.setState(a, account.Active)
	want("without defaults", 9, control.PlanUse{Keys: 5, Owners: 3})
	same(h, "the gateway", []*gateway.Gateway{h.gateway(a.ID, kept.ID)}, []*gateway.Gateway{kept})
}
