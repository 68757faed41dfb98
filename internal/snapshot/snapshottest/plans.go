package snapshottest

import (
	"context"
	"maps"
	"slices"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
	"github.com/keygate/keygate/internal/snapshot"
)

// PutPlan adds or replaces a plan.
func (s *Source) PutPlan(p plan.Plan) { put(s, &s.plans, snapshot.PlanChange, p.ID, p) }

// DeletePlan removes a plan.
func (s *Source) DeletePlan(planID string) { remove(s, &s.plans, snapshot.PlanChange, planID) }

// PutOwner adds or replaces an owner.
func (s *Source) PutOwner(o owner.Owner) { put(s, &s.owners, snapshot.OwnerChange, o.ID, o) }

// DeleteOwner removes an owner.
func (s *Source) DeleteOwner(ownerID string) { remove(s, &s.owners, snapshot.OwnerChange, ownerID) }

// PutIssuer adds or replaces an issuer.
func (s *Source) PutIssuer(i issuer.Issuer) { put(s, &s.issuers, snapshot.IssuerChange, i.ID, i) }

// DeleteIssuer removes an issuer.
func (s *Source) DeleteIssuer(issuerID string) {
	remove(s, &s.issuers, snapshot.IssuerChange, issuerID)
}

func put[T any](s *Source, to *map[string]T, kind snapshot.ChangeKind, recordID string, record T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *to == nil {
		*to = map[string]T{}
	}
	(*to)[recordID] = record
	s.append(kind, recordID)
}

func remove[T any](s *Source, from *map[string]T, kind snapshot.ChangeKind, recordID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(*from, recordID)
	s.append(kind, recordID)
}

// EachPlan implements snapshot.PlanSource.
func (s *Source) EachPlan(ctx context.Context, f func(*plan.Plan) error) error {
	return each(ctx, s, &s.plans, f)
}

// EachOwner implements snapshot.PlanSource.
func (s *Source) EachOwner(ctx context.Context, f func(*owner.Owner) error) error {
	return each(ctx, s, &s.owners, f)
}

// EachIssuer implements snapshot.IssuerSource.
func (s *Source) EachIssuer(ctx context.Context, f func(*issuer.Issuer) error) error {
	return each(ctx, s, &s.issuers, f)
}

// IssuerByID implements snapshot.IssuerSource.
func (s *Source) IssuerByID(ctx context.Context, issuerID string) (*issuer.Issuer, error) {
	return byID(ctx, s, &s.issuers, "issuer", issuerID)
}

// PutDenial adds a denial of an issuer that was put before.
func (s *Source) PutDenial(d issuer.Denial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.denials == nil {
		s.denials = map[string]issuer.Denial{}
	}
	s.denials[d.ID] = d
	s.countDenials(d.IssuerID)
	s.append(snapshot.DenialChange, snapshot.DenialChangeID(d.IssuerID, d.ID))
}

// DeleteDenial removes a denial.
func (s *Source) DeleteDenial(issuerID, denialID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.denials, denialID)
	s.countDenials(issuerID)
	s.append(snapshot.DenialChange, snapshot.DenialChangeID(issuerID, denialID))
}

// countDenials counts the denials of an issuer. s.mu is held.
func (s *Source) countDenials(issuerID string) {
	i := s.issuers[issuerID]
	i.Denials = 0
	for _, d := range s.denials {
		if d.IssuerID == issuerID {
			i.Denials++
		}
	}
	s.issuers[issuerID] = i
}

// EachDenial implements snapshot.IssuerSource.
func (s *Source) EachDenial(ctx context.Context, issuerID string, f func(*issuer.Denial) error) error {
	return each(ctx, s, &s.denials, func(d *issuer.Denial) error {
		if d.IssuerID != issuerID {
			return nil
		}
		return f(d)
	})
}

// DenialByID implements snapshot.IssuerSource.
func (s *Source) DenialByID(ctx context.Context, denialID string) (*issuer.Denial, error) {
	return byID(ctx, s, &s.denials, "denial", denialID)
}

// each calls f with a copy of each record.
func each[T any](ctx context.Context, s *Source, from *map[string]T, f func(*T) error) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	all := slices.Collect(maps.Values(*from))
	s.mu.Unlock()
	for i := range all {
		if err := f(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

// PlanByID implements snapshot.PlanSource.
func (s *Source) PlanByID(ctx context.Context, planID string) (*plan.Plan, error) {
	return byID(ctx, s, &s.plans, "plan", planID)
}

// OwnerByID implements snapshot.PlanSource.
func (s *Source) OwnerByID(ctx context.Context, ownerID string) (*owner.Owner, error) {
	return byID(ctx, s, &s.owners, "owner", ownerID)
}

func byID[T any](ctx context.Context, s *Source, from *map[string]T, what, recordID string) (*T, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	record, ok := (*from)[recordID]
	if !ok {
		return nil, fault.Missing(what)
	}
	return &record, nil
}
