package control

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/snapshot"
)

// PlanInput is the body of a plan's creation. Zero values are absent fields.
type PlanInput struct {
	Name, Title string
	Limits      []plan.LimitInput
	TimeZone    string
	AnchorDay   int
}

// PlanPatch is the body of a plan's update. Limits are replaced as a whole.
type PlanPatch struct {
	Name      Optional[string]
	Title     Optional[string]
	Limits    Optional[[]plan.LimitInput]
	TimeZone  Optional[string]
	AnchorDay Optional[int]
}

// ChangedPlan is a plan that was created or changed.
type ChangedPlan struct {
	plan.Plan
	Warnings []string // routes of limits that match nothing
}

// Plans lists the account's plans that f selects, newest first.
func (s *Service) Plans(ctx context.Context, actor *Actor, f PlanFilter, p Page) ([]plan.Plan, error) {
	list := func(tx ReadTx) ([]plan.Plan, error) { return tx.Plans(ctx, actor.Account.ID, f, p) }
	if f.Query != "" {
		return search(ctx, s, actor, list)
	}
	return read(ctx, s, actor, list)
}

// Plan returns one plan.
func (s *Service) Plan(ctx context.Context, actor *Actor, planID string) (*plan.Plan, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*plan.Plan, error) { return tx.Plan(ctx, actor.Account.ID, planID) })
}

// KeysOfPlan lists the keys whose own plan it is, newest first.
func (s *Service) KeysOfPlan(ctx context.Context, actor *Actor, planID string, p Page) ([]apikey.Key, error) {
	return ofPlan(ctx, s, actor, planID, func(tx ReadTx) ([]apikey.Key, error) {
		return listKeys(ctx, tx, actor, KeyFilter{PlanID: planID, Now: s.now()}, p)
	})
}

// OwnersOfPlan lists the owners that have the plan, newest first.
func (s *Service) OwnersOfPlan(ctx context.Context, actor *Actor, planID string, p Page) ([]owner.Owner, error) {
	return ofPlan(ctx, s, actor, planID, func(tx ReadTx) ([]owner.Owner, error) {
		return listOwners(ctx, tx, actor, OwnerFilter{PlanID: planID}, p)
	})
}

// ofPlan runs list if the account has the plan.
func ofPlan[T any](ctx context.Context, s *Service, actor *Actor, planID string, list func(tx ReadTx) ([]T, error)) ([]T, error) {
	return read(ctx, s, actor, func(tx ReadTx) ([]T, error) {
		if _, err := tx.Plan(ctx, actor.Account.ID, planID); err != nil {
			return nil, err
		}
		return list(tx)
	})
}

// CreatePlan creates a plan. A name that is in use is fault.Conflict.
func (s *Service) CreatePlan(ctx context.Context, actor *Actor, in PlanInput) (*ChangedPlan, error) {
	made, invalid := in.plan()
	if onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, invalid, func(tx ReadTx) error { return checkGatewaysOfLimits(ctx, tx, actor, made.Limits) })
	}
	return inTx(ctx, s, actor, func(w *work) (*ChangedPlan, error) {
		p := made
		if err := fault.Join(invalid, checkGatewaysOfLimits(ctx, w, actor, p.Limits)); err != nil {
			return nil, err
		}
		if err := w.roomForPlan(ctx); err != nil {
			return nil, err
		}
		p.ID, p.AccountID, p.CreatedAt, p.Version = id.NewAt(id.Plan, w.now), actor.Account.ID, w.now, 1
		if err := w.InsertPlan(ctx, &p); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.PlanCreate, p.ID, "", planDiff(nil, &p)); err != nil {
			return nil, err
		}
		return s.changedPlan(&p), w.changed(ctx, snapshot.PlanChange, p.ID)
	})
}

// plan validates in and returns the plan that it describes.
func (in *PlanInput) plan() (plan.Plan, error) {
	limits, badLimits := plan.ParseLimits(in.Limits)
	p := plan.Plan{
		Name: in.Name, Title: in.Title, Limits: limits, TimeZone: cmp.Or(in.TimeZone, plan.DefaultZone), AnchorDay: cmp.Or(in.AnchorDay, plan.DefaultAnchor),
	}
	return p, fault.Join(p.Validate(), badLimits)
}

// changedPlan returns the result of a change of p.
func (s *Service) changedPlan(p *plan.Plan) *ChangedPlan {
	made := &ChangedPlan{Plan: *p}
	if s.cfg.Sources.Routes == nil {
		return made
	}
	for _, l := range p.Limits {
		if len(l.Routes) == 0 {
			continue
		}
		for _, path := range s.cfg.Sources.Routes.Unmatched(p.AccountID, l.GatewayID, l.Routes) {
			made.Warnings = append(made.Warnings, fmt.Sprintf("the gateway %s has no route %s, so the limit %s does not apply to it at present", l.GatewayID, path, l.Name))
		}
	}
	return made
}

// checkGatewaysOfLimits checks that the account has the gateways of limits.
func checkGatewaysOfLimits(ctx context.Context, tx GatewayReader, actor *Actor, limits []plan.Limit) error {
	var problems []error
	for i := range limits {
		if limits[i].GatewayID == "" {
			continue
		}
		_, err := tx.Gateway(ctx, actor.Account.ID, limits[i].GatewayID)
		problems = append(problems, absent(err, fmt.Sprintf("limits[%d].gateway_id", i), "there is no such gateway: create it first, or leave gateway_id out for all gateways"))
	}
	return fault.Join(problems...)
}

