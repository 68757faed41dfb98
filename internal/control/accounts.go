package control

import (
	"context"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/snapshot"
)

// firstKeyName is the name of an account's first key.
const firstKeyName = "admin"

// FirstStart creates the account default with an admin key, unless the account exists. It
// returns the key's string, or "" if the account existed. given is the key's string, or "" for
// a new one. If the account existed without a given key, it gets that key, and FirstStart
// returns it too: an earlier first start may have been interrupted (contract, section 1).
func (s *Service) FirstStart(ctx context.Context, given string) (secret string, err error) {
	a, err := view(ctx, s, func(tx ReadTx) (*account.Account, error) {
		return tx.AccountByName(ctx, account.Default)
	})
	switch {
	case err == nil && given != "":
		return given, s.giveKey(ctx, a, given)
	case fault.CodeOf(err) != fault.NotFound:
		return "", err
	}
	return s.createFirst(ctx, given)
}

// FirstNode creates the account default with an admin key, unless the account exists, in a store that
// several nodes share: exactly one of them creates it. The others, and later starts, get "" and
// change nothing, so that a revoked key stays revoked.
func (s *Service) FirstNode(ctx context.Context, given string) (secret string, err error) {
	_, err = view(ctx, s, func(tx ReadTx) (*account.Account, error) {
		return tx.AccountByName(ctx, account.Default)
	})
	if fault.CodeOf(err) != fault.NotFound {
		return "", err
	}
	return s.createFirst(ctx, given)
}

// createFirst creates the account default. The key is "" if another process was first.
func (s *Service) createFirst(ctx context.Context, given string) (secret string, err error) {
	_, key, err := s.createAccount(ctx, SystemActor, &account.Account{Name: account.Default, Tier: account.Platform}, given)
	if fault.CodeOf(err) == fault.Conflict {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return key.Secret, nil
}

// giveKey creates an admin key with the given string for a, unless the key exists.
func (s *Service) giveKey(ctx context.Context, a *account.Account, given string) error {
	_, err := inTx(ctx, s, trusted(SystemActor, a), func(w *work) (*NewKey, error) {
		if _, err := w.KeyByDigest(ctx, apikey.DigestOf(given)); fault.CodeOf(err) != fault.NotFound {
			return nil, err
		}
		return s.insertAdminKey(ctx, w, firstKeyName, given)
	})
	return err
}

// CreateAccount creates an account and its first key, an account-level key with the scope
// admin, for a command that opens the store itself. hosts are the patterns of the hostnames
// that its gateways may use. A name that is in use is fault.Conflict.
func (s *Service) CreateAccount(ctx context.Context, name string, tier account.Tier, hosts []string) (*account.Account, *NewKey, error) {
	return s.createAccount(ctx, OfflineActor, &account.Account{Name: name, Tier: tier, Hosts: lowered(hosts)}, "")
}

// createAccount creates a for an actor of the given kind. Its first key has the given string, or a new one if that is "".
func (s *Service) createAccount(ctx context.Context, by ActorKind, a *account.Account, key string) (*account.Account, *NewKey, error) {
	if err := a.Validate(); err != nil {
		return nil, nil, err
	}
	made, err := inTx(ctx, s, trusted(by, a), func(w *work) (*NewAccount, error) { return s.insertAccount(ctx, w, *a, key) })
	if err != nil {
		return nil, nil, err
	}
	return &made.Account, made.Key, nil
}

// insertAccount stores a with a new identifier, and its first key with the given string, or a
// new one if that is "".
func (s *Service) insertAccount(ctx context.Context, w *work, a account.Account, secret string) (*NewAccount, error) {
	a.ID, a.State, a.CreatedAt, a.Version = id.NewAt(id.Account, w.now), account.Active, w.now, 1
	if _, err := w.operatorOf(ctx, &a); err != nil {
		return nil, err
	}
	if err := w.InsertAccount(ctx, &a); err != nil {
		return nil, err
	}
	if err := w.auditAccount(ctx, audit.AccountCreate, &a, accountDiff(nil, &a)); err != nil {
		return nil, err
	}
	if err := w.changed(ctx, snapshot.AccountChange, a.ID); err != nil {
		return nil, err
	}
	// The account sees the records of its key, so they must not name the operator's key.
	actor := w.actor
	w.actor = trusted(SystemActor, &a)
	key, err := s.insertAdminKey(ctx, w, firstKeyName, secret)
	w.actor = actor
	return &NewAccount{Account: a, Key: key}, err
}

// CreateAccountKey creates an account-level key with the scope admin for the account with
// the given name. If there is no such account, the error is fault.NotFound.
func (s *Service) CreateAccountKey(ctx context.Context, accountName, keyName string) (*NewKey, error) {
	a, err := view(ctx, s, func(tx ReadTx) (*account.Account, error) {
		return tx.AccountByName(ctx, accountName)
	})
	if err != nil {
		return nil, err
	}
	return inTx(ctx, s, trusted(OfflineActor, a), func(w *work) (*NewKey, error) {
		return s.insertAdminKey(ctx, w, keyName, "")
	})
}

func (s *Service) insertAdminKey(ctx context.Context, w *work, name, secret string) (*NewKey, error) {
	k := apikey.Key{Name: name, Level: apikey.AccountLevel, Scope: apikey.Scopes{{Word: apikey.Admin}}}
	if err := k.Validate(); err != nil {
		return nil, err
	}
	return s.insertKey(ctx, w, k, secret)
}

func lowered(list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = strings.ToLower(list[i])
	}
	return list
}
