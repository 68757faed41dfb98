package admit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// counted names what is counted: by a limit of a plan for a subject, or, without a plan, by the key's own limit of requests in
// flight.
type counted struct {
	planID, limit string
	per           plan.Subject
	subject       string
}

// planModel is a harness whose clock stands still, so that a rate is a number of requests, and what plans.md says of plans,
// owners and keys, naively.
type planModel struct {
	*harness
	plans   []plan.Plan
	owners  []owner.Owner
	keys    []apikey.Key
	secrets []string
	gateway gateway.Gateway
	used    map[counted]int64  // by rates
	flying  map[counted]*int64 // requests in flight, by limits of these
	running []flight
}

// flight is a request in flight, with the counts that it is in.
type flight struct {
	verdict *Verdict
	counts  []*int64
}

// isConcurrency reports whether c counts requests in flight.
func (c counted) isConcurrency() bool { return c.planID == "" || c.limit == "c" }

// count returns how much of c is used.
func (m *planModel) count(c counted) int64 {
	if !c.isConcurrency() {
		return m.used[c]
	}
	if m.flying[c] == nil {
		return 0
	}
	return *m.flying[c]
}

func newPlanModel(t testing.TB) *planModel {
	m := &planModel{harness: newHarness(t), used: map[counted]int64{}, flying: map[counted]*int64{}}
	for i := range 3 {
		m.plans = append(m.plans, m.plan(fmt.Sprint("p", i)))
	}
	for i := range 2 {
		m.owners = append(m.owners, m.owner(fmt.Sprint("o", i), ""))
	}
	for range 4 {
		k, secret := m.key(nil)
		m.keys, m.secrets = append(m.keys, k), append(m.secrets, secret)
	}
	m.gateway = m.harness.gateway(nil, route("/", "GET"))
	return m
}

// planOf returns the plan with the identifier, or nil.
func (m *planModel) planOf(planID string) *plan.Plan {
	i := slices.IndexFunc(m.plans, func(p plan.Plan) bool { return p.ID == planID })
	if i < 0 {
		return nil
	}
	return &m.plans[i]
}

// apply returns the limits that apply to the key, and whom they count.
func (m *planModel) apply(k *apikey.Key) (limits map[counted]int64, suspended bool) {
	chosen := map[plan.Subject]*plan.Plan{plan.PerOwner: m.planOf(m.gateway.DefaultPlanID)}
	subjects := map[plan.Subject]string{plan.PerOwner: k.ID, plan.PerKey: k.ID}
	for i := range m.owners {
		if o := &m.owners[i]; o.ID == k.OwnerID {
			subjects[plan.PerOwner], suspended = o.ID, o.State == owner.Suspended
			if p := m.planOf(o.PlanID); p != nil {
				chosen[plan.PerOwner] = p
			}
		}
	}
	if chosen[plan.PerKey] = m.planOf(k.PlanID); chosen[plan.PerKey] == nil {
		chosen[plan.PerKey] = chosen[plan.PerOwner]
	}
	limits = map[counted]int64{}
	if k.Concurrency > 0 {
		limits[counted{"", "key", plan.PerKey, k.ID}] = k.Concurrency
	}
	for per, p := range chosen {
		if p == nil {
			continue
		}
		for _, l := range p.Limits {
			if l.Per == per {
				limits[counted{p.ID, l.Name, per, subjects[per]}] = max(l.Sustained.Count, l.Concurrency)
			}
		}
	}
	return limits, suspended
}

// request makes a request with a key and compares the verdict with the model.
func (m *planModel) request(t *rapid.T) {
	i := rapid.IntRange(0, len(m.keys)-1).Draw(t, "key")
	limits, suspended := m.apply(&m.keys[i])
	want := accesslog.Forwarded
	for c, most := range limits {
		if m.count(c) >= most {
			want = accesslog.Limited
		}
	}
	if suspended {
		want = accesslog.OwnerSuspended
	}
	v := m.get("/", m.secrets[i])
	if got := v.result(); got != want {
		t.Fatalf("key %d: got result %d, want %d: limits %v, used %v", i, got, want, limits, m.used)
	}
	left := map[string]int64{}
	running := flight{verdict: v}
	for c, most := range limits {
		switch {
		case want != accesslog.Forwarded:
		case c.isConcurrency():
			if m.flying[c] == nil {
				m.flying[c] = new(int64)
			}
			*m.flying[c]++
			running.counts = append(running.counts, m.flying[c])
		default:
			m.used[c]++
		}
		name := c.limit
		if c.planID != "" {
			name = m.planOf(c.planID).Name + "." + c.limit
		}
		left[name] = max(0, most-m.count(c))
	}
	if want == accesslog.Forwarded {
		m.running = append(m.running, running)
	}
	got := map[string]int64{}
	for i := range v.Charge.Shown() {
		if s := v.Charge.Status(i); s.LimitName() != "" {
			got[s.LimitName()] = s.Remaining
		}
	}
	if !maps.Equal(got, left) {
		t.Fatalf("key %d: got %v requests left, want %v", i, got, left)
	}
}

