package snapshot

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// planSlot is the place of a plan. Keys, owners and gateways point to it, so that a change of the plan stores one
// pointer, however many have it.
type planSlot struct {
	id   [16]byte
	plan atomic.Pointer[compiledPlan] // nil while there is no such plan
}

// compiledPlan is a plan as it is now. It is immutable, but for the state of its buckets.
type compiledPlan struct {
	accountID        string // "" if the record has never been readable
	name             string
	perOwner, perKey []planLimit
	unusable         bool // the record cannot be read or compiled: what it would limit is refused
}

// planLimit is one limit of a plan.
type planLimit struct {
	label   *ratelimit.Label
	meter   string
	use     ratelimit.Use // what counts on routes that have no cost of the meter; UseCost for nothing
	per     plan.Subject
	name    string
	gateway [16]byte // zeros for all of the account
	paths   *plan.Paths
	terms   *ratelimit.QuotaTerms // of a quota; else nil
	most    int64                 // requests in flight; 0 for a rate or a quota

	// What is counted of each owner, nil with per: key, and of each key that counts by itself: with per: owner, the keys
	// without one.
	owners, keys           *ratelimit.Buckets // of a rate
	ownerQuotas, keyQuotas *ratelimit.Quotas  // of a quota
	ownerSlots, keySlots   *ratelimit.SlotSet // of requests in flight
}

// sets calls yield for the sets of buckets of the limit.
func (l *planLimit) sets(yield func(*ratelimit.Buckets) bool) {
	if (l.owners == nil || yield(l.owners)) && l.keys != nil {
		yield(l.keys)
	}
}

// slotSets calls yield for the sets of slots of the limit.
func (l *planLimit) slotSets(yield func(*ratelimit.SlotSet) bool) {
	if (l.ownerSlots == nil || yield(l.ownerSlots)) && l.keySlots != nil {
		yield(l.keySlots)
	}
}

// of returns the limit of the caller. ok is false if there is no room to count it.
func (l *planLimit) of(c *Caller) (limit ratelimit.Limit, ok bool) {
	limit = ratelimit.Limit{Scope: ratelimit.PlanScope, Label: l.label}
	switch {
	case l.terms != nil:
		limit.Quota, limit.Terms = l.quota(c), l.terms
		return limit, limit.Quota != nil
	case l.most > 0:
		limit.Scope, limit.Slots, limit.Most = ratelimit.ConcurrencyScope, l.slots(c), l.most
		return limit, limit.Slots != nil
	default:
		limit.Params, limit.Bucket = l.bucket(c)
		return limit, limit.Bucket != nil
	}
}

// quota returns the quota of the caller, or nil if there is no room for it.
func (l *planLimit) quota(c *Caller) *ratelimit.Quota {
	set, subject := l.keyQuotas, c.BucketID()
	if l.ownerQuotas != nil && c.hasOwner() {
		set, subject = l.ownerQuotas, c.owner.id
	}
	var own *calendar.Own
	if c.owner != nil {
		own = c.owner.calendar.Load()
	}
	if q := set.Quota(subject, own); q != nil {
		return q
	}
	var holder ratelimit.QuotaHolder
	if c.hasOwner() {
		holder.OwnerID, holder.Owner = c.ownerID(), c.owner.externalID
	}
	if set == l.keyQuotas && c.Kind() == KeyCaller {
		holder.KeyID = id.Format(id.Key, c.UUID())
	}
	return set.Create(subject, own, holder)
}

// hasOwner reports whether the caller's owner has an identifier: that of its record or, if a token names it, a hash.
func (c *Caller) hasOwner() bool { return c.owner != nil && c.owner.id != [16]byte{} }

// bucket returns the bucket of the caller, and its parameters. The bucket is nil if there is no room for it.
func (l *planLimit) bucket(c *Caller) (*ratelimit.Params, *ratelimit.Bucket) {
	if l.owners != nil && c.hasOwner() {
		return l.owners.Bucket(c.owner.id)
	}
	return l.keys.Bucket(c.BucketID())
}

// slots returns the slots of the caller, or nil if there is no room for them.
func (l *planLimit) slots(c *Caller) *ratelimit.Slots {
	if l.ownerSlots != nil && c.hasOwner() {
		return l.ownerSlots.Slots(c.owner.id)
	}
	return l.keySlots.Slots(c.BucketID())
}

// planTable holds the slots of plans. It is safe for concurrent use. Only the holder of Follower.writing stores plans in
// slots.
type planTable struct {
	mu      sync.Mutex
	slots   map[string]*planSlot // by identifier
	byName  map[planName]*planSlot
	names   *atomic.Uint64        // grows when a name gets another plan
	retired []interface{ Drop() } // buckets and slots of limits that are not in force any more, for the next sweep
}

