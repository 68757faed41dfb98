package admit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/cost"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// counted names what is counted: by a limit of a plan for a subject; by a quota, without a plan, for a subject; or by a key's own
// limit of requests in flight.
type counted struct {
	planID, limit string
	per           plan.Subject
	subject       string
}

// The names of limits say what they are: a and b are rates, and these others.
const (
	inFlight  = "c"
	ofQuota   = "q"
	ofTokens  = "t" // a quota of tokens
	ownLimit  = "key"
	reserved  = 2 // tokens of each request
	mostToken = 5
)

// applied is a limit that applies to a request.
type applied struct {
	counted
	shown  string // as limit_name
	most   int64
	amount int64 // that the request takes
}

// planModel is a harness whose clock stands still, so that a rate is a number of requests, and what plans.md says of plans,
// owners, keys, quotas, grants, costs and requests in flight, naively.
type planModel struct {
	*harness
	plans   []plan.Plan
	owners  []owner.Owner
	keys    []apikey.Key
	secrets []string
	gateway gateway.Gateway
	used    map[counted]*int64
	grants  map[counted]int64
	running []flight
	edits   int // of plans
}

// flight is a request in flight, with what it counts in until it ends, and the tokens that were taken.
type flight struct {
	verdict               *Verdict
	flying, tokens, taken []*int64
	edits                 int // before it
}

func newPlanModel(t testing.TB) *planModel {
	m := &planModel{harness: newHarness(t), used: map[counted]*int64{}, grants: map[counted]int64{}}
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
	r := route("/", "GET")
	r.Cost = cost.Rules{{Meter: "tokens", Reserve: reserved, Max: mostToken, From: cost.From{Source: cost.FromHeader, Header: "X-Tokens"}}}
	m.gateway = m.harness.gateway(nil, r)
	return m
}

// count returns how much of c is used, to be changed.
func (m *planModel) count(c counted) *int64 {
	if m.used[c] == nil {
		m.used[c] = new(int64)
	}
	return m.used[c]
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
func (m *planModel) apply(k *apikey.Key) (limits []applied, suspended bool) {
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
	if k.Concurrency > 0 {
		limits = append(limits, applied{counted{"", ownLimit, plan.PerKey, k.ID}, ownLimit, k.Concurrency, 1})
	}
	for per, p := range chosen {
		if p == nil {
			continue
		}
		for _, l := range p.Limits {
			if l.Per != per {
				continue
			}
			a := applied{counted{p.ID, l.Name, per, subjects[per]}, p.Name + "." + l.Name, max(l.Sustained.Count, l.Concurrency, l.Quota.Count), 1}
			if !l.Quota.IsZero() {
				a.counted = counted{"", l.Name, "", subjects[per]}
				a.most += m.grants[a.counted]
			}
			if strings.HasPrefix(l.Name, ofTokens) {
				a.amount = reserved
			}
			limits = append(limits, a)
		}
	}
	return limits, suspended
}

// request makes a request with a key and compares the verdict with the model.
func (m *planModel) request(t *rapid.T) {
	i := rapid.IntRange(0, len(m.keys)-1).Draw(t, "key")
	limits, suspended := m.apply(&m.keys[i])
	want := accesslog.Forwarded
	for _, l := range limits {
		if *m.count(l.counted)+l.amount > l.most {
			want = accesslog.Limited
		}
	}
	if suspended {
		want = accesslog.OwnerSuspended
	}
	v := m.get("/", m.secrets[i])
	if got := v.result(); got != want {
		t.Fatalf("key %d: got result %d, want %d: limits %v", i, got, want, limits)
	}
	left := map[string]int64{}
	running := flight{verdict: v, edits: m.edits}
	for _, l := range limits {
		used := m.count(l.counted)
		switch {
		case want != accesslog.Forwarded:
		case l.limit == inFlight || l.limit == ownLimit:
			running.flying = append(running.flying, used)
			fallthrough
		default:
			if *used += l.amount; l.amount == reserved {
				running.tokens = append(running.tokens, used)
			} else if l.limit != inFlight && l.limit != ownLimit {
				running.taken = append(running.taken, used)
			}
		}
		switch {
		case want == accesslog.OwnerSuspended && l.amount == reserved: // the route is not looked at
		case want == accesslog.Limited && *used+l.amount > l.most:
			left[l.shown] = 0
		default:
			left[l.shown] = max(0, l.most-*used)
		}
	}
	if want == accesslog.Forwarded {
		m.running = append(m.running, running)
	}
	got := map[string]int64{}
	for i := range v.Charge.Shown() {
		if s := v.Charge.Status(i); s.LimitName() != "" {
			got[s.LimitName()] = s.Remaining
			if want == accesslog.Limited && s.Remaining < reserved && s.Label.Meter() != "" {
				got[s.LimitName()] = 0 // whether it refuses, too, is not known before its first claim
			}
		}
	}
	if !maps.Equal(got, left) {
		t.Fatalf("key %d: got %v left, want %v", i, got, left)
	}
}

// end ends a request, which has cost some tokens.
func (m *planModel) end(t *rapid.T) {
	if len(m.running) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(m.running)-1).Draw(t, "which")
	f := m.running[i]
	tokens := rapid.Int64Range(0, mostToken).Draw(t, "tokens")
	m.admit.Settle(&f.verdict.Charge, &ratelimit.Used{ratelimit.UseCost: tokens})
	for _, n := range f.flying {
		*n--
	}
	for _, n := range f.tokens {
		*n += tokens - reserved
	}
	m.running = slices.Delete(m.running, i, i+1)
}