// UpdatePlan changes a plan. When it returns, its limits are in force for all keys and owners that have it. A name that
// is in use is fault.Conflict.
func (s *Service) UpdatePlan(ctx context.Context, actor *Actor, planID string, p PlanPatch, m Match) (*ChangedPlan, error) {
	limits, invalid := p.check()
	if onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, invalid, func(tx ReadTx) error { return checkGatewaysOfLimits(ctx, tx, actor, limits) })
	}
	return inTx(ctx, s, actor, func(w *work) (*ChangedPlan, error) {
		before, after, err := p.of(ctx, w, actor, planID, limits, invalid, m)
		if err != nil {
			return nil, err
		}
		diff := planDiff(before, after)
		if len(diff) == 0 {
			return s.changedPlan(after), nil
		}
		if err := w.mayGrow(ctx); err != nil {
			return nil, err
		}
		after.Version = before.Version + 1
		if err := w.UpdatePlan(ctx, after); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.PlanUpdate, after.ID, "", diff); err != nil {
			return nil, err
		}
		return s.changedPlan(after), w.changed(ctx, snapshot.PlanChange, after.ID)
	})
}

// of returns a plan as it is and as p makes it. limits and invalid are what check returned.
func (p *PlanPatch) of(ctx context.Context, tx interface {
	GatewayReader
	PlanReader
}, actor *Actor, planID string, limits []plan.Limit, invalid error, m Match) (before, after *plan.Plan, err error) {
	if err := fault.Join(invalid, checkGatewaysOfLimits(ctx, tx, actor, limits)); err != nil {
		return nil, nil, err
	}
	if before, err = tx.Plan(ctx, actor.Account.ID, planID); err != nil {
		return nil, nil, err
	}
	if err := require(m, before.Version); err != nil {
		return nil, nil, err
	}
	changed := *before
	p.apply(&changed, limits)
	return before, &changed, nil
}

// check validates p, and returns its limits.
func (p *PlanPatch) check() ([]plan.Limit, error) {
	var badName error
	if p.Name.Null {
		badName = fault.Invalid("name", "cannot be removed")
	}
	limits, badLimits := plan.ParseLimits(p.Limits.Value)
	// These rules hold for every record.
	sample := plan.Plan{Name: "x", TimeZone: plan.DefaultZone, AnchorDay: plan.DefaultAnchor}
	p.apply(&sample, limits)
	return limits, fault.Join(badName, sample.Validate(), badLimits)
}

func (p *PlanPatch) apply(to *plan.Plan, limits []plan.Limit) {
	if p.Name.Present && !p.Name.Null {
		to.Name = p.Name.Value
	}
	if p.Title.Present {
		to.Title = p.Title.Value
	}
	if p.Limits.Present {
		to.Limits = limits
	}
	if p.TimeZone.Present {
		if to.TimeZone = p.TimeZone.Value; p.TimeZone.Null {
			to.TimeZone = plan.DefaultZone
		}
	}
	if p.AnchorDay.Present {
		if to.AnchorDay = p.AnchorDay.Value; p.AnchorDay.Null {
			to.AnchorDay = plan.DefaultAnchor
		}
	}
}

// mostCounted is how far DeletePlan counts who has a plan.
const mostCounted = 10_000

// DeletePlan deletes a plan and returns it as it was. If a key that is not revoked or an owner has it, or if it is the
// default of a gateway or of the account, the error is fault.Conflict.
func (s *Service) DeletePlan(ctx context.Context, actor *Actor, planID string, m Match) (*plan.Plan, error) {
	return inTx(ctx, s, actor, func(w *work) (*plan.Plan, error) {
		p, err := w.Plan(ctx, actor.Account.ID, planID)
		if err != nil {
			return nil, err
		}
		if err := require(m, p.Version); err != nil {
			return nil, err
		}
		use, err := w.PlanUse(ctx, actor.Account.ID, planID, mostCounted)
		if err != nil {
			return nil, err
		}
		if use != (PlanUse{}) {
			return nil, fault.New(fault.Conflict, "the plan is in use: %s: give them another plan first", use.text())
		}
		if err := w.DeletePlan(ctx, actor.Account.ID, planID); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.PlanDelete, p.ID, "", planDiff(p, nil)); err != nil {
			return nil, err
		}
		return p, w.changed(ctx, snapshot.PlanChange, p.ID)
	})
}

// text says who has a plan.
func (u *PlanUse) text() string {
	var parts []string
	for _, of := range []struct {
		n         int
		one, many string
	}{
		{u.Keys, "key that is not revoked has it", "keys that are not revoked have it"},
		{u.Owners, "owner has it", "owners have it"},
		{u.Gateways, "gateway has it as its default", "gateways have it as their default"},
	} {
		switch {
		case of.n >= mostCounted:
			parts = append(parts, "10,000 or more "+of.many)
		case of.n == 1:
			parts = append(parts, "1 "+of.one)
		case of.n > 0:
			parts = append(parts, fmt.Sprintf("%d %s", of.n, of.many))
		}
	}
	if u.Account {
		parts = append(parts, "it is the default of the account")
	}
	return strings.Join(parts, ", ")
}

func planDiff(before, after *plan.Plan) audit.Diff {
	return differ(planFields(before), planFields(after))
}

func planFields(p *plan.Plan) fields {
	if p == nil {
		return nil
	}
	f := fields{"name": p.Name, "title": orNil(p.Title), "limits": nil, "time_zone": p.TimeZone, "anchor_day": p.AnchorDay}
	if len(p.Limits) > 0 {
		f["limits"] = p.Limits
	}
	return f
}
