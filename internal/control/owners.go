package control

import (
	"context"
	"maps"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/snapshot"
)

// OwnerInput is the body of an owner's creation. Zero values are absent fields.
type OwnerInput struct {
	ExternalID string
	Name       string
	Plan       PlanChoice
	Metadata   map[string]string
	TimeZone   string
	AnchorDay  int
}

// OwnerPatch is the body of an owner's update.
type OwnerPatch struct {
	Name      Optional[string]
	Plan      PlanChoice
	State     Optional[string]
	Metadata  Optional[map[string]string]
	TimeZone  Optional[string]
	AnchorDay Optional[int]
}

// Owners lists the account's owners that f selects, newest first.
func (s *Service) Owners(ctx context.Context, actor *Actor, f OwnerFilter, p Page) ([]owner.Owner, error) {
	if f.State != "" && !f.State.Valid() {
		return nil, badOwnerState()
	}
	list := func(tx ReadTx) ([]owner.Owner, error) { return listOwners(ctx, tx, actor, f, p) }
	if f.Searches() {
		return search(ctx, s, actor, list)
	}
	return read(ctx, s, actor, list)
}

// listOwners lists owners with the names of their plans.
func listOwners(ctx context.Context, tx ReadTx, actor *Actor, f OwnerFilter, p Page) ([]owner.Owner, error) {
	all, err := tx.Owners(ctx, actor.Account.ID, f, p)
	if err != nil {
		return nil, err
	}
	names := namesOfPlans(tx, actor)
	for i := range all {
		if err := names.put(ctx, all[i].PlanID, &all[i].Plan); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Owner returns one owner.
func (s *Service) Owner(ctx context.Context, actor *Actor, ownerID string) (*owner.Owner, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*owner.Owner, error) { return ownerWithPlan(ctx, tx, actor, ownerID) })
}

// ownerWithPlan returns an owner with the name of its plan.
func ownerWithPlan(ctx context.Context, tx ReadTx, actor *Actor, ownerID string) (*owner.Owner, error) {
	o, err := tx.Owner(ctx, actor.Account.ID, ownerID)
	if err != nil {
		return nil, err
	}
	return o, namesOfPlans(tx, actor).put(ctx, o.PlanID, &o.Plan)
}

func badOwnerState() error { return fault.Invalid("state", "must be active or suspended") }

// CreateOwner creates an active owner. An external ID that is in use is fault.Conflict.
func (s *Service) CreateOwner(ctx context.Context, actor *Actor, in OwnerInput) (*owner.Owner, error) {
	given := owner.Owner{
		ExternalID: in.ExternalID, Name: in.Name, State: owner.Active, Metadata: maps.Clone(in.Metadata), TimeZone: in.TimeZone, AnchorDay: in.AnchorDay,
	}
	invalid := fault.Join(given.Validate(), checkCalendar(&given))
	if onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, invalid, func(tx ReadTx) error { return in.Plan.check(ctx, tx, actor, "") })
	}
	return inTx(ctx, s, actor, func(w *work) (*owner.Owner, error) {
		p, bad := in.Plan.find(ctx, w, actor, "")
		if err := fault.Join(invalid, bad); err != nil {
			return nil, err
		}
		o := given
		in.Plan.put(p, &o.PlanID, &o.Plan)
		if err := w.roomForOwner(ctx); err != nil {
			return nil, err
		}
		return &o, w.insertOwner(ctx, &o)
	})
}

// checkCalendar checks the fields of an owner that take precedence over those of its plan.
func checkCalendar(o *owner.Owner) error {
	var badZone, badAnchor error
	if o.TimeZone != "" {
		badZone = plan.CheckZone("time_zone", o.TimeZone)
	}
	if o.AnchorDay != 0 {
		badAnchor = plan.CheckAnchor("anchor_day", o.AnchorDay)
	}
	return fault.Join(badZone, badAnchor)
}

// insertOwner stores o with a new identifier and its audit record. roomForOwner must have been called.
func (w *work) insertOwner(ctx context.Context, o *owner.Owner) error {
	if err := w.storeNewOwner(ctx, o); err != nil {
		return err
	}
	return w.changed(ctx, snapshot.OwnerChange, o.ID)
}

// storeNewOwner is insertOwner without the entry of the change log.
func (w *work) storeNewOwner(ctx context.Context, o *owner.Owner) error {
	o.ID, o.AccountID, o.CreatedAt, o.Version = id.NewAt(id.Owner, w.now), w.actor.Account.ID, w.now, 1
	if err := w.InsertOwner(ctx, o); err != nil {
		return err
	}
	return w.audit(ctx, audit.OwnerCreate, o.ID, "", ownerDiff(nil, o))
}

// ownerNamed returns the owner with the external ID. If there is none, it returns a new one with the default plan of the
// account and without an identifier, which addOwner stores: everything that a transaction reads comes before what it
// writes.
func (w *work) ownerNamed(ctx context.Context, externalID string) (*owner.Owner, error) {
	o, err := w.OwnerByExternalID(ctx, w.actor.Account.ID, externalID)
	if fault.CodeOf(err) != fault.NotFound {
		return o, err
	}
	a, err := w.Account(ctx, w.actor.Account.ID)
	if err != nil {
		return nil, err
	}
	return &owner.Owner{ExternalID: externalID, PlanID: a.DefaultPlanID, State: owner.Active}, w.roomForOwner(ctx)
}

// addOwner stores an owner that ownerNamed made. It does nothing for one that exists.
func (w *work) addOwner(ctx context.Context, o *owner.Owner) error {
	if o.ID != "" {
		return nil
	}
	return w.insertOwner(ctx, o)
}

