package control

import (
	"context"
	"encoding/json"

	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/jwk"
	"github.com/keygate/keygate/internal/snapshot"
)

// IssuerFetcher fetches the keys of issuers (provider.Fetcher). It is safe for concurrent use.
type IssuerFetcher interface {
	// Wake makes it look for keys that are due. It does not block.
	Wake()
	// Refresh fetches the keys of an issuer now, and returns when a fetch that began after the call has ended and its result
	// is stored, also that it failed. The error is fault.Unavailable if that takes too long, or ctx.Err().
	Refresh(ctx context.Context, accountID, issuerID string) error
}

// fetchDueKeys lets the fetcher know that keys may be due.
func (s *Service) fetchDueKeys() {
	if s.cfg.Issuers != nil {
		s.cfg.Issuers.Wake()
	}
}

// RefreshIssuer fetches the keys of an issuer and returns the issuer, whose LastError says why the fetch failed if it did. When it
// returns, they are in force on every node.
// If its keys are given by hand, the error is fault.Conflict.
func (s *Service) RefreshIssuer(ctx context.Context, actor *Actor, issuerID string) (*issuer.Issuer, error) {
	i, err := s.Issuer(ctx, actor, issuerID)
	if err != nil {
		return nil, err
	}
	if _, fetched := i.FetchedFrom(); !fetched {
		return nil, fault.New(fault.Conflict, "the keys of the issuer are given by hand: set jwks to null, so that they are fetched")
	}
	if s.cfg.Issuers == nil {
		return nil, fault.New(fault.Unavailable, "keys are not fetched at present: try again in a moment")
	}
	if err := s.cfg.Issuers.Refresh(ctx, actor.Account.ID, issuerID); err != nil {
		return nil, err
	}
	if err := s.Confirm(ctx, actor.Account.ID); err != nil { // a key may have been taken back because it is in the wrong hands
		return nil, err
	}
	return s.Issuer(ctx, actor, issuerID)
}

// IssuerToFetch is an issuer whose keys are to be fetched.
type IssuerToFetch struct {
	issuer.Issuer
	Operator bool // the account is default
}

// ClaimFetches returns up to limit issuers whose keys are due, and of each account up to perAccount, for this node to
// fetch: no other node has them in the next minute. choose reports, for one after the other, whether to take it.
func (s *Service) ClaimFetches(ctx context.Context, perAccount, limit int, choose func(accountID, issuerID string) bool) (claimed []IssuerToFetch, err error) {
	due, err := view(ctx, s, func(tx ReadTx) ([]issuer.Issuer, error) { return tx.DueIssuers(ctx, s.now(), perAccount, 1) })
	if err != nil || len(due) == 0 { // a transaction that changes nothing costs others their turn
		return nil, err
	}
	chosen := map[string]bool{} // also of an earlier run of the transaction
	err = s.cfg.Store.Update(ctx, func(tx Tx) error {
		claimed = nil
		now := s.now()
		due, err := tx.DueIssuers(ctx, now, perAccount, limit)
		if err != nil {
			return err
		}
		for n := range due {
			i := &due[n]
			if !chosen[i.ID] && !choose(i.AccountID, i.ID) {
				continue
			}
			chosen[i.ID] = true
			a, err := tx.Account(ctx, i.AccountID)
			if err != nil {
				return err
			}
			i.FetchAt = now.Add(issuer.FetchAgain)
			if err := tx.UpdateIssuer(ctx, i); err != nil {
				return err
			}
			claimed = append(claimed, IssuerToFetch{Issuer: *i, Operator: a.IsDefault()})
		}
		return nil
	})
	return claimed, err
}

// IssuerToFetch returns an issuer. If there is none, its account is not active, or its keys are given by hand, the error
// is fault.NotFound.
func (s *Service) IssuerToFetch(ctx context.Context, accountID, issuerID string) (*IssuerToFetch, error) {
	return view(ctx, s, func(tx ReadTx) (*IssuerToFetch, error) {
		a, err := activeAccount(ctx, tx, accountID)
		if err != nil {
			return nil, err
		}
		i, err := tx.Issuer(ctx, accountID, issuerID)
		if err != nil {
			return nil, err
		}
		if _, fetched := i.FetchedFrom(); !fetched {
			return nil, fault.Missing("issuer")
		}
		return &IssuerToFetch{Issuer: *i, Operator: a.IsDefault()}, nil
	})
}

