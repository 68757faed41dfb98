package control

import (
	"cmp"
	"context"
	"strings"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/label"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/ratelimit"
)

// GrantInput is the body of a grant: units that are added to the present window of a quota.
type GrantInput struct {
	Limit  string // name of the limit
	Units  int64
	Reason string // "" for none
}

// OwnerGrants lists the grants to an owner that the store still has, newest first.
func (s *Service) OwnerGrants(ctx context.Context, actor *Actor, ownerID string, p Page) ([]plan.Grant, error) {
	return s.grants(ctx, actor, ownerSubject(ownerID), p)
}

// KeyGrants lists the grants to a key, and to the other keys of its rotation, that the store still has, newest first.
func (s *Service) KeyGrants(ctx context.Context, actor *Actor, keyID string, p Page) ([]plan.Grant, error) {
	return s.grants(ctx, actor, keySubject(keyID), p)
}

func (s *Service) grants(ctx context.Context, actor *Actor, find findSubject, p Page) ([]plan.Grant, error) {
	return read(ctx, s, actor, func(tx ReadTx) ([]plan.Grant, error) {
		q, err := find(ctx, tx, actor)
		if err != nil {
			return nil, err
		}
		return tx.QuotaGrants(ctx, actor.Account.ID, q.id, p)
	})
}

// GrantToOwner adds units to the present window of a quota of an owner. If no such quota counts the owner, the error is
// fault.ValidationFailed with the field limit.
func (s *Service) GrantToOwner(ctx context.Context, actor *Actor, ownerID string, in GrantInput) (*plan.Grant, error) {
	return s.grant(ctx, actor, ownerSubject(ownerID), in)
}

// GrantToKey does for a key, and the other keys of its rotation, what GrantToOwner does for an owner.
func (s *Service) GrantToKey(ctx context.Context, actor *Actor, keyID string, in GrantInput) (*plan.Grant, error) {
	return s.grant(ctx, actor, keySubject(keyID), in)
}

func (s *Service) grant(ctx context.Context, actor *Actor, find findSubject, in GrantInput) (*plan.Grant, error) {
	invalid := in.check()
	// Finding the quota may take long, so it comes before the transaction.
	to, bad := search(ctx, s, actor, func(tx ReadTx) (*appliedQuota, error) {
		q, err := find(ctx, tx, actor)
		if err != nil {
			return nil, err
		}
		return q.quotaNamed(ctx, plansOf(tx, actor), in.Limit)
	})
	switch missing := fault.CodeOf(bad) == fault.NotFound; {
	case missing && onlyChecks(ctx):
		return nil, cmp.Or(invalid, errOnlyChecked)
	case missing && invalid != nil: // as of other calls, before the 404
		return nil, invalid
	case invalid != nil || bad != nil:
		return nil, fault.Join(invalid, bad)
	}
	made, err := inTx(ctx, s, actor, func(w *work) (*plan.Grant, error) {
		q, err := find(ctx, w, actor)
		if err != nil {
			return nil, err
		}
		g := &plan.Grant{
			ID: id.NewAt(id.Grant, w.now), AccountID: actor.Account.ID, Subject: q.id, Limit: in.Limit, Plan: to.plan.Name,
			Meter: to.key.Meter, Unit: to.key.Unit, Units: in.Units, Reason: in.Reason, CreatedAt: w.now,
		}
		if err := w.GrantQuota(ctx, to.key, to.calendar, w.now, g); err != nil {
			return nil, err
		}
		return g, w.audit(ctx, audit.GrantCreate, g.ID, "", q.grantDiff(g))
	})
	if s.cfg.Quotas != nil {
		_ = s.cfg.Quotas.Granted(ctx, to.key) // also after an error, which may come after the commit
	}
	return made, err
}

func (in *GrantInput) check() error {
	var badUnits, badReason error
	if in.Units < 1 || in.Units > ratelimit.MaxUnits {
		badUnits = fault.Invalid("units", "must be between 1 and %d", int64(ratelimit.MaxUnits))
	}
	switch {
	case len(in.Reason) > plan.MaxReason:
		badReason = fault.Invalid("reason", "must have at most %d bytes", plan.MaxReason)
	case in.Reason != "":
		badReason = label.CheckName("reason", in.Reason)
	}
	return fault.Join(badUnits, badReason)
}

// quotaNamed returns the quota of a limit that counts the subject. If there is none, the error is a validation error of
// the field limit.
func (q *quotaSubject) quotaNamed(ctx context.Context, from *appliedPlans, name string) (*appliedQuota, error) {
	all, err := q.quotas(ctx, from, mostQuotas)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all {
		if all[i].key.Limit == name {
			return &all[i], nil
		}
		names = append(names, all[i].key.Limit)
	}
	const shown = 8
	switch {
	case len(names) == 0:
		return nil, fault.Invalid("limit", "the %s has no quota: give it a plan with a quota that counts it, per %s", q.what(), q.what())
	case len(names) > shown:
		names = append(names[:shown], "…")
	}
	return nil, fault.Invalid("limit", "the %s has no quota %.32q: its quotas are %s", q.what(), name, strings.Join(names, ", "))
}

// grantDiff returns the diff of the audit record of a grant.
func (q *quotaSubject) grantDiff(g *plan.Grant) audit.Diff {
	of := q.id
	if q.key != nil {
		of = q.key.ID
	}
	f := fields{
		q.what() + "_id": of, "limit": g.Limit, "plan": g.Plan, "meter": g.Meter, "units": g.Units, "reason": orNil(g.Reason),
		"window_start": timeOrNil(g.WindowStart), "window_end": nil,
	}
	if g.Unit != calendar.Total {
		f["window_end"] = timeOrNil(g.WindowEnd)
	}
	return differ(nil, f)
}
