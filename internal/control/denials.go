package control

import (
	"cmp"
	"context"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/snapshot"
)

// Denials lists the denials of an issuer that have not ended and that f selects, newest first.
func (s *Service) Denials(ctx context.Context, actor *Actor, issuerID string, f DenialFilter, p Page) ([]issuer.Denial, error) {
	f.Subject, f.JTI = issuer.Recorded(f.Subject), issuer.Recorded(f.JTI)
	return search(ctx, s, actor, func(tx ReadTx) ([]issuer.Denial, error) {
		if _, err := tx.Issuer(ctx, actor.Account.ID, issuerID); err != nil {
			return nil, err
		}
		return tx.Denials(ctx, issuerID, f, s.now(), p)
	})
}

// Denial returns one denial that has not ended.
func (s *Service) Denial(ctx context.Context, actor *Actor, issuerID, denialID string) (*issuer.Denial, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*issuer.Denial, error) {
		return tx.Denial(ctx, actor.Account.ID, issuerID, denialID, s.now())
	})
}

// CreateDenial makes an issuer's tokens that in describes be refused, on every node, when it has returned. One more than an
// issuer or an account may have is fault.Conflict.
func (s *Service) CreateDenial(ctx context.Context, actor *Actor, issuerID string, in *issuer.Denial) (*issuer.Denial, error) {
	if onlyChecks(ctx) {
		return nil, s.checked(ctx, actor, nil, func(tx ReadTx) error {
			i, err := tx.Issuer(ctx, actor.Account.ID, issuerID)
			if err != nil {
				return err
			}
			d := *in
			if d.JTI == "" && d.IssuedBefore.IsZero() { // whom it denies may be what is known to be invalid
				d.Subject = cmp.Or(d.Subject, "any")
			}
			return d.Prepare(s.now(), i.MaxLifetimeTime(), i.LeewayTime())
		})
	}
	return inTx(ctx, s, actor, func(w *work) (*issuer.Denial, error) {
		i, err := w.Issuer(ctx, actor.Account.ID, issuerID)
		if err != nil {
			return nil, err
		}
		d := *in
		if err := d.Prepare(w.now, i.MaxLifetimeTime(), i.LeewayTime()); err != nil {
			return nil, err
		}
		if err := w.roomForDenial(ctx, i); err != nil {
			return nil, err
		}
		d.ID, d.AccountID, d.IssuerID, d.CreatedAt = id.NewAt(id.Denial, w.now), actor.Account.ID, i.ID, w.now
		if err := w.InsertDenial(ctx, &d); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.DenialCreate, d.ID, "", denialDiff(nil, &d)); err != nil {
			return nil, err
		}
		return &d, w.changed(ctx, snapshot.DenialChange, snapshot.DenialChangeID(i.ID, d.ID))
	})
}

// roomForDenial checks that an issuer of the actor's account may have one more denial. Otherwise the error is fault.Conflict.
func (w *work) roomForDenial(ctx context.Context, i *issuer.Issuer) error {
	const remedy = "which is the most: lift some, or deny all tokens issued before now; those that have ended are removed within minutes"
	if i.Denials >= int64(cmp.Or(w.bounds.IssuerDenials, issuer.MaxDenials)) {
		return fault.New(fault.Conflict, "the issuer has %d denials, "+remedy, i.Denials)
	}
	use, err := w.IssuerUse(ctx, w.actor.Account.ID, "")
	if err == nil && use.Denials >= int64(cmp.Or(w.bounds.Denials, MaxAccountDenials)) {
		err = fault.New(fault.Conflict, "the issuers of the account have %d denials, "+remedy, use.Denials)
	}
	return err
}

// DeleteDenial lifts a denial that has not ended, and returns it.
func (s *Service) DeleteDenial(ctx context.Context, actor *Actor, issuerID, denialID string) (*issuer.Denial, error) {
	return inTx(ctx, s, actor, func(w *work) (*issuer.Denial, error) {
		d, err := w.Denial(ctx, actor.Account.ID, issuerID, denialID, w.now)
		if err != nil {
			return nil, err
		}
		if err := w.DeleteDenial(ctx, d); err != nil {
			return nil, err
		}
		if err := w.audit(ctx, audit.DenialDelete, d.ID, "", denialDiff(d, nil)); err != nil {
			return nil, err
		}
		return d, w.changed(ctx, snapshot.DenialChange, snapshot.DenialChangeID(d.IssuerID, d.ID))
	})
}

// denialDiff returns what differs between two denials, of which one is nil, as the audit log has it.
func denialDiff(before, after *issuer.Denial) audit.Diff {
	d := audit.Diff{}
	for n, one := range []*issuer.Denial{before, after} {
		if one == nil {
			continue
		}
		for _, f := range []struct {
			field string
			value any
		}{
			{"issuer_id", one.IssuerID}, {"subject", one.Subject}, {"jti", one.JTI}, {"issued_before", timeOrNil(one.IssuedBefore)},
			{"until", timeOrNil(one.Until)}, {"reason", one.Reason},
		} {
			if f.value != nil && f.value != "" {
				change := d[f.field]
				change[n] = f.value
				d[f.field] = change
			}
		}
	}
	return d
}