// release gives back what a request has taken, because nothing of it has reached the upstream. What a rate gives back after its
// plan was edited depends on how full the bucket was then, so such a request is not released.
func (m *planModel) release(t *rapid.T) {
	if len(m.running) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(m.running)-1).Draw(t, "which")
	f := m.running[i]
	if f.edits != m.edits {
		t.Skip()
	}
	m.admit.GiveBack(f.verdict)
	for _, n := range slices.Concat(f.flying, f.taken) {
		*n--
	}
	for _, n := range f.tokens {
		*n -= reserved
	}
	m.running = slices.Delete(m.running, i, i+1)
}

// grant grants units of a quota that has been used.
func (m *planModel) grant(t *rapid.T) {
	var quotas []counted
	for c, n := range m.used {
		if c.planID == "" && c.limit != ownLimit && *n > 0 {
			quotas = append(quotas, c)
		}
	}
	if len(quotas) == 0 {
		t.Skip()
	}
	slices.SortFunc(quotas, func(a, b counted) int {
		return cmp.Or(cmp.Compare(a.limit, b.limit), cmp.Compare(a.subject, b.subject))
	})
	c := rapid.SampledFrom(quotas).Draw(t, "quota")
	key := ratelimit.QuotaKey{QuotaName: ratelimit.QuotaName{AccountID: m.account.ID, Limit: c.limit, Meter: ratelimit.Requests, Unit: calendar.Month}, Subject: c.subject}
	if strings.HasPrefix(c.limit, ofTokens) {
		key.Meter = "tokens"
	}
	units := rapid.Int64Range(1, 4).Draw(t, "units")
	m.stored.Grant(key, units)
	m.grants[c] += units
	if err := m.quotas.Granted(context.Background(), key); err != nil {
		t.Fatal(err)
	}
}

// edit replaces the limits of a plan.
func (m *planModel) edit(t *rapid.T) {
	m.edits++
	p := &m.plans[rapid.IntRange(0, len(m.plans)-1).Draw(t, "plan")]
	var texts []string
	for _, name := range []string{"a", "b"} {
		if per := rapid.SampledFrom([]string{"", "key", "owner"}).Draw(t, "per"); per != "" {
			texts = append(texts, fmt.Sprintf("%s %s %d/day", name, per, rapid.IntRange(1, 6).Draw(t, "rate")))
		}
	}
	if per := rapid.SampledFrom([]string{"", "key", "owner"}).Draw(t, "per"); per != "" {
		texts = append(texts, fmt.Sprintf("%s %s %d", inFlight, per, rapid.IntRange(1, 4).Draw(t, "in flight")))
	}
	// Of each subject, names differ: a key without an owner counts by itself in both.
	for _, name := range []string{ofQuota, ofTokens} {
		if per := rapid.SampledFrom([]string{"", "", "key", "owner"}).Draw(t, "per"); per != "" {
			texts = append(texts, fmt.Sprintf("%s%s %s quota:%d/month", name, per, per, rapid.IntRange(1, 12).Draw(t, "quota")))
		}
	}
	p.Limits = m.planLimits(texts...)
	for i := range p.Limits {
		if strings.HasPrefix(p.Limits[i].Name, ofTokens) {
			p.Limits[i].Meter = "tokens"
		}
	}
	m.source.PutPlan(*p)
	for c, n := range m.used {
		if c.planID != p.ID {
			continue
		}
		l := slices.IndexFunc(p.Limits, func(l plan.Limit) bool { return l.Name == c.limit && l.Per == c.per })
		switch {
		case l < 0:
			delete(m.used, c)
		case c.limit != inFlight:
			*n = min(*n, p.Limits[l].Sustained.Count)
		}
	}
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
	m.edits++
	p := &m.plans[rapid.IntRange(0, len(m.plans)-1).Draw(t, "deleted")]
	m.source.DeletePlan(p.ID)
	maps.DeleteFunc(m.used, func(c counted, _ *int64) bool { return c.planID == p.ID })
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
// refused as a naive count says, of rates, quotas with grants, tokens and requests in flight, and the header fields show its
// figures.
func TestPlansEqualModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newPlanModel(t)
		r.Repeat(map[string]func(*rapid.T){
			"request": m.request, "request again": m.request, "request once more": m.request, "end": m.end, "end again": m.end, "release": m.release, "grant": m.grant, "grant again": m.grant, "edit": m.edit, "replace": m.replace,
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
