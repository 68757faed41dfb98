package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// quotaEngine stands in for the engine of quotas. It has used units of quotas, and writes them when it settles.
type quotaEngine struct {
	h       *harness
	used    map[string]int64 // by the name of the limit
	granted []ratelimit.QuotaKey
	err     error // of Settle
}

func (e *quotaEngine) Settle(ctx context.Context, keys []ratelimit.QuotaKey) error {
	for _, key := range keys {
		n := e.used[key.Limit]
		if n == 0 {
			continue
		}
		claim := ratelimit.QuotaClaim{
			QuotaKey: key, Terms: &ratelimit.QuotaTerms{Plan: "x", Count: ratelimit.MaxUnits},
			Calendar: calendar.Calendar{Unit: key.Unit, Zone: time.UTC, Anchor: 1}, Want: n, Need: n,
		}
		for range 2 { // to take the units, and to use all but one of them
			claims := []ratelimit.QuotaClaim{claim}
			if _, err := e.h.db.ClaimQuotas(ctx, "process", e.h.clock.now(), claims); err != nil {
				return err
			}
			claim.Window, claim.Own, claim.Want, claim.Need = claims[0].Answer.Start, ratelimit.QuotaFigures{Taken: n, Reserved: 1}, 0, 0
		}
	}
	return e.err
}

func (e *quotaEngine) Granted(_ context.Context, key ratelimit.QuotaKey) error {
	e.granted = append(e.granted, key)
	return nil
}

func (h *harness) withEngine() *quotaEngine {
	h.tb.Helper()
	e := &quotaEngine{h: h, used: map[string]int64{}}
	h.quotas = e
	h.serve(h.store)
	return e
}

// quotaPlan creates a plan with quotas of 100 in a month, each written as its name, whom it counts, and its gateway.
func (h *harness) quotaPlan(c *control.Actor, name string, limits ...string) *control.ChangedPlan {
	h.tb.Helper()
	in := control.PlanInput{Name: name}
	for _, l := range limits {
		parts := append(strings.Fields(l), "")
		in.Limits = append(in.Limits, plan.LimitInput{Name: parts[0], Per: parts[1], GatewayID: parts[2], Quota: "100/month"})
	}
	return h.plan(c, in)
}

func namesOfQuotas(list []control.QuotaUsage) string {
	var names []string
	for _, u := range list {
		names = append(names, u.Plan+"."+u.Limit.Name)
	}
	return strings.Join(names, " ")
}

// Guarantee: plans.md, section 3: quotas per owner are those of the owner's plan, else of the default plans of gateways;
// quotas per key those of the first plan there is, even if it has none; and each name is there once.
func TestWhichQuotasCount(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	a, b := h.gateway(c), h.gateway(c)
	h.quotaPlan(c, "a", "shared owner", "key-a key", "not-here owner "+b.ID)
	h.quotaPlan(c, "b", "key-b key", "shared owner", "owner-b owner "+b.ID)
	h.quotaPlan(c, "own", "key-own key", "owner-own owner", "of-a key "+a.ID)
	h.plan(c, planOf("rates", "1/s"))
	for id, name := range map[string]string{a.ID: "a", b.ID: "b"} {
		h.must(second(h.UpdateGateway(ctx(), c, id, gateway.Patch{DefaultPlan: value(name)}, nil)))
	}
	owners := map[string]string{}
	for _, planOf := range []string{"", "own", "rates"} {
		owners[planOf] = h.owner(c, control.OwnerInput{ExternalID: "owner-" + planOf, Plan: control.ChoosePlan("", planOf)}).ID
	}
	for planOf, want := range map[string]string{"": "b.shared b.owner-b", "own": "own.owner-own", "rates": ""} {
		if got := namesOfQuotas(must[[]control.QuotaUsage](h)(h.OwnerUsage(ctx(), c, owners[planOf]))); got != want {
			t.Errorf("an owner with the plan %q: got %q, want %q", planOf, got, want)
		}
	}
	for _, k := range []struct{ plan, owner, gateway, want string }{
		{"", "", "", "b.key-b b.shared b.owner-b a.key-a"}, {"own", "", "", "own.key-own own.of-a b.shared b.owner-b"},
		{"", "owner-own", "", "own.key-own own.of-a"}, {"", "owner-", "", "b.key-b a.key-a"}, {"rates", "owner-own", "", ""},
		{"own", "owner-rates", b.ID, "own.key-own"}, {"", "", a.ID, "a.shared a.key-a"},
	} {
		made := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Plan: control.ChoosePlan("", k.plan), Owner: k.owner, GatewayID: k.gateway}))
		if got := namesOfQuotas(must[[]control.QuotaUsage](h)(h.KeyUsage(ctx(), c, made.ID))); got != k.want {
			t.Errorf("%+v: got %q", k, got)
		}
	}
	if got := must[[]control.QuotaUsage](h)(h.KeyUsage(ctx(), c, c.KeyID)); len(got) != 0 {
		t.Errorf("got %+v of an account-level key", got)
	}
}

