package snapshot_test

import (
	"context"
	"maps"
	"testing"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/snapshot/snapshottest"
)

// planned is a plan whose limits allow 10 requests a minute, with an owner, a key of it, and a gateway.
type planned struct {
	planID, gatewayID, secret string
	owner                     owner.Owner
	key                       apikey.Key
}

// plannedKey stores one.
func (h *harness) plannedKey() *planned {
	h.t.Helper()
	g := h.gateway()
	h.source.PutGateway(g, route("/", ratelimit.Config{}, "GET"))
	p := h.rated(id.New(id.Plan), 10)
	h.source.PutPlan(p)
	o := owner.Owner{ID: id.New(id.Owner), AccountID: h.account.ID, ExternalID: "customer", State: owner.Active, PlanID: p.ID}
	h.source.PutOwner(o)
	k, secret := h.key()
	k.Owner, k.OwnerID = o.ExternalID, o.ID
	h.source.PutKey(k)
	h.catchUp()
	return &planned{p.ID, g.ID, secret, o, k}
}

// wantLeft makes a request and checks what is left of each limit of plans.
func (h *harness) wantLeft(p *planned, want map[string]int64, problem string) {
	h.t.Helper()
	if got, why := h.follower.PlanLimits(h.clock.Now(), p.gatewayID, p.secret); !maps.Equal(got, want) || why != problem {
		h.t.Errorf("got %v, %q, want %v, %q", got, why, want, problem)
	}
}

// Guarantee: reading everything again keeps what was used of limits, and notices what the change log does not name:
// changed and deleted plans, owners and keys.
func TestPlansAreReadAgain(t *testing.T) {
	h := newHarness(t)
	p := h.plannedKey()
	h.wantLeft(p, map[string]int64{"free.together": 9, "free.each": 9}, "")
	raised := h.rated(p.planID, 20)
	h.source.PutPlan(raised)
	h.source.Trim()
	h.catchUp()
	h.wantLeft(p, map[string]int64{"free.together": 18, "free.each": 18}, "")
	h.source.DeletePlan(p.planID)
	h.source.Trim()
	h.catchUp()
	h.wantLeft(p, map[string]int64{}, "")
	h.source.PutPlan(raised)
	p.owner.State = owner.Suspended
	h.source.PutOwner(p.owner)
	h.source.Trim()
	h.catchUp()
	if !h.follower.Current().FindKey(p.secret).OwnerSuspended() {
		t.Error("the owner is not suspended")
	}
	h.source.DeleteOwner(p.owner.ID)
	h.source.Trim()
	h.catchUp()
	if k := h.follower.Current().FindKey(p.secret); k.OwnerSuspended() || k.Owner() != "customer" {
		t.Errorf("the owner of the key is %q, suspended: %t, want customer and false", k.Owner(), k.OwnerSuspended())
	}
}

// Guarantee: a key whose owner and plan are read after it, in whatever order, has their limits as soon as they are read.
func TestPlansThatComeLate(t *testing.T) {
	h := newHarness(t)
	g := h.gateway()
	p := h.rated(id.New(id.Plan), 10)
	o := owner.Owner{ID: id.New(id.Owner), AccountID: h.account.ID, ExternalID: "customer", State: owner.Active, PlanID: p.ID}
	k, secret := h.key()
	k.Owner, k.OwnerID = o.ExternalID, o.ID
	g.DefaultPlanID = p.ID
	late := &planned{p.ID, g.ID, secret, o, k}
	for _, put := range []func(){func() { h.source.PutKey(k) }, func() { h.source.PutGateway(g) }, func() { h.source.PutOwner(o) }} {
		put()
		h.catchUp()
	}
	h.wantLeft(late, map[string]int64{}, "")
	h.source.PutPlan(p)
	h.catchUp()
	h.wantLeft(late, map[string]int64{"free.together": 9, "free.each": 9}, "")
}

// unreadablePlans is a source in which the records of some plans and owners are damaged.
type unreadablePlans struct {
	*snapshottest.Source
	bad map[string]error
}

func (u *unreadablePlans) PlanByID(ctx context.Context, planID string) (*plan.Plan, error) {
	if err := u.bad[planID]; err != nil {
		return nil, err
	}
	return u.Source.PlanByID(ctx, planID)
}

func (u *unreadablePlans) OwnerByID(ctx context.Context, ownerID string) (*owner.Owner, error) {
	if err := u.bad[ownerID]; err != nil {
		return nil, err
	}
	return u.Source.OwnerByID(ctx, ownerID)
}