// slot returns the slot of a plan, which is empty if the plan has not been read yet; nil for "" and for what is not a
// plan's identifier.
func (t *planTable) slot(planID string) *planSlot {
	if planID == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.slots[planID]
	if s == nil {
		u, ok := id.Parse(id.Plan, planID)
		if !ok {
			return nil
		}
		s = &planSlot{id: u}
		t.slots[planID] = s
	}
	return s
}

// of returns the plans of the account, or of all accounts if accountID is "".
func (t *planTable) of(accountID string) []*compiledPlan {
	t.mu.Lock()
	defer t.mu.Unlock()
	var plans []*compiledPlan
	for _, s := range t.slots {
		if p := s.plan.Load(); p != nil && (accountID == "" || p.accountID == accountID) {
			plans = append(plans, p)
		}
	}
	return plans
}

// remove empties the slot of a plan and forgets it.
func (t *planTable) remove(planID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.slots[planID]; s != nil {
		was := s.plan.Swap(nil)
		t.retire(was, nil)
		t.rename(s, was, nil)
		delete(t.slots, planID)
	}
}

// removeAll does the same for the plans in force that gone selects.
func (t *planTable) removeAll(gone func(planID string, p *compiledPlan) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for planID, s := range t.slots {
		if p := s.plan.Load(); p != nil && gone(planID, p) {
			s.plan.Store(nil)
			t.retire(p, nil)
			t.rename(s, p, nil)
			delete(t.slots, planID)
		}
	}
}

// put puts a plan into its slot.
func (t *planTable) put(s *planSlot, next *compiledPlan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := s.plan.Swap(next)
	t.retire(was, next)
	t.rename(s, was, next)
}

// retire notes the buckets and slots of was, which may be nil, that next does not have, for the next sweep: dropping a million
// of them would take longer than a change may. The caller holds the lock.
func (t *planTable) retire(was, next *compiledPlan) {
	for l := range was.limits {
		kept := next.limit(l.name, l.per)
		if kept == nil || kept.keys != l.keys {
			for b := range l.sets {
				t.retired = append(t.retired, b)
			}
		}
		if kept == nil || kept.keySlots != l.keySlots {
			for s := range l.slotSets {
				t.retired = append(t.retired, s)
			}
		}
	}
}

// sweep drops unused slots, and the buckets that are no longer in force, are full again, or belong to a key that has ended.
func (t *planTable) sweep(now ratelimit.Instant, ended map[[16]byte]bool) {
	t.mu.Lock()
	retired := t.retired
	t.retired = nil
	t.mu.Unlock()
	for _, b := range retired {
		b.Drop()
	}
	for _, p := range t.of("") {
		for l := range p.limits {
			for b := range l.sets {
				b.Sweep(now, ended)
			}
			for s := range l.slotSets {
				s.Sweep()
			}
		}
	}
}

// limits calls yield for each limit of p, which may be nil.
func (p *compiledPlan) limits(yield func(*planLimit) bool) {
	if p == nil {
		return
	}
	for _, all := range [][]planLimit{p.perOwner, p.perKey} {
		for i := range all {
			if !yield(&all[i]) {
				return
			}
		}
	}
}

// limit returns the limit of p, which may be nil, with the name and subject, or nil.
func (p *compiledPlan) limit(name string, per plan.Subject) *planLimit {
	for l := range p.limits {
		if l.name == name && l.per == per {
			return l
		}
	}
	return nil
}

// unusablePlan takes the place of was, which may be nil, and keeps its limits for a later form.
func unusablePlan(was *compiledPlan) *compiledPlan {
	p := &compiledPlan{unusable: true}
	if was != nil {
		p.accountID, p.name, p.perOwner, p.perKey = was.accountID, was.name, was.perOwner, was.perKey
	}
	return p
}

// putPlan puts a plan in force. Limits with the name and the subject of a limit in force keep its buckets, converted to
// their rates. It takes as long for a million keys as for one. The caller holds writing.
func (f *Follower) putPlan(record *plan.Plan) {
	s := f.plans.slot(record.ID)
	if s == nil {
		f.cfg.Log.Error("a plan cannot be used", "plan_id", record.ID)
		return
	}
	was := s.plan.Load()
	next, err := f.compilePlan(s.id, record, was)
	if err != nil {
		f.cfg.Log.Error("a plan cannot be used, and what it limits is refused", "plan_id", record.ID, "error", err)
		next = unusablePlan(was)
	}
	f.plans.put(s, next)
	f.published.Add(1)
}

