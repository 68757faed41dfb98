package control

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
)

// DueCertificates returns up to limit certificates of active accounts for which something is due, the longest due first.
func (s *Service) DueCertificates(ctx context.Context, limit int) ([]acme.Certificate, error) {
	now := s.now()
	return view(ctx, s, func(tx ReadTx) ([]acme.Certificate, error) { return tx.DueCertificates(ctx, now, limit) })
}

// CertificateAccount returns the account with the CA whose directory has a URL. Without one, the error is fault.NotFound.
func (s *Service) CertificateAccount(ctx context.Context, directory string) (*acme.Account, error) {
	return view(ctx, s, func(tx ReadTx) (*acme.Account, error) { return tx.CertificateAccount(ctx, directory) })
}

// PutCertificateAccount stores the account with a CA, if the process leads. Otherwise the error is fault.Conflict.
func (s *Service) PutCertificateAccount(ctx context.Context, lead canary.Lead, a *acme.Account) error {
	return s.cfg.Store.Update(ctx, func(tx Tx) error {
		if err := mustLead(ctx, tx, lead); err != nil {
			return err
		}
		return tx.PutCertificateAccount(ctx, a)
	})
}

// mustLead returns fault.Conflict if another process leads.
func mustLead(ctx context.Context, tx CanaryReader, lead canary.Lead) error {
	now, err := tx.CanaryLead(ctx)
	if err == nil && now != lead {
		err = fault.New(fault.Conflict, "another process leads now")
	}
	return err
}

// BeginOrder notes that an attempt to get a certificate begins, with what every node responds with to a look whether the hostname
// leads here. When it returns, every node does. If the process does not lead, or the account is not active, the error is fault.Conflict;
// for a certificate that is gone it is fault.NotFound. So it is of the others below.
func (s *Service) BeginOrder(ctx context.Context, lead canary.Lead, certificateID string, c acme.Challenge) error {
	return s.changeCertificate(ctx, lead, certificateID, func(w *work, of *acme.Certificate) (bool, error) {
		of.Begin(w.now, c)
		return true, nil
	})
}

// PutChallenge makes every node respond to a validation, before it returns.
func (s *Service) PutChallenge(ctx context.Context, lead canary.Lead, certificateID string, c acme.Challenge) error {
	return s.changeCertificate(ctx, lead, certificateID, func(_ *work, of *acme.Certificate) (bool, error) {
		of.Challenge = c
		return true, nil
	})
}

// FinishOrder stores a new certificate and raises certificate.renewed. When it returns, every node serves it.
func (s *Service) FinishOrder(ctx context.Context, lead canary.Lead, certificateID string, i *acme.Issued) error {
	return s.changeCertificate(ctx, lead, certificateID, func(w *work, of *acme.Certificate) (bool, error) {
		of.Put(w.now, i)
		return true, w.raiseCertificate(ctx, event.CertificateRenewed, of)
	})
}

// FailOrder notes why the attempt that has begun failed. It raises certificate.failed for the first failure in a row, and then once a day.
func (s *Service) FailOrder(ctx context.Context, lead canary.Lead, certificateID, reason string) error {
	return s.changeCertificate(ctx, lead, certificateID, func(w *work, of *acme.Certificate) (bool, error) {
		if of.Fail(w.now, reason) {
			return true, w.raiseCertificate(ctx, event.CertificateFailed, of)
		}
		return true, nil
	})
}

// NoteRenewal stores when a certificate is to be renewed, and when the CA is asked again. The zero time for renewAt keeps the time.
// If an attempt has failed, the next one stays when it is.
func (s *Service) NoteRenewal(ctx context.Context, lead canary.Lead, certificateID string, renewAt, askAt time.Time) error {
	return s.changeCertificate(ctx, lead, certificateID, func(_ *work, of *acme.Certificate) (bool, error) {
		of.AskAt = askAt
		if !renewAt.IsZero() {
			of.RenewAt = renewAt
			if of.Failures == 0 {
				of.NextAt = renewAt
			}
		}
		return false, nil
	})
}

// NoteExpiring raises certificate.expiring, once for a certificate.
func (s *Service) NoteExpiring(ctx context.Context, lead canary.Lead, certificateID string) error {
	return s.changeCertificate(ctx, lead, certificateID, func(w *work, of *acme.Certificate) (bool, error) {
		if of.ExpiringAt().IsZero() {
			return false, nil
		}
		of.ExpiryRaised = true
		return false, w.raiseCertificate(ctx, event.CertificateExpiring, of)
	})
}

// changeCertificate changes a certificate in one transaction. change reports whether what nodes serve may differ.
func (s *Service) changeCertificate(ctx context.Context, lead canary.Lead, certificateID string, change func(w *work, of *acme.Certificate) (served bool, err error)) error {
	of, err := view(ctx, s, func(tx ReadTx) (*account.Account, error) {
		c, err := tx.CertificateByID(ctx, certificateID)
		if err != nil {
			return nil, err
		}
		return existing(ctx, tx, c.AccountID)
	})
	if err != nil {
		return err
	}
	if of.State != account.Active {
		return fault.New(fault.Conflict, "the account is %s", of.State)
	}
	_, err = inTxOnly(ctx, s, trusted(SystemActor, of), func(w *work) (*acme.Certificate, error) {
		if err := mustLead(ctx, w, lead); err != nil {
			return nil, err
		}
		c, err := w.CertificateByID(ctx, certificateID)
		if err != nil {
			return nil, err
		}
		served, err := change(w, c)
		if err != nil {
			return nil, err
		}
		c.Version++
		if err := w.UpdateCertificate(ctx, c); err != nil {
			return nil, err
		}
		if served {
			err = w.changed(ctx, snapshot.CertificateChange, c.ID)
		}
		return c, err
	})
	return err
}

// raiseCertificate raises an event about a certificate.
func (w *work) raiseCertificate(ctx context.Context, t event.Type, c *acme.Certificate) error {
	data := event.Certificate{CertificateID: c.ID, GatewayID: c.GatewayID, Hostname: c.Hostname, Error: textOrNil(c.LastError)}
	if c.Chain != "" {
		data.NotAfter = &c.NotAfter
	}
	return w.raise(ctx, t, data)
}