// Guarantee: on one of several nodes, what a plan limits whose record cannot be read is refused, and an owner whose record
// cannot be read counts as suspended, before and after a restart. Neither stops other changes, and both are as they should
// be when the records can be read again.
func TestPlansAndOwnersThatCannotBeRead(t *testing.T) {
	h := newSharedHarness(t)
	p := h.plannedKey()
	h.reads = &unreadablePlans{h.source, h.log.bad}
	h.start()
	h.log.bad[p.planID], h.log.bad[p.owner.ID] = errDamaged, errDamaged
	h.source.PutPlan(h.rated(p.planID, 5))
	h.source.PutOwner(p.owner)
	other, secret := h.key()
	h.source.PutKey(other)
	h.catchUp()
	h.wantApplied()
	if h.follower.Current().FindKey(secret) == nil {
		t.Error("another change is not in force")
	}
	for _, when := range []string{"after the change", "after a restart"} {
		k := h.follower.Current().FindKey(p.secret)
		plans, owners := h.follower.UnusablePlans()
		if !k.OwnerSuspended() || plans != 1 || owners != 1 {
			t.Errorf("%s: the owner is suspended: %t; %d plans and %d owners cannot be used, want 1 and 1", when, k.OwnerSuspended(), plans, owners)
		}
		k2 := other
		k2.PlanID = p.planID
		h.source.PutKey(k2)
		h.catchUp()
		if _, problem := h.follower.PlanLimits(h.clock.Now(), p.gatewayID, secret); problem != snapshot.PlanUnusable {
			t.Errorf("%s: got the problem %q, want %q", when, problem, snapshot.PlanUnusable)
		}
		h.source.PutAccount(account.Account{ID: id.New(id.Account), Name: when}) // accounts are read again
		h.catchUp()
		h.start()
	}
	clear(h.log.bad)
	h.catchUp()
	h.wantLeft(p, map[string]int64{"free.together": 4, "free.each": 4}, "")
	if plans, owners := h.follower.UnusablePlans(); plans != 0 || owners != 0 || h.follower.Current().FindKey(p.secret).OwnerSuspended() {
		t.Errorf("%d plans and %d owners cannot be used, want none", plans, owners)
	}
}

// Guarantee: the buckets of a limit that was renamed, and of a deleted plan, do not fill the memory.
func TestBucketsOfFormerPlansAreDropped(t *testing.T) {
	h := newHarness(t)
	before := h.follower.BucketBudget().Used()
	p := h.plannedKey()
	h.wantLeft(p, map[string]int64{"free.together": 9, "free.each": 9}, "")
	renamed := h.rated(p.planID, 10)
	renamed.Limits[0].Name, renamed.Limits[1].Name = "all", "one"
	h.source.PutPlan(renamed)
	h.catchUp()
	h.wantLeft(p, map[string]int64{"free.all": 9, "free.one": 9}, "")
	used := h.follower.BucketBudget().Used() - before
	h.follower.SweepBuckets()
	if left := h.follower.BucketBudget().Used() - before; left*2 != used {
		t.Errorf("after a limit was renamed, %d of %d bytes are left, want half", left, used)
	}
	h.source.DeletePlan(p.planID)
	h.catchUp()
	h.follower.SweepBuckets()
	if left := h.follower.BucketBudget().Used() - before; left != 0 {
		t.Errorf("after the plan was deleted, %d bytes are left, want none", left)
	}
}

// Guarantee: Levels reports the limits of plans that cover the gateway, with the owner or the key that each counts.
func TestLevelsOfPlans(t *testing.T) {
	h := newHarness(t)
	p := h.plannedKey()
	h.wantLeft(p, map[string]int64{"free.together": 9, "free.each": 9}, "")
	alone, secret := h.key()
	alone.PlanID = p.planID
	h.source.PutKey(alone)
	h.catchUp()
	h.wantLeft(&planned{gatewayID: p.gatewayID, secret: secret}, map[string]int64{"free.each": 9}, "")
	got := map[string]int64{}
	h.follower.Levels(context.Background(), p.gatewayID, func(l ratelimit.Level) {
		if l.Scope != ratelimit.PlanScope {
			return
		}
		subject := id.Format(id.Key, l.Key)
		if l.Owner != ([16]byte{}) {
			subject = id.Format(id.Owner, l.Owner)
		}
		got[l.Label.String()+" "+subject] = l.Remaining
	})
	want := map[string]int64{"free.together " + p.owner.ID: 9, "free.each " + p.key.ID: 9, "free.each " + alone.ID: 9}
	if !maps.Equal(got, want) {
		t.Errorf("got levels %v, want %v", got, want)
	}
}