// compilePlan returns the form of a plan that follows was, which may be nil. The error says that an identifier is not
// valid.
func (f *Follower) compilePlan(u [16]byte, record *plan.Plan, was *compiledPlan) (*compiledPlan, error) {
	next := &compiledPlan{accountID: record.AccountID, name: record.Name}
	for i := range record.Limits {
		limit := &record.Limits[i]
		l, err := newPlanLimit(record.Name, limit)
		switch {
		case err != nil:
		case !limit.Quota.IsZero():
			err = f.addQuotas(&l, record, limit)
		case limit.Concurrency > 0:
			l.most = limit.Concurrency
			f.addSlots(&l, u, record.AccountID, was.limit(l.name, l.per))
		default:
			f.addBuckets(&l, u, record, f.rates.of(limit.Bucket()), was.limit(l.name, l.per))
		}
		if err != nil {
			return nil, fmt.Errorf("compile plan %s: %w", record.ID, err)
		}
		if l.per == plan.PerOwner {
			next.perOwner = append(next.perOwner, l)
		} else {
			next.perKey = append(next.perKey, l)
		}
	}
	return next, nil
}

// addBuckets gives the limit l of the plan the buckets of old, the limit in force, converted to the rate p, or full ones if
// old is nil.
func (f *Follower) addBuckets(l *planLimit, planID [16]byte, record *plan.Plan, p *ratelimit.Params, old *planLimit) {
	if old != nil && old.keys != nil && old.use == l.use {
		l.owners, l.keys = old.owners, old.keys
		now := f.cfg.Now()
		for b := range l.sets {
			b.Configure(p, now)
		}
		return
	}
	fresh := func(subject id.Kind) *ratelimit.Buckets {
		name := ratelimit.Name{Account: record.AccountID, Kind: id.Plan, Owner: planID, Of: &ratelimit.PlanLimit{Limit: l.name, Subject: subject}}
		return f.cfg.Sharing.NewBuckets(name, p, f.buckets.Of(record.AccountID))
	}
	if l.keys = fresh(id.Key); l.per == plan.PerOwner {
		l.owners = fresh(id.Owner)
	}
}

// addSlots gives the limit l of the plan of the account the slots of old, the limit in force, or unused ones if old is nil or
// of another kind.
func (f *Follower) addSlots(l *planLimit, planID [16]byte, accountID string, old *planLimit) {
	if old != nil && old.keySlots != nil {
		l.ownerSlots, l.keySlots = old.ownerSlots, old.keySlots
		return
	}
	fresh := func(subject id.Kind) *ratelimit.SlotSet {
		name := ratelimit.Name{Account: accountID, Kind: id.Plan, Owner: planID, Of: &ratelimit.PlanLimit{Limit: l.name, Subject: subject}}
		return ratelimit.NewSlotSet(f.buckets.Of(accountID), f.cfg.Slots, name)
	}
	if l.keySlots = fresh(id.Key); l.per == plan.PerOwner {
		l.ownerSlots = fresh(id.Owner)
	}
}

// addQuotas gives the limit l of the plan its quotas. What they have counted belongs to their name and not to the plan.
func (f *Follower) addQuotas(l *planLimit, record *plan.Plan, limit *plan.Limit) error {
	if f.cfg.Quotas == nil {
		return fmt.Errorf("limit %s: this node counts no quotas", limit.Name)
	}
	windows, err := record.Calendar(limit.Quota.Unit, "", 0)
	if err != nil {
		return fmt.Errorf("limit %s: %w", limit.Name, err)
	}
	l.terms = &ratelimit.QuotaTerms{
		Plan: record.Name, Count: limit.Quota.Count, Allow: limit.Overage == plan.OverageAllow, WarnAt: limit.Warnings(), Calendar: windows,
	}
	name, budget := limit.QuotaName(record.AccountID), f.buckets.Of(record.AccountID)
	if l.keyQuotas = f.cfg.Quotas.Quotas(name, id.Key, budget); l.per == plan.PerOwner {
		l.ownerQuotas = f.cfg.Quotas.Quotas(name, id.Owner, budget)
	}
	return nil
}

// newPlanLimit returns a limit of the plan with the name, without buckets.
func newPlanLimit(planName string, record *plan.Limit) (planLimit, error) {
	l := planLimit{
		label: ratelimit.NewLabel(planName, record.Name, record.MeterOrDefault()), meter: record.MeterOrDefault(), per: record.Per, name: record.Name, paths: plan.NewPaths(record.Routes),
	}
	l.use = ratelimit.UseOf(l.meter)
	ok := true
	if record.GatewayID != "" {
		l.gateway, ok = id.Parse(id.Gateway, record.GatewayID)
	}
	if !ok {
		return l, fmt.Errorf("limit %s: %q is not a gateway ID", record.Name, record.GatewayID)
	}
	return l, nil
}