// end ends a request.
func (m *planModel) end(t *rapid.T) {
	if len(m.running) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(m.running)-1).Draw(t, "which")
	m.admit.Settle(&m.running[i].verdict.Charge, &ratelimit.Used{})
	for _, n := range m.running[i].counts {
		*n--
	}
	m.running = slices.Delete(m.running, i, i+1)
}

// edit replaces the limits of a plan.
func (m *planModel) edit(t *rapid.T) {
	p := &m.plans[rapid.IntRange(0, len(m.plans)-1).Draw(t, "plan")]
	var texts []string
	for _, name := range []string{"a", "b"} {
		if per := rapid.SampledFrom([]string{"", "key", "owner"}).Draw(t, "per"); per != "" {
			texts = append(texts, fmt.Sprintf("%s %s %d/day", name, per, rapid.IntRange(1, 6).Draw(t, "rate")))
		}
	}
	if per := rapid.SampledFrom([]string{"", "key", "owner"}).Draw(t, "per"); per != "" {
		texts = append(texts, fmt.Sprintf("c %s %d", per, rapid.IntRange(1, 4).Draw(t, "in flight")))
	}
	p.Limits = m.planLimits(texts...)
	m.source.PutPlan(*p)
	for c, n := range m.used {
		if c.planID != p.ID {
			continue
		}
		l := slices.IndexFunc(p.Limits, func(l plan.Limit) bool { return l.Name == c.limit && l.Per == c.per })
		if l < 0 {
			delete(m.used, c)
		} else {
			m.used[c] = min(n, p.Limits[l].Sustained.Count)
		}
	}
	maps.DeleteFunc(m.flying, func(c counted, _ *int64) bool {
		return c.planID == p.ID && !slices.ContainsFunc(p.Limits, func(l plan.Limit) bool { return l.Name == c.limit && l.Per == c.per })
	})
	m.catchUp()
}

// anyPlan draws a plan's identifier, or "".
func (m *planModel) anyPlan(t *rapid.T) string {
	ids := []string{""}
	for _, p := range m.plans {
		ids = append(ids, p.ID)
	}
	return rapid.SampledFrom(ids).Draw(t, "plan or none")
}

// replace deletes a plan, whoever has it, and makes another that nobody has.
func (m *planModel) replace(t *rapid.T) {
	p := &m.plans[rapid.IntRange(0, len(m.plans)-1).Draw(t, "deleted")]
	m.source.DeletePlan(p.ID)
	maps.DeleteFunc(m.used, func(c counted, _ int64) bool { return c.planID == p.ID })
	maps.DeleteFunc(m.flying, func(c counted, _ *int64) bool { return c.planID == p.ID })
	p.ID, p.Limits = id.New(id.Plan), m.planLimits("a owner 2/day")
	m.source.PutPlan(*p)
	m.catchUp()
}

func (m *planModel) changeOwner(t *rapid.T) {
	o := &m.owners[rapid.IntRange(0, len(m.owners)-1).Draw(t, "owner")]
	o.PlanID, o.State = m.anyPlan(t), rapid.SampledFrom([]owner.State{owner.Active, owner.Active, owner.Suspended}).Draw(t, "state")
	m.source.PutOwner(*o)
	m.catchUp()
}

func (m *planModel) changeKey(t *rapid.T) {
	k := &m.keys[rapid.IntRange(0, len(m.keys)-1).Draw(t, "key")]
	k.PlanID, k.Owner, k.OwnerID, k.Concurrency = m.anyPlan(t), "", "", rapid.Int64Range(0, 3).Draw(t, "concurrency of key")
	if k.Concurrency == 0 {
		delete(m.flying, counted{"", "key", plan.PerKey, k.ID})
	}
	if i := rapid.IntRange(-1, len(m.owners)-1).Draw(t, "owner of key"); i >= 0 {
		k.Owner, k.OwnerID = m.owners[i].ExternalID, m.owners[i].ID
	}
	m.source.PutKey(*k)
	m.catchUp()
}

func (m *planModel) changeDefault(t *rapid.T) {
	m.gateway.DefaultPlanID = m.anyPlan(t)
	m.source.PutSettings(m.gateway)
	m.catchUp()
}

// Guarantee: whatever is changed of plans, owners, keys and the gateway, and in whatever order, requests are admitted and
// refused as a naive count says, of requests in a time and in flight, and the header fields show its figures.
func TestPlansEqualModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newPlanModel(t)
		r.Repeat(map[string]func(*rapid.T){
			"request": m.request, "request again": m.request, "request once more": m.request, "end": m.end, "end again": m.end, "edit": m.edit, "replace": m.replace,
			"owner": m.changeOwner, "key": m.changeKey, "gateway": m.changeDefault,
			"load": func(*rapid.T) { // everything, because the change log does not have the last change
				m.source.PutKey(m.keys[0])
				m.source.Trim()
				m.catchUp()
			},
		})
	})
}

// admitted returns the buckets that v was charged to, by the identifiers that the model has.
func (m *planModel) admitted(v *Verdict, of map[string]string) (all []string) {
	for i := range v.Charge.Shown() {
		s := v.Charge.Status(i)
		if s.Scope != ratelimit.PlanScope {
			continue
		}
		subject := v.Caller.ID()
		if strings.HasSuffix(s.Label.String(), "together") {
			subject = of[subject]
		}
		all = append(all, s.Label.String()+" "+subject)
	}
	return all
}