// Guarantee: usage is what the engine has used until the call, in the window that the store has, and with the calendar's
// window of a quota that was not used.
func TestUsageIsUpToNow(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	e := h.withEngine()
	h.plan(c, control.PlanInput{Name: "pro", TimeZone: "Europe/Berlin", AnchorDay: 15, Limits: []plan.LimitInput{
		{Name: "used", Per: "owner", Quota: "100/month"}, {Name: "new", Per: "owner", Quota: "5/day", Overage: "allow"}, {Name: "ever", Per: "owner", Quota: "7/total"},
	}})
	o := h.owner(c, control.OwnerInput{ExternalID: "a", Plan: control.ChoosePlan("", "pro"), TimeZone: "Asia/Tokyo"})
	e.used["used"] = 41
	got := must[[]control.QuotaUsage](h)(h.OwnerUsage(ctx(), c, o.ID))
	var lines []string
	for _, u := range got {
		lines = append(lines, fmt.Sprintf("%s %d+%d %d %d %d %s %s", u.Limit.Name, u.Limit.Quota.Count, u.Grants, u.Used, u.Reserved, u.Remaining(),
			u.WindowStart.Format(time.RFC3339), u.WindowEnd.Format(time.RFC3339)))
	}
	want := []string{
		"used 100+0 40 1 59 2026-03-01T00:00:00Z 2026-04-01T00:00:00Z", // as the engine claimed it
		"new 5+0 0 0 5 2026-02-28T15:00:00Z 2026-03-01T15:00:00Z",
		"ever 7+0 0 0 7 1970-01-01T00:00:00Z 9999-01-01T00:00:00Z",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	e.err = errors.New("the store is away")
	var complete control.Completeness
	late := must[[]control.QuotaUsage](h)(h.OwnerUsage(control.WithCompleteness(ctx(), &complete), c, o.ID))
	if complete.Missing == "" || late[0].Used != 40 {
		t.Errorf("got %+v and %d used, want the store's figures as incomplete", complete, late[0].Used)
	}
	_, err := h.OwnerUsage(ctx(), c, "own_x")
	h.wantCode(err, fault.NotFound, "")
	_, err = h.KeyUsage(ctx(), h.caller("other", "admin"), c.KeyID)
	h.wantCode(err, fault.NotFound, "")
}

// Guarantee: a quota that was not used since its last window is shown with the window that its first use begins, also after the
// owner got another zone: from the last window's end to the first edge of the new calendar.
func TestUsageShowsTheWindowOfTheFirstUse(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	e := h.withEngine()
	h.plan(c, control.PlanInput{Name: "pro", Limits: []plan.LimitInput{{Name: "each-day", Per: "owner", Quota: "100/day"}}})
	o := h.owner(c, control.OwnerInput{ExternalID: "a", Plan: control.ChoosePlan("", "pro")})
	e.used["each-day"] = 2
	window := func() (from, to time.Time) {
		t.Helper()
		u := must[[]control.QuotaUsage](h)(h.OwnerUsage(ctx(), c, o.ID))[0]
		return u.WindowStart, u.WindowEnd
	}
	_, end := window()
	h.must(second(h.UpdateOwner(ctx(), c, o.ID, control.OwnerPatch{TimeZone: value("Asia/Tokyo")}, nil)))
	h.clock.advance(end.Add(time.Minute).Sub(h.clock.now()))
	delete(e.used, "each-day")
	from, to := window()
	if want := end.Add(15 * time.Hour); !from.Equal(end) || !to.Equal(want) {
		t.Errorf("got %v to %v before the first use, want %v to %v", from, to, end, want)
	}
	h.must(second(h.GrantToOwner(ctx(), c, o.ID, control.GrantInput{Limit: "each-day", Units: 1}))) // begins the window, as a use does
	if start, stop := window(); !start.Equal(from) || !stop.Equal(to) {
		t.Errorf("got %v to %v after the first use, want %v to %v as before it", start, stop, from, to)
	}
}

// Guarantee: a list of owners with usage has the quota of which each has used the greatest share, grants included: of its
// plan, else of the default plans of gateways. Its order and filters are those of the list without.
func TestOwnersWithTheirTightestQuota(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	e := h.withEngine()
	h.plan(c, control.PlanInput{Name: "pro", Limits: []plan.LimitInput{
		{Name: "much", Per: "owner", Quota: "1000/month"}, {Name: "few", Per: "owner", Quota: "50/month"}, {Name: "each", Quota: "1/day"}, {Name: "rate", Per: "owner", Sustained: "1/s"},
	}})
	h.quotaPlan(c, "default", "shared owner")
	h.plan(c, planOf("rates", "1/s"))
	h.must(second(h.UpdateGateway(ctx(), c, h.gateway(c).ID, gateway.Patch{DefaultPlan: value("default")}, nil)))
	h.owner(c, control.OwnerInput{ExternalID: "none"})
	h.owner(c, control.OwnerInput{ExternalID: "unlimited", Plan: control.ChoosePlan("", "rates")})
	o := h.owner(c, control.OwnerInput{ExternalID: "a", Plan: control.ChoosePlan("", "pro")})
	e.used["much"], e.used["few"] = 41, 41 // of which the last is reserved: 4 % and 80 %
	list := func() string {
		t.Helper()
		var lines []string
		for _, o := range must[[]control.OwnerWithUsage](h)(h.OwnersWithUsage(ctx(), c, control.OwnerFilter{}, control.Page{Limit: 10})) {
			line := o.ExternalID
			if u := o.Tightest; u != nil {
				line += fmt.Sprintf(" %s.%s %d", u.Plan, u.Limit.Name, u.Used)
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, ", ")
	}
	if got, want := list(), "a pro.few 40, unlimited, none default.shared 0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	h.must(second(h.GrantToOwner(ctx(), c, o.ID, control.GrantInput{Limit: "few", Units: 10_000})))
	if got, want := list(), "a pro.much 40, unlimited, none default.shared 0"; got != want {
		t.Errorf("after a grant: got %q, want %q", got, want)
	}
}

// Guarantee: a grant is added to the present window, audited with its reason, seen by the engine, and listed newest first;
// the keys of a rotation share it.
func TestGrants(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	e := h.withEngine()
	h.quotaPlan(c, "pro", "per-month key", "together owner")
	k := must[*control.NewKey](h)(h.CreateKey(ctx(), c, control.KeyInput{Name: "k", Scope: "read", Plan: control.ChoosePlan("", "pro")}))
	young := must[*control.NewKey](h)(h.RotateKey(ctx(), c, k.ID, 7, "", nil))
	before := h.records(c.Account.ID)
	g := must[*plan.Grant](h)(h.GrantToKey(ctx(), c, young.ID, control.GrantInput{Limit: "per-month", Units: 50, Reason: "outage"}))
	written := h.records(c.Account.ID).since(before)
	if audits, _, changes := written.summary(); !slices.Equal(audits, []string{"grant.create " + g.ID}) || changes != nil {
		t.Errorf("got the audit records %q and the changes %q", audits, changes)
	}
	if d := written.audits[0].Diff; d["key_id"][1] != young.ID || d["reason"][1] != "outage" || d["limit"][1] != "per-month" || fmt.Sprint(d["units"][1]) != "50" {
		t.Errorf("got the diff %v", d)
	}
	if g.Subject != k.ID || g.Plan != "pro" || g.Meter != ratelimit.Requests || !g.WindowStart.Equal(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)) || !g.WindowEnd.Equal(g.WindowStart.AddDate(0, 1, 0)) {
		t.Errorf("got %+v, want the first key of the rotation and its month", g)
	}
	if len(e.granted) != 1 || e.granted[0].Subject != k.ID || e.granted[0].Limit != "per-month" {
		t.Errorf("the engine was told of %+v", e.granted)
	}
	h.clock.advance(time.Second)
	last := must[*plan.Grant](h)(h.GrantToKey(ctx(), c, k.ID, control.GrantInput{Limit: "per-month", Units: 7}))
	u := must[[]control.QuotaUsage](h)(h.KeyUsage(ctx(), c, k.ID))[0]
	if u.Grants != 57 || u.Remaining() != 157 {
		t.Errorf("got %d granted and %d left, want 57 and 157", u.Grants, u.Remaining())
	}
	list := must[[]plan.Grant](h)(h.KeyGrants(ctx(), c, young.ID, control.Page{Limit: 1}))
	if len(list) != 1 || list[0].ID != last.ID || list[0].Reason != "" {
		t.Errorf("got %+v, want the last grant", list)
	}
	if rest := must[[]plan.Grant](h)(h.KeyGrants(ctx(), c, k.ID, control.Page{Limit: 9, After: last.ID})); len(rest) != 1 || rest[0].ID != g.ID || rest[0].Reason != "outage" {
		t.Errorf("got %+v, want the first grant", rest)
	}
}

// Guarantee: what is wrong with a grant is said at its field, and it changes nothing.
func TestInvalidGrants(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	p := h.quotaPlan(c, "pro", "together owner", "each key")
	o := h.owner(c, control.OwnerInput{ExternalID: "a", Plan: control.ChoosePlan(p.ID, "")})
	none := h.owner(c, control.OwnerInput{ExternalID: "b"})
	good, other := control.GrantInput{Limit: "together", Units: 1}, h.caller("other", "admin")
	h.wantNoRecords(c.Account.ID, func() {
		for _, bad := range []struct {
			ownerID string
			in      control.GrantInput
			field   string
		}{
			{o.ID, control.GrantInput{Limit: "together"}, "units"}, {o.ID, control.GrantInput{Limit: "together", Units: ratelimit.MaxUnits + 1}, "units"},
			{o.ID, control.GrantInput{Limit: "together", Units: 1, Reason: "\u202e"}, "reason"}, {o.ID, control.GrantInput{Limit: "together", Units: 1, Reason: strings.Repeat("é", 128)}, "reason"},
			{o.ID, control.GrantInput{Limit: "each", Units: 1}, "limit"}, {o.ID, control.GrantInput{Units: 1}, "limit"}, {none.ID, good, "limit"},
		} {
			_, err := h.GrantToOwner(ctx(), c, bad.ownerID, bad.in)
			h.wantCode(err, fault.ValidationFailed, bad.field)
		}
		_, err := h.GrantToOwner(ctx(), other, o.ID, good)
		h.wantCode(err, fault.NotFound, "")
		_, err = h.OwnerGrants(ctx(), c, "own_x", control.Page{Limit: 1})
		h.wantCode(err, fault.NotFound, "")
	})
	_, err := h.GrantToOwner(ctx(), c, o.ID, control.GrantInput{Limit: "each", Units: 1})
	if err == nil || !strings.Contains(err.Error(), "its quotas are together") {
		t.Errorf("got %v, want the names of the owner's quotas", err)
	}
	_, err = h.GrantToOwner(control.OnlyCheck(ctx()), c, o.ID, control.GrantInput{Limit: "each"})
	if len(fault.ProblemsOf(err)) != 2 {
		t.Errorf("got %v of a check, want the problems of limit and units", err)
	}
}

// Guarantee: an account with many default plans shows a bounded number of quotas.
func TestShownQuotasAreBounded(t *testing.T) {
	h := newHarness(t)
	c := h.caller("acme", "admin")
	o := h.owner(c, control.OwnerInput{ExternalID: "a"})
	for i := range 126 {
		var limits []string
		for j := range plan.MaxLimits {
			limits = append(limits, fmt.Sprintf("l%d-%d owner", i, j))
		}
		name := fmt.Sprintf("p%d", i)
		h.quotaPlan(c, name, limits...)
		p := newGateway("https://h")
		p.DefaultPlan = value(name)
		must[*gateway.Gateway](h)(h.CreateGateway(ctx(), c, p, ""))
	}
	if got := must[[]control.QuotaUsage](h)(h.OwnerUsage(ctx(), c, o.ID)); len(got) != 1000 {
		t.Errorf("got %d quotas of %d, want 1000", len(got), 126*plan.MaxLimits)
	}
}