// KeyFetch is the result of a fetch of keys.
type KeyFetch struct {
	AccountID, IssuerID string
	Source              issuer.Source // that was fetched
	Keys                *jwk.Set      // nil if the fetch failed
	Problem             string        // why it failed, for the operator
	Next                time.Duration // until the next fetch
}

// RecordedFetch is what the result of a fetch has changed. It is zero if it was not stored, because the issuer is gone or
// its keys come from elsewhere by now.
type RecordedFetch struct {
	Problem string // why the fetch failed, or why its keys could not be stored; "" if they were
	Turned  bool   // the issuer has become unreachable, or reachable again
	Changed bool   // there are other keys
}

// RecordFetch stores the result of a fetch. Other keys are in force on this node when it returns, and soon on others. After a fetch that failed, the keys stay as they are; the first such fetch
// raises an event.
func (s *Service) RecordFetch(ctx context.Context, f KeyFetch) (recorded RecordedFetch, err error) {
	err = s.cfg.Store.Update(ctx, func(tx Tx) error {
		recorded = RecordedFetch{}
		i, err := tx.Issuer(ctx, f.AccountID, f.IssuerID)
		if fault.CodeOf(err) == fault.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		if source, fetched := i.FetchedFrom(); !fetched || source != f.Source {
			return nil
		}
		now, before := s.now(), *i
		i.FetchAt, i.LastError = now.Add(f.Next), f.Problem
		if f.Keys != nil {
			if i.LastError, err = takeKeys(ctx, tx, i, f.Keys, now); err != nil {
				return err
			}
		}
		if err := tx.UpdateIssuer(ctx, i); err != nil {
			return err
		}
		recorded = RecordedFetch{Problem: i.LastError, Turned: i.Unreachable() != before.Unreachable(), Changed: i.Document != before.Document}
		if recorded.Changed {
			if _, err := tx.AppendChange(ctx, snapshot.IssuerChange, i.ID); err != nil {
				return err
			}
		}
		if !recorded.Turned || !i.Unreachable() {
			return nil
		}
		return raise(ctx, tx, i.AccountID, event.IssuerUnreachable, now, event.KeysUnreachable{IssuerID: i.ID, Name: i.Name, Issuer: i.URL, Message: i.LastError})
	})
	if err == nil && recorded.Turned && recorded.Problem != "" {
		s.cfg.Wake()
	}
	if err == nil && recorded.Changed {
		err = s.publish(ctx, nil)
	}
	return recorded, err
}

// takeKeys makes keys the present ones of an issuer. The issuer is unchanged if they take too much, which failed says.
func takeKeys(ctx context.Context, tx Tx, i *issuer.Issuer, keys *jwk.Set, now time.Time) (failed string, err error) {
	document, err := keys.Document()
	if err != nil {
		return "", err
	}
	after := *i
	after.Document = string(document)
	after.See(keys, now)
	use, err := tx.IssuerUse(ctx, i.AccountID, i.ID)
	if err != nil {
		return "", err
	}
	size, before := fetchedBytes(&after), fetchedBytes(i)
	if use.Fetched+size > issuer.MaxFetchedBytes && size > before {
		return "the keys of all issuers of the account would take more than " + sizeText(issuer.MaxFetchedBytes) + ": delete issuers that are no longer needed", nil
	}
	*i = after
	return "", nil
}

// fetchedBytes returns how many bytes the keys of an issuer take in the store.
func fetchedBytes(i *issuer.Issuer) int64 {
	seen, _ := json.Marshal(i.Seen) // it has a form
	return int64(len(i.Document) + len(seen))
}

// UnreachableIssuers returns how many issuers of all accounts are unreachable.
func (s *Service) UnreachableIssuers(ctx context.Context) (int, error) {
	return view(ctx, s, func(tx ReadTx) (int, error) { return tx.UnreachableIssuers(ctx) })
}
