package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// ErrSuperseded is the error of a result of a sync whose repository was changed, paused or removed
// meanwhile. Nothing of the result is stored.
var ErrSuperseded = errors.New("the repository was changed, paused or removed during its sync")

// RepositoryToSync is a repository with its secrets, as the syncer needs it.
type RepositoryToSync struct {
	gateway.ConnectedRepository
	Credential  []byte // JSON of a RepositoryCredential; nil without one
	StatusToken string
	Operator    bool // the account is default
	Active      bool // the account is active
}

// ConnectedRepositories lists up to limit repositories of all accounts, in the order of the
// identifiers of their gateways, beginning behind after. Credentials are still sealed.
func (s *Service) ConnectedRepositories(ctx context.Context, after string, limit int) ([]gateway.ConnectedRepository, error) {
	return view(ctx, s, func(tx ReadTx) ([]gateway.ConnectedRepository, error) { return tx.Repositories(ctx, after, limit) })
}

// RepositoryToSync returns the repository of a gateway of any account. If the gateway follows none,
// the error is fault.NotFound.
func (s *Service) RepositoryToSync(ctx context.Context, gatewayID string) (*RepositoryToSync, error) {
	r, err := view(ctx, s, func(tx ReadTx) (*RepositoryToSync, error) {
		r, err := tx.RepositoryOf(ctx, gatewayID)
		if err != nil {
			return nil, err
		}
		a, err := tx.Account(ctx, r.AccountID)
		if err != nil {
			return nil, err
		}
		return &RepositoryToSync{ConnectedRepository: *r, Operator: a.IsDefault(), Active: a.State == account.Active}, nil
	})
	if err != nil {
		return nil, err
	}
	if sealed := r.ConnectedRepository.Credential; sealed != nil {
		if r.Credential, err = s.cfg.Sealer.Open(sealed); err != nil {
			return nil, fmt.Errorf("open the credential of the repository of gateway %s: %w", gatewayID, err)
		}
	}
	if sealed := r.ConnectedRepository.StatusToken; sealed != nil {
		token, err := s.cfg.Sealer.Open(sealed)
		if err != nil {
			return nil, fmt.Errorf("open the token for commit statuses of gateway %s: %w", gatewayID, err)
		}
		r.StatusToken = string(token)
	}
	return r, nil
}

// Commit is a commit whose file is to be pushed to the gateway that follows its repository.
type Commit struct {
	GatewayID string
	Version   int64 // version of the repository's record with which it was read
	Hash      string
	Author    string
	Content   []byte
	// Synced changes the record with the push, in its transaction. It may run more than once.
	Synced func(r *gateway.ConnectedRepository)
}

// PushCommit pushes a commit as PushRepository does, and records in the same transaction that it
// was synced, even if the push changes nothing. If the repository was changed meanwhile, the error
// is ErrSuperseded.
func (s *Service) PushCommit(ctx context.Context, p Commit) (*PushResult, error) {
	r, err := view(ctx, s, func(tx ReadTx) (*gateway.ConnectedRepository, error) { return current(ctx, tx, p.GatewayID, p.Version) })
	if err != nil {
		return nil, err
	}
	return s.PushRepository(ctx, RepositoryPush{
		AccountID: r.AccountID, GatewayID: p.GatewayID, Kind: r.Kind, Content: p.Content, Commit: p.Hash, Author: p.Author,
		Within: func(ctx context.Context, tx Tx) error {
			r, err := current(ctx, tx, p.GatewayID, p.Version)
			if err != nil {
				return err
			}
			r.LastCommit, r.FailedCommit, r.LastError, r.FailureKind, r.Failures = p.Hash, "", "", "", 0
			r.LastSyncedAt = s.now()
			p.Synced(r)
			return tx.PutRepository(ctx, r)
		},
	})
}

// current returns the repository of a gateway if it has the given version and is not paused.
func current(ctx context.Context, tx RepositoryReader, gatewayID string, version int64) (*gateway.ConnectedRepository, error) {
	r, err := tx.RepositoryOf(ctx, gatewayID)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return nil, ErrSuperseded
	case err != nil:
		return nil, err
	case r.Version != version || r.Paused:
		return nil, ErrSuperseded
	}
	return r, nil
}

// RecordSync stores a result of a sync that pushed nothing. change changes the record and returns
// the event to raise with it, or nil. It may run more than once. If the repository was changed
// meanwhile, the error is ErrSuperseded.
func (s *Service) RecordSync(ctx context.Context, gatewayID string, version int64, change func(r *gateway.ConnectedRepository) *event.SyncFailed) error {
	raised := false
	err := s.cfg.Store.Update(ctx, func(tx Tx) error {
		r, err := current(ctx, tx, gatewayID, version)
		if err != nil {
			return err
		}
		failed := change(r)
		raised = failed != nil
		if err := tx.PutRepository(ctx, r); err != nil || !raised {
			return err
		}
		return raise(ctx, tx, r.AccountID, event.GatewaySyncFailed, s.now(), *failed)
	})
	if err == nil && raised {
		s.cfg.Wake()
	}
	return err
}

// RecordPolls stores the times of polls that found nothing new, in one transaction.
func (s *Service) RecordPolls(ctx context.Context, polls []RepositoryTimes) error {
	return s.cfg.Store.Update(ctx, func(tx Tx) error {
		for _, t := range polls {
			if err := tx.SetRepositoryTimes(ctx, t); err != nil {
				return err
			}
		}
		return nil
	})
}

// PushHook is what a push hook of a gateway is checked against.
type PushHook struct {
	AccountID string
	Branch    string
	Secret    []byte
	Paused    bool
}

// FindPushHook returns what the push hooks of a gateway must be signed with. If the gateway does not
// exist, its account is not active or it follows no repository, the error is fault.NotFound.
func (s *Service) FindPushHook(ctx context.Context, gatewayID string) (*PushHook, error) {
	h, err := view(ctx, s, func(tx ReadTx) (*PushHook, error) {
		r, err := tx.RepositoryOf(ctx, gatewayID)
		if err != nil {
			return nil, err
		}
		if _, err := activeAccount(ctx, tx, r.AccountID); err != nil {
			return nil, fault.Missing("gateway")
		}
		return &PushHook{AccountID: r.AccountID, Branch: r.Branch, Secret: r.HookSecret, Paused: r.Paused}, nil
	})
	if err != nil {
		return nil, err
	}
	if h.Secret == nil {
		return nil, fault.Missing("gateway")
	}
	if h.Secret, err = s.cfg.Sealer.Open(h.Secret); err != nil {
		return nil, fmt.Errorf("open the hook secret of gateway %s: %w", gatewayID, err)
	}
	return h, nil
}

// WakeRepository begins a sync of a gateway soon.
func (s *Service) WakeRepository(accountID, gatewayID string) {
	if s.cfg.Repositories != nil {
		s.cfg.Repositories.Wake(accountID, gatewayID)
	}
}