// covers reports whether the limit applies to the route, or to any request for the gateway if r is nil.
func (l *planLimit) covers(g *Gateway, r *Route) bool {
	if l.gateway != [16]byte{} && l.gateway != g.UUID {
		return false
	}
	return l.paths == nil || r != nil && l.paths.Cover(r.Path)
}

// recordIDs is a set of identifiers. Its number can be read at any time, and the rest by the holder of Follower.writing.
type recordIDs struct {
	ids map[string]struct{}
	n   atomic.Int64
}

// add adds an identifier, and reports whether it is new.
func (r *recordIDs) add(recordID string) bool {
	if r.ids == nil {
		r.ids = map[string]struct{}{}
	}
	r.ids[recordID] = struct{}{}
	return r.n.Swap(int64(len(r.ids))) < int64(len(r.ids))
}

func (r *recordIDs) remove(recordID string) {
	delete(r.ids, recordID)
	r.n.Store(int64(len(r.ids)))
}

// UnusablePlans returns how many plans and owners this node cannot read at present: what the plans limit is refused, and
// the owners count as suspended.
func (f *Follower) UnusablePlans() (plans, owners int) {
	return int(f.unreadablePlans.n.Load()), int(f.unreadableOwners.n.Load())
}

// readChangedPlans puts in force the plans that changes name, and then the owners, and adds them to done.
func (f *Follower) readChangedPlans(ctx context.Context, changes []Change, done map[string]bool) error {
	for _, kind := range []ChangeKind{PlanChange, OwnerChange} {
		for _, c := range changes {
			if c.Kind != kind || done[c.ID] {
				continue
			}
			read := f.readPlan
			if kind == OwnerChange {
				read = f.readOwner
			}
			if err := read(ctx, c.ID); err != nil {
				return err
			}
			done[c.ID] = true
		}
	}
	return nil
}

// forgetPlans forgets the plans and owners of deleted accounts, whose keys are forgotten.
func (f *Follower) forgetPlans(accounts map[string]*account.Account) {
	f.plans.removeAll(func(_ string, p *compiledPlan) bool { return p.accountID != "" && accounts[p.accountID] == nil })
	for accountID := range f.owners {
		if accounts[accountID] == nil {
			f.forgetNames(accountID)
			delete(f.owners, accountID)
		}
	}
}

// readPlan puts in force what the source has under the identifier. The caller holds writing.
func (f *Follower) readPlan(ctx context.Context, planID string) error {
	p, err := f.cfg.Source.PlanByID(ctx, planID)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		f.unreadablePlans.remove(planID)
		f.plans.remove(planID)
		f.published.Add(1)
	case f.isUnreadable(err):
		f.refusePlan(planID, err)
	case err != nil:
		return fmt.Errorf("read plan %s: %w", planID, err)
	default:
		f.unreadablePlans.remove(planID)
		f.putPlan(p)
	}
	return nil
}

// refusePlan makes the node refuse what the plan limits, whose record cannot be read: it must not admit more than a
// node that can read it. The record is read again with each read of the change log.
func (f *Follower) refusePlan(planID string, err error) {
	if !f.unreadablePlans.add(planID) {
		return
	}
	f.cfg.Log.Error("a plan cannot be read, and what it limits is refused", "plan_id", planID, "error", err)
	if s := f.plans.slot(planID); s != nil {
		f.plans.put(s, unusablePlan(s.plan.Load()))
		f.published.Add(1)
	}
}

// loadPlans brings the plans up to date with the source. It leaves out the plans of other accounts.
func (f *Follower) loadPlans(ctx context.Context, accounts map[string]*account.Account) error {
	seen := map[string]bool{}
	put := func(p *plan.Plan) error {
		if accounts[p.AccountID] != nil {
			seen[p.ID] = true
			f.unreadablePlans.remove(p.ID)
			f.putPlan(p)
		}
		return nil
	}
	var err error
	if f.cfg.Shared == nil {
		err = f.cfg.Source.EachPlan(ctx, put)
	} else {
		err = f.cfg.Shared.Log.EachReadablePlan(ctx, put, func(planID string, err error) {
			seen[planID] = true
			f.refusePlan(planID, err)
		})
	}
	if err != nil {
		return fmt.Errorf("load plans: %w", err)
	}
	f.plans.removeAll(func(planID string, _ *compiledPlan) bool { return !seen[planID] })
	f.published.Add(1)
	return nil
}