// UpdateOwner changes an owner. When it returns, gateways refuse the keys of an owner that it suspended; if it resumed
// the owner, they accept them.
func (s *Service) UpdateOwner(ctx context.Context, actor *Actor, ownerID string, p OwnerPatch, m Match) (*owner.Owner, error) {
	invalid := p.check()
	if onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, invalid, func(tx ReadTx) error { return p.Plan.check(ctx, tx, actor, "") })
	}
	if p.State.Value == string(owner.Suspended) {
		ctx = Urgent(ctx)
	}
	return inTx(ctx, s, actor, func(w *work) (*owner.Owner, error) {
		chosen, bad := p.Plan.find(ctx, w, actor, "")
		if err := fault.Join(invalid, bad); err != nil {
			return nil, err
		}
		before, err := ownerWithPlan(ctx, w, actor, ownerID)
		if err != nil {
			return nil, err
		}
		if err := require(m, before.Version); err != nil {
			return nil, err
		}
		o := *before
		p.apply(&o)
		p.Plan.put(chosen, &o.PlanID, &o.Plan)
		return &o, s.storeOwner(ctx, w, before, &o)
	})
}

// check validates p as far as possible without the record.
func (p *OwnerPatch) check() error {
	// These rules hold for every record.
	sample := owner.Owner{ExternalID: "x", State: owner.Active}
	p.apply(&sample)
	var badState, badAnchor error
	if p.State.Null {
		badState = fault.Invalid("state", "cannot be removed")
	}
	if p.AnchorDay.Present && !p.AnchorDay.Null {
		badAnchor = plan.CheckAnchor("anchor_day", p.AnchorDay.Value)
		sample.AnchorDay = 0
	}
	return fault.Join(sample.Validate(), badState, checkCalendar(&sample), badAnchor)
}

func (p *OwnerPatch) apply(o *owner.Owner) {
	if p.Name.Present {
		o.Name = p.Name.Value
	}
	if p.State.Present && !p.State.Null {
		o.State = owner.State(p.State.Value)
	}
	if p.Metadata.Present {
		o.Metadata = maps.Clone(p.Metadata.Value)
	}
	if p.TimeZone.Present {
		o.TimeZone = p.TimeZone.Value
	}
	if p.AnchorDay.Present {
		o.AnchorDay = p.AnchorDay.Value
	}
}

// storeOwner stores o with a new version, its audit records and its event, unless it equals before.
func (s *Service) storeOwner(ctx context.Context, w *work, before, o *owner.Owner) error {
	diff := ownerDiff(before, o)
	if len(diff) == 0 {
		return nil
	}
	state, changesState := diff["state"]
	// A suspension takes rights away, so nothing refuses it. Each follows a resumption.
	if changesState && o.State == owner.Active {
		if err := s.roomForEvent(w.actor); err != nil {
			return err
		}
	}
	if len(o.TimeZone) > len(before.TimeZone) {
		if err := w.mayGrow(ctx); err != nil {
			return err
		}
	}
	o.Version = before.Version + 1
	if err := w.UpdateOwner(ctx, o); err != nil {
		return err
	}
	if changesState {
		delete(diff, "state")
		if err := w.ownerStateChanged(ctx, o, state); err != nil {
			return err
		}
	}
	if len(diff) > 0 {
		if err := w.audit(ctx, audit.OwnerUpdate, o.ID, "", diff); err != nil {
			return err
		}
	}
	return w.changed(ctx, snapshot.OwnerChange, o.ID)
}

// ownerStateChanged writes the audit record of the owner's new state, and raises its event.
func (w *work) ownerStateChanged(ctx context.Context, o *owner.Owner, values [2]any) error {
	action, raised := audit.OwnerResume, event.OwnerResumed
	if o.State == owner.Suspended {
		action, raised = audit.OwnerSuspend, event.OwnerSuspended
	}
	if err := w.audit(ctx, action, o.ID, "", audit.Diff{"state": values}); err != nil {
		return err
	}
	return w.raise(ctx, raised, o.EventData())
}

// DeleteOwner deletes an owner and returns it as it was. If a key of it is active, the error is fault.Conflict. Its other
// keys keep its external ID.
func (s *Service) DeleteOwner(ctx context.Context, actor *Actor, ownerID string, m Match) (*owner.Owner, error) {
	return inTx(ctx, s, actor, func(w *work) (*owner.Owner, error) {
		o, err := ownerWithPlan(ctx, w, actor, ownerID)
		if err != nil {
			return nil, err
		}
		if err := require(m, o.Version); err != nil {
			return nil, err
		}
		active, err := w.OwnerHasActiveKeys(ctx, actor.Account.ID, ownerID, w.now)
		if err != nil {
			return nil, err
		}
		if active {
			return nil, fault.New(fault.Conflict, "the owner has active keys: revoke them, or give them another owner first")
		}
		if err := w.DeleteOwner(ctx, actor.Account.ID, ownerID); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.OwnerDelete, o.ID, "", ownerDiff(o, nil)); err != nil {
			return nil, err
		}
		return o, w.changed(ctx, snapshot.OwnerChange, o.ID)
	})
}

func ownerDiff(before, after *owner.Owner) audit.Diff {
	return differ(ownerFields(before), ownerFields(after))
}

func ownerFields(o *owner.Owner) fields {
	if o == nil {
		return nil
	}
	f := fields{
		"external_id": o.ExternalID, "name": orNil(o.Name), "plan_id": orNil(o.PlanID), "state": string(o.State), "metadata": nil,
		"time_zone": orNil(o.TimeZone), "anchor_day": numberOrNil(int64(o.AnchorDay)),
	}
	if len(o.Metadata) > 0 {
		f["metadata"] = o.Metadata
	}
	return f
}
