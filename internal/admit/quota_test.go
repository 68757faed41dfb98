package admit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/plan"
)

// quotaPlan stores a plan with one quota.
func (h *harness) quotaPlan(name string, l plan.Limit) plan.Plan {
	h.t.Helper()
	p := plan.Plan{ID: id.New(id.Plan), AccountID: h.account.ID, Name: name, TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor, Limits: []plan.Limit{l}}
	h.source.PutPlan(p)
	h.catchUp()
	return p
}

func aMonth(count int64, per plan.Subject) plan.Limit {
	return plan.Limit{Name: "monthly", Per: per, Quota: plan.Quota{Count: count, Unit: calendar.Month}}
}

// counted does what get does, and waits until quotas can decide.
func (h *harness) counted(target, secret string) *Verdict {
	h.t.Helper()
	for {
		v := h.get(target, secret)
		if v.Action != Wait {
			return v
		}
		if err := h.admit.Wait(context.Background(), v); err != nil {
			h.t.Fatal(err)
		}
	}
}

// passes sends up to most requests until one is refused, and returns how many passed.
func (h *harness) passes(secret string, most int) (passed int) {
	h.t.Helper()
	for passed < most && h.counted("/", secret).Action == Forward {
		passed++
	}
	return passed
}

// Guarantee: the keys of an owner use its quota together, keys with per: key and keys without an owner each one of their
// own, and the keys of a rotation one together.
func TestWhoseQuotaIsUsed(t *testing.T) {
	h := newHarness(t)
	ofOwners, ofKeys := h.quotaPlan("owners", aMonth(10, plan.PerOwner)), h.quotaPlan("keys", aMonth(7, plan.PerKey))
	h.gateway(byDefault(ofOwners.ID), route("/", "GET"))
	acme, other := h.owner("acme", ofOwners.ID), h.owner("other", ofKeys.ID)
	_, first := h.keyOf(&acme, "")
	_, second := h.keyOf(&acme, "")
	if a, b, c := h.passes(first, 6), h.passes(second, 20), h.passes(first, 20); a != 6 || b != 4 || c != 0 {
		t.Errorf("of an owner's quota of 10 its keys used %d, %d and %d", a, b, c)
	}
	_, own := h.keyOf(&other, "")
	_, alone := h.keyOf(nil, "")
	if a, b := h.passes(own, 20), h.passes(alone, 20); a != 7 || b != 10 {
		t.Errorf("%d and %d passed, want 7 and 10", a, b)
	}
	old, _ := h.keyOf(&other, "")
	_, rotated := h.key(func(k *apikey.Key) { k.BucketID, k.Owner, k.OwnerID = old.ID, other.ExternalID, other.ID })
	if n := h.passes(rotated, 20); n != 7 {
		t.Errorf("%d passed with a key of a rotation", n)
	}
}

// Guarantee: what a quota has counted stays when the plan changes, or another plan with an equal limit takes its place.
func TestQuotaOutlivesItsPlan(t *testing.T) {
	h := newHarness(t)
	small, large := h.quotaPlan("small", aMonth(10, plan.PerOwner)), h.quotaPlan("large", aMonth(25, plan.PerOwner))
	h.gateway(nil, route("/", "GET"))
	acme := h.owner("acme", small.ID)
	_, secret := h.keyOf(&acme, "")
	if n := h.passes(secret, 100); n != 10 {
		t.Fatalf("%d passed", n)
	}
	acme.PlanID = large.ID
	h.source.PutOwner(acme)
	h.catchUp()
	if n := h.passes(secret, 100); n != 15 {
		t.Errorf("with a larger plan %d more passed, want 15", n)
	}
	large.Limits[0].Quota.Count = 30
	h.source.PutPlan(large)
	h.catchUp()
	if n := h.passes(secret, 3); n != 3 {
		t.Errorf("with a raised count %d more passed, want 3", n)
	}
	large.Limits[0].Quota.Count = 20
	h.source.PutPlan(large)
	h.catchUp()
	if n := h.passes(secret, 3); n != 0 {
		t.Errorf("with a lowered count %d more passed, want 0", n)
	}
}

// Guarantee: a refusal names the plan and its limit, and its reset is the end of the window by the zone and the anchor of
// the owner, or else of the plan.
func TestRefusalByQuota(t *testing.T) {
	h := newHarness(t)
	p := h.quotaPlan("pro", aMonth(2, plan.PerOwner))
	h.gateway(nil, route("/", "GET"))
	acme := h.owner("acme", p.ID)
	acme.TimeZone, acme.AnchorDay = "Europe/Berlin", 15
	h.source.PutOwner(acme)
	h.catchUp()
	_, secret := h.keyOf(&acme, "")
	v := h.counted("/", secret)
	fields := string(v.AppendFields(nil))
	if want := `RateLimit-Policy: "pro.monthly";q=2;w=2678400;qu="requests"`; !strings.Contains(fields, want) || !strings.Contains(fields, "X-RateLimit-Remaining: 1\r\n") {
		t.Errorf("the fields are\n%s, want %s", fields, want)
	}
	h.counted("/", secret)
	v = h.counted("/", secret)
	e := v.Fault()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if e == nil || e.Code != fault.RateLimitExceeded || e.Limit.Scope != "plan" || e.Limit.Name != "pro.monthly" || e.Limit.Limit != 2 ||
		e.Limit.ResetAt != time.Date(2026, 9, 15, 0, 0, 0, 0, berlin).Unix() {
		t.Errorf("refused with %+v, %+v", e, e.Limit)
	}
}

// Guarantee: with overage: allow nothing is refused.
func TestOverageIsNotRefused(t *testing.T) {
	h := newHarness(t)
	l := aMonth(5, plan.PerOwner)
	l.Overage = plan.OverageAllow
	p := h.quotaPlan("pro", l)
	h.gateway(nil, route("/", "GET"))
	acme := h.owner("acme", p.ID)
	_, secret := h.keyOf(&acme, "")
	if n := h.passes(secret, 30); n != 30 {
		t.Errorf("%d of 30 passed", n)
	}
	if s := h.counted("/", secret).Charge.Worst(); s.Limit != 5 || s.Remaining != 0 {
		t.Errorf("the status is %+v", s)
	}
}

// Guarantee: if the gateway's plan and a key's own have limits that count the same of a key without an owner, a request counts
// once, and the tighter limit decides.
func TestQuotaOfTwoPlansCountsOnce(t *testing.T) {
	for _, tc := range []struct {
		gateway, own plan.Limit
		want         int
	}{
		{aMonth(10, plan.PerOwner), aMonth(7, plan.PerKey), 7},
		{aMonth(5, plan.PerOwner), aMonth(7, plan.PerKey), 5},
		{aMonth(5, plan.PerOwner), allowing(aMonth(3, plan.PerKey)), 5},
		{allowing(aMonth(3, plan.PerOwner)), aMonth(5, plan.PerKey), 5},
		{allowing(aMonth(3, plan.PerOwner)), allowing(aMonth(5, plan.PerKey)), 20},
	} {
		h := newHarness(t)
		byOwner, byKey := h.quotaPlan("tenants", tc.gateway), h.quotaPlan("keys", tc.own)
		h.gateway(byDefault(byOwner.ID), route("/", "GET"))
		_, secret := h.keyOf(nil, byKey.ID)
		if n := h.passes(secret, 20); n != tc.want {
			t.Errorf("%+v and %+v: %d passed, want %d", tc.gateway, tc.own, n, tc.want)
		}
	}
}

func allowing(l plan.Limit) plan.Limit {
	l.Overage = plan.OverageAllow
	return l
}
