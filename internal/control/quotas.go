package control

import (
	"cmp"
	"context"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Quotas is the engine of quotas, as far as the management API needs it.
type Quotas interface {
	// Settle writes to the store what this process, and the others that live, have used of the quotas, within about half a
	// second.
	Settle(ctx context.Context, keys []ratelimit.QuotaKey) error
	// Granted makes this process see units that were granted. After an error it sees them when the store responds again.
	Granted(ctx context.Context, key ratelimit.QuotaKey) error
}

// mostQuotas is how many quotas of one subject are shown. Only one without a plan, in an account with many default plans
// of gateways, has more.
const mostQuotas = 1000

// QuotaUsage is what was used of a quota in the window that has the present time.
type QuotaUsage struct {
	Limit                  *plan.Limit
	Plan                   string // its name
	Grants                 int64  // units that were granted in addition to the count
	Used                   int64
	Reserved               int64 // units that nodes hold ahead of their use, or lost in a crash
	WindowStart, WindowEnd time.Time
}

// Remaining returns how many units are neither used nor reserved.
func (u *QuotaUsage) Remaining() int64 {
	return max(0, min(u.Limit.Quota.Count+u.Grants, ratelimit.MaxUnits)-u.Used-u.Reserved)
}

// OwnerUsage returns what was used of the quotas of an owner.
func (s *Service) OwnerUsage(ctx context.Context, actor *Actor, ownerID string) ([]QuotaUsage, error) {
	return s.usage(ctx, actor, ownerSubject(ownerID).alone)
}

// KeyUsage returns what was used of the quotas of a key. The keys of a rotation share them.
func (s *Service) KeyUsage(ctx context.Context, actor *Actor, keyID string) ([]QuotaUsage, error) {
	return s.usage(ctx, actor, keySubject(keyID).alone)
}

// quotaSubject is whom quotas count.
type quotaSubject struct {
	id    string       // of the owner, or of the key's bucket
	owner *owner.Owner // nil for a key without one
	key   *apikey.Key  // nil for an owner
	// gatewayID is the only gateway that counts; "" for all where the key may be used.
	gatewayID string
}

// findSubject finds a subject by the identifier of its record.
type findSubject func(ctx context.Context, tx ReadTx, actor *Actor) (*quotaSubject, error)

// alone returns the subject in a list.
func (f findSubject) alone(ctx context.Context, tx ReadTx, actor *Actor) ([]quotaSubject, error) {
	q, err := f(ctx, tx, actor)
	if err != nil {
		return nil, err
	}
	return []quotaSubject{*q}, nil
}

func ownerSubject(ownerID string) findSubject {
	return func(ctx context.Context, tx ReadTx, actor *Actor) (*quotaSubject, error) {
		o, err := tx.Owner(ctx, actor.Account.ID, ownerID)
		if err != nil {
			return nil, err
		}
		return &quotaSubject{id: o.ID, owner: o}, nil
	}
}

func keySubject(keyID string) findSubject {
	return func(ctx context.Context, tx ReadTx, actor *Actor) (*quotaSubject, error) {
		k, err := tx.Key(ctx, actor.Account.ID, keyID)
		if err != nil {
			return nil, err
		}
		q := &quotaSubject{id: k.BucketID, key: k}
		if k.OwnerID != "" {
			if q.owner, err = tx.Owner(ctx, actor.Account.ID, k.OwnerID); fault.CodeOf(err) == fault.NotFound { // deleted since the key has ended
				q.owner, err = nil, nil
			}
		}
		return q, err
	}
}

// what names the subject in messages.
func (q *quotaSubject) what() string {
	if q.key != nil {
		return "key"
	}
	return "owner"
}

// planID returns the plan that applies on every gateway; "" if the default plan of each gateway does.
func (q *quotaSubject) planID() string {
	planID := ""
	if q.owner != nil {
		planID = q.owner.PlanID
	}
	if q.key != nil {
		planID = cmp.Or(q.key.PlanID, planID)
	}
	return planID
}

// limits calls yield for each limit of plans that counts the subject, until it returns false (plans.md, section 3: which
// limits apply). Its time grows with the number of gateways, if default plans of gateways apply.
func (q *quotaSubject) limits(ctx context.Context, from *appliedPlans, yield func(*plan.Plan, *plan.Limit) bool) error {
	if q.key != nil && q.key.Level != apikey.GatewayLevel {
		return nil
	}
	planID, onlyGateway := q.planID(), q.gatewayID
	ofPlan, ofDefaults := plan.PerOwner, map[plan.Subject]bool{plan.PerOwner: planID == ""}
	if q.key != nil {
		onlyGateway = cmp.Or(onlyGateway, q.key.GatewayID)
		ofPlan, ofDefaults = plan.PerKey, map[plan.Subject]bool{plan.PerKey: planID == "", plan.PerOwner: q.owner == nil}
	}
	more := true
	if planID != "" {
		p, err := from.plan(ctx, planID)
		if fault.CodeOf(err) == fault.NotFound { // deleted since the key has ended
			p, err = &plan.Plan{}, nil
		}
		if err != nil {
			return err
		}
		for i := range p.Limits {
			l := &p.Limits[i]
			if more = more && (l.Per != ofPlan || onlyGateway != "" && l.GatewayID != "" && l.GatewayID != onlyGateway || yield(p, l)); !more {
				return nil
			}
		}
	}
	if !ofDefaults[plan.PerKey] && !ofDefaults[plan.PerOwner] {
		return nil
	}
	return from.eachDefault(ctx, onlyGateway, func(gatewayID string, p *plan.Plan) bool {
		for i := range p.Limits {
			l := &p.Limits[i]
			if ofDefaults[l.Per] && (l.GatewayID == "" || l.GatewayID == gatewayID) && !yield(p, l) {
				return false
			}
		}
		return true
	})
}

func (q *quotaSubject) accountID() string {
	if q.key != nil {
		return q.key.AccountID
	}
	return q.owner.AccountID
}

// appliedPlans reads the plans that apply to the subjects of one call, each once.
type appliedPlans struct {
	tx        ReadTx
	accountID string
	plans     map[string]*plan.Plan // by their identifiers
	defaults  []gatewayPlan         // of gateways that have one, in their order, as far as they were read
	after     string                // the last gateway that was read
	complete  bool                  // all gateways were
}

type gatewayPlan struct{ gatewayID, planID string }

func plansOf(tx ReadTx, actor *Actor) *appliedPlans {
	return &appliedPlans{tx: tx, accountID: actor.Account.ID, plans: map[string]*plan.Plan{}}
}

func (a *appliedPlans) plan(ctx context.Context, planID string) (p *plan.Plan, err error) {
	if p = a.plans[planID]; p == nil {
		if p, err = a.tx.Plan(ctx, a.accountID, planID); err == nil {
			a.plans[planID] = p
		}
	}
	return p, err
}

// eachDefault calls yield for the default plan of each gateway that has one, or of one gateway, until it returns false.
func (a *appliedPlans) eachDefault(ctx context.Context, onlyGateway string, yield func(gatewayID string, p *plan.Plan) bool) error {
	if onlyGateway != "" {
		g, err := a.tx.Gateway(ctx, a.accountID, onlyGateway)
		if fault.CodeOf(err) == fault.NotFound { // it was deleted
			return nil
		}
		if err == nil && g.DefaultPlanID != "" {
			_, err = a.yield(ctx, gatewayPlan{g.ID, g.DefaultPlanID}, yield)
		}
		return err
	}
	for i := 0; ; i++ {
		for i == len(a.defaults) && !a.complete {
			if err := a.readDefaults(ctx); err != nil {
				return err
			}
		}
		if i == len(a.defaults) {
			return nil
		}
		if more, err := a.yield(ctx, a.defaults[i], yield); err != nil || !more {
			return err
		}
	}
}

func (a *appliedPlans) yield(ctx context.Context, of gatewayPlan, yield func(gatewayID string, p *plan.Plan) bool) (more bool, err error) {
	p, err := a.plan(ctx, of.planID)
	if err != nil {
		return false, err
	}
	return yield(of.gatewayID, p), nil
}

// readDefaults reads the next gateways.
func (a *appliedPlans) readDefaults(ctx context.Context) error {
	gateways, err := a.tx.Gateways(ctx, a.accountID, Page{Limit: plansAtOnce, After: a.after})
	if err != nil {
		return err
	}
	for i := range gateways {
		if g := &gateways[i]; g.DefaultPlanID != "" {
			a.defaults = append(a.defaults, gatewayPlan{g.ID, g.DefaultPlanID})
		}
	}
	if a.complete = len(gateways) < plansAtOnce; !a.complete {
		a.after = gateways[len(gateways)-1].ID
	}
	return nil
}

// appliedQuota is a quota that counts a subject.
type appliedQuota struct {
	key      ratelimit.QuotaKey
	plan     *plan.Plan
	limit    *plan.Limit
	calendar calendar.Calendar
}

// quotas returns the quotas that count the subject, each name once, and at most so many.
func (q *quotaSubject) quotas(ctx context.Context, from *appliedPlans, most int) (list []appliedQuota, err error) {
	seen := map[ratelimit.QuotaKey]bool{}
	bad := q.limits(ctx, from, func(p *plan.Plan, l *plan.Limit) bool {
		key := ratelimit.QuotaKey{QuotaName: l.QuotaName(q.accountID()), Subject: q.id}
		if !l.IsQuota() || seen[key] {
			return true
		}
		seen[key] = true
		one := appliedQuota{key: key, plan: p, limit: l}
		if one.calendar, err = q.calendar(p, l.Quota.Unit); err != nil {
			return false
		}
		list = append(list, one)
		return len(list) < most
	})
	return list, cmp.Or(bad, err)
}

// calendar returns how a plan divides time for the subject.
func (q *quotaSubject) calendar(p *plan.Plan, u calendar.Unit) (calendar.Calendar, error) {
	if q.owner == nil {
		return p.Calendar(u, "", 0)
	}
	return p.Calendar(u, q.owner.TimeZone, q.owner.AnchorDay)
}

// usage returns what was used of the quotas of subjects, in the order of the subjects, their plans and their limits.
func (s *Service) usage(ctx context.Context, actor *Actor, find func(context.Context, ReadTx, *Actor) ([]quotaSubject, error)) ([]QuotaUsage, error) {
	quotas, err := search(ctx, s, actor, func(tx ReadTx) ([]appliedQuota, error) { return quotasOf(ctx, tx, actor, find) })
	if err != nil {
		return nil, err
	}
	return s.usageOf(ctx, actor, quotas)
}

// quotasOf returns the quotas that count the subjects that find finds.
func quotasOf(ctx context.Context, tx ReadTx, actor *Actor, find func(context.Context, ReadTx, *Actor) ([]quotaSubject, error)) (all []appliedQuota, err error) {
	subjects, err := find(ctx, tx, actor)
	if err != nil {
		return nil, err
	}
	from := plansOf(tx, actor)
	for i := range subjects {
		some, err := subjects[i].quotas(ctx, from, mostQuotas)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// usageOf returns what was used of quotas.
func (s *Service) usageOf(ctx context.Context, actor *Actor, quotas []appliedQuota) ([]QuotaUsage, error) {
	if len(quotas) == 0 {
		return nil, nil
	}
	if s.cfg.Quotas != nil {
		s.sync(ctx, settling{s.cfg.Quotas, quotas})
	}
	now := s.now()
	windows, err := read(ctx, s, actor, func(tx ReadTx) (map[ratelimit.QuotaKey][]*ratelimit.QuotaWindow, error) {
		windows, subject := map[ratelimit.QuotaKey][]*ratelimit.QuotaWindow{}, ""
		for i := range quotas {
			if quotas[i].key.Subject == subject { // the quotas of a subject are neighbours
				continue
			}
			subject = quotas[i].key.Subject
			stored, err := tx.QuotaWindows(ctx, actor.Account.ID, subject)
			if err != nil {
				return nil, err
			}
			for i := range stored {
				key := stored[i].QuotaKey
				windows[key] = append(windows[key], &stored[i].QuotaWindow)
			}
		}
		return windows, nil
	})
	if err != nil {
		return nil, err
	}
	list := make([]QuotaUsage, len(quotas))
	for i := range quotas {
		list[i] = quotas[i].usage(windows[quotas[i].key], now)
	}
	return list, nil
}

// settling writes to the store what was used of quotas.
type settling struct {
	engine Quotas
	quotas []appliedQuota
}

// Sync implements Syncer.
func (t settling) Sync(ctx context.Context) error {
	keys := make([]ratelimit.QuotaKey, len(t.quotas))
	for i := range t.quotas {
		keys[i] = t.quotas[i].key
	}
	return t.engine.Settle(ctx, keys)
}

// usage returns what was used in the window that has the time now among those that are stored, or else in the one that the first
// use will begin.
func (a *appliedQuota) usage(stored []*ratelimit.QuotaWindow, now time.Time) QuotaUsage {
	u := QuotaUsage{Limit: a.limit, Plan: a.plan.Name}
	for _, w := range stored {
		if !w.Start.After(now) && w.End.After(now) {
			u.Grants, u.Used, u.Reserved, u.WindowStart, u.WindowEnd = w.Grants, w.Used(), w.All.Reserved, w.Start, w.End
			return u
		}
	}
	u.WindowStart, u.WindowEnd = a.calendar.Between(now, func(yield func(start, end time.Time) bool) {
		for _, w := range stored {
			if !yield(w.Start, w.End) {
				return
			}
		}
	})
	return u
}
