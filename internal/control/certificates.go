package control

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/snapshot"
)

// Certificates lists the account's certificates by ACME that f selects, newest first.
func (s *Service) Certificates(ctx context.Context, actor *Actor, f CertificateFilter, p Page) ([]acme.Certificate, error) {
	return read(ctx, s, actor, func(tx ReadTx) ([]acme.Certificate, error) { return tx.Certificates(ctx, actor.Account.ID, f, p) })
}

// Certificate returns one certificate by ACME.
func (s *Service) Certificate(ctx context.Context, actor *Actor, certificateID string) (*acme.Certificate, error) {
	return read(ctx, s, actor, func(tx ReadTx) (*acme.Certificate, error) {
		return tx.Certificate(ctx, actor.Account.ID, certificateID)
	})
}

// RenewCertificate makes the next attempt to get a certificate begin at once, whether it is a first one, a renewal or one that backs
// off. If one is due already, nothing changes. Accounts other than default can ask for acme.Renewals of a hostname in a week.
func (s *Service) RenewCertificate(ctx context.Context, actor *Actor, certificateID string) (*acme.Certificate, error) {
	return inTx(ctx, s, actor, func(w *work) (*acme.Certificate, error) {
		c, err := w.Certificate(ctx, actor.Account.ID, certificateID)
		if err != nil {
			return nil, err
		}
		if !s.cfg.ACME {
			return nil, fault.New(fault.Conflict, "no certificates are obtained by ACME here: start the server with --acme-email")
		}
		if !c.NextAt.After(w.now) {
			return c, nil
		}
		if !actor.Account.IsDefault() {
			if err := w.noteRenewal(ctx, c.Hostname); err != nil {
				return nil, err
			}
		}
		next := *c
		next.NextAt, next.Version = w.now, c.Version+1
		if err := w.UpdateCertificate(ctx, &next); err != nil {
			return nil, err
		}
		return &next, w.audit(ctx, audit.CertificateRenew, c.ID, c.GatewayID, audit.Diff{})
	})
}

// noteRenewal notes one more order that the account has asked for, for a hostname that it has or had within a week (429).
func (w *work) noteRenewal(ctx context.Context, hostname string) error {
	accountID, since := w.actor.Account.ID, w.now.Add(-acme.Week)
	asked, err := w.CertificateRenewals(ctx, accountID, hostname, since)
	if err != nil {
		return err
	}
	if asked.Count >= acme.Renewals {
		return tooManyNames(acme.Renewals, asked.First, "%d certificates for %s were asked for again within a week, which is the most: try again later; Keygate renews a certificate by itself", asked.Count, hostname)
	}
	return w.NoteCertificateName(ctx, accountID, hostname, acme.Domain(hostname), true, w.now, since)
}

// tooManyNames returns the error (429) of a bound of a week, of which the first use was at a time.
func tooManyNames(most int64, first time.Time, format string, args ...any) error {
	return &fault.Error{
		Code: fault.RateLimitExceeded, Message: fmt.Sprintf(format, args...),
		Limit: &fault.Limit{Limit: most, ResetAt: first.Add(acme.Week).Unix() + 1, Scope: "account", Window: int64(acme.Week / time.Second)},
	}
}

func (s *Service) putACME(e *gatewayEdit, o Optional[bool]) error {
	if !o.Present {
		return nil
	}
	on := o.Value && !o.Null
	if on && !s.cfg.ACME {
		return fault.Invalid("acme", "needs a server that gets certificates: start the server with --acme-email")
	}
	e.put(func(g *gateway.Gateway) { g.Requests.ACME = on })
	return nil
}

// checkACME checks that a gateway with a certificate by ACME has a hostname of its own.
func checkACME(g *gateway.Gateway) error {
	if g.Requests.ACME && !g.HostGiven {
		return fault.Invalid("acme", "needs a hostname that is given: set hostname to a name that leads to this installation")
	}
	return nil
}

// certified returns the hostname for which a gateway has a certificate by ACME, or "".
func certified(g *gateway.Gateway) string {
	if g == nil || !g.Requests.ACME {
		return ""
	}
	return g.Hostname
}

// meetCertificate makes the record of a gateway's certificate what the gateway says. before is nil for a new gateway, and after for
// one that is deleted. A hostname that is new to the account counts towards its bounds (429).
func (w *work) meetCertificate(ctx context.Context, before, after *gateway.Gateway) error {
	was, is := certified(before), certified(after)
	if was == is {
		return nil
	}
	// What reads comes before what writes, which would otherwise be read with the head of the change log.
	var old *acme.Certificate
	if was != "" {
		var err error
		if old, err = w.CertificateOf(ctx, before.ID); err != nil {
			return err
		}
	}
	if is != "" {
		if err := w.roomForCertificate(ctx, is, old != nil); err != nil {
			return err
		}
	}
	if old != nil {
		if err := w.DeleteCertificate(ctx, old.ID); err != nil {
			return err
		}
		if err := w.changed(ctx, snapshot.CertificateChange, old.ID); err != nil {
			return err
		}
	}
	if is == "" {
		return nil
	}
	c := acme.Certificate{ID: id.NewAt(id.Certificate, w.now), AccountID: after.AccountID, GatewayID: after.ID, Hostname: is, CreatedAt: w.now, Version: 1}
	c.NextAt = w.now
	if err := w.InsertCertificate(ctx, &c); err != nil {
		return err
	}
	return w.changed(ctx, snapshot.CertificateChange, c.ID)
}

// roomForCertificate checks that the account may have a certificate for one more hostname, in place of another one if replaces is set
// (409, 429), and notes the hostname, or that it is ordered again.
func (w *work) roomForCertificate(ctx context.Context, hostname string, replaces bool) error {
	of := w.actor.Account
	if !replaces {
		full, err := w.HasCertificates(ctx, of.ID, acme.MaxOfAccount)
		if err != nil {
			return err
		}
		if full {
			return fault.New(fault.Conflict, "the account has %d certificates by ACME, which is the most that it may have: turn acme off for other gateways first", acme.MaxOfAccount)
		}
		if full, err = w.HasCertificates(ctx, "", acme.MaxInAll); err != nil {
			return err
		}
		if full {
			return fault.New(fault.Conflict, "the installation has %d certificates by ACME, which is the most that it may have", acme.MaxInAll)
		}
	}
	if of.IsDefault() {
		return nil
	}
	since, domain := w.now.Add(-acme.Week), acme.Domain(hostname)
	ofAccount, ofDomain, known, err := w.NewCertificateNames(ctx, of.ID, hostname, domain, since)
	switch {
	case err != nil:
		return err
	case known: // it was given up since, and is ordered again
		return w.noteRenewal(ctx, hostname)
	case ofAccount.Count >= acme.NewNames:
		return tooManyNames(acme.NewNames, ofAccount.First, "the account has had %d new hostnames with acme within a week, also counting those given up since, which is the most: try again later", ofAccount.Count)
	case ofDomain.Count >= acme.NewNamesOfDomain:
		return tooManyNames(acme.NewNamesOfDomain, ofDomain.First, "there were %d new hostnames with acme below %s within a week, which is the most: try again later", ofDomain.Count, domain)
	}
	return w.NoteCertificateName(ctx, of.ID, hostname, domain, false, w.now, since)
}
