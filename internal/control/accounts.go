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
// returns the key's string, or "" if the account existed (contract, section 1).
func (s *Service) FirstStart(ctx context.Context) (secret string, err error) {
	_, err = read(ctx, s, func(tx ReadTx) (*account.Account, error) {
		return tx.AccountByName(ctx, account.Default)
	})
	if fault.CodeOf(err) != fault.NotFound {
		return "", err
	}
	_, key, err := s.CreateAccount(ctx, account.Default, account.Platform, nil)
	if fault.CodeOf(err) == fault.Conflict { // another process was first
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return key.Secret, nil
}

// CreateAccount creates an account and its first key, an account-level key with the scope
// admin, for a command that opens the store itself. hosts are the patterns of the hostnames
// that its gateways may use. A name that is in use is fault.Conflict.
func (s *Service) CreateAccount(ctx context.Context, name string, plan account.Plan, hosts []string) (*account.Account, *NewKey, error) {
	a := &account.Account{Name: name, Plan: plan, Hosts: lowered(hosts)}
	if err := a.Validate(); err != nil {
		return nil, nil, err
	}
	made, err := inTx(ctx, s, offline(a), func(w *work) (*NewAccount, error) { return s.insertAccount(ctx, w, *a) })
	if err != nil {
		return nil, nil, err
	}
	return &made.Account, made.Key, nil
}

// insertAccount stores a with a new identifier, and its first key.
func (s *Service) insertAccount(ctx context.Context, w *work, a account.Account) (*NewAccount, error) {
	a.ID, a.State, a.CreatedAt, a.Version = id.New(id.Account), account.Active, w.now, 1
	if err := w.InsertAccount(ctx, &a); err != nil {
		return nil, err
	}
	if err := w.auditAccount(ctx, audit.AccountCreate, &a, accountDiff(nil, &a)); err != nil {
		return nil, err
	}
	if err := w.changed(ctx, snapshot.AccountChange, a.ID); err != nil {
		return nil, err
	}
	// The records of the key are the account's own, which must not see the operator's key.
	caller := w.caller
	w.caller = offline(&a)
	key, err := s.insertAdminKey(ctx, w, firstKeyName)
	w.caller = caller
	return &NewAccount{Account: a, Key: key}, err
}

// CreateAccountKey creates an account-level key with the scope admin for the account with
// the given name. If there is no such account, the error is fault.NotFound.
func (s *Service) CreateAccountKey(ctx context.Context, accountName, keyName string) (*NewKey, error) {
	a, err := read(ctx, s, func(tx ReadTx) (*account.Account, error) {
		return tx.AccountByName(ctx, accountName)
	})
	if err != nil {
		return nil, err
	}
	return inTx(ctx, s, offline(a), func(w *work) (*NewKey, error) {
		return s.insertAdminKey(ctx, w, keyName)
	})
}

func (s *Service) insertAdminKey(ctx context.Context, w *work, name string) (*NewKey, error) {
	k := apikey.Key{Name: name, Level: apikey.AccountLevel, Scope: apikey.Scopes{{Word: apikey.Admin}}}
	if err := k.Validate(); err != nil {
		return nil, err
	}
	return s.insertKey(ctx, w, k)
}

// offline returns the caller of a command that opens the store itself. It may do anything,
// like everyone with write access to the store's files.
func offline(a *account.Account) *Caller {
	return &Caller{Account: a, Scope: apikey.Scopes{{Word: apikey.Admin}}, Source: "cli"}
}

func lowered(list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = strings.ToLower(list[i])
	}
	return list
}
