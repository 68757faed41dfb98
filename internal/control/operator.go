package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
)

// The operations of this file are the operator's: the API offers them only to keys of the
// account default.

// AccountInput is the body of an account's creation.
type AccountInput struct {
	Name  string
	Tier  string
	Hosts []string
}

// AccountPatch is the body of an account's update.
type AccountPatch struct {
	Name  Optional[string]
	Tier  Optional[string]
	Hosts Optional[[]string]
	State Optional[string]
}

// NewAccount is an account with its first key, whose string is returned only once.
type NewAccount struct {
	account.Account
	Key *NewKey
}

// How much of a deleted account one transaction removes, and how many of them the call that
// deletes it waits for. The maintenance removes the rest.
const (
	removeBatch  = 500
	removeAtOnce = 20
)

// namedHostnames is how many hostnames a message names.
const namedHostnames = 5

// Accounts lists the accounts of the installation, newest first.
func (s *Service) Accounts(ctx context.Context, f AccountFilter, p Page) ([]account.Account, error) {
	return view(ctx, s, func(tx ReadTx) ([]account.Account, error) { return tx.Accounts(ctx, f, p) })
}

// Account returns one account of the installation.
func (s *Service) Account(ctx context.Context, accountID string) (*account.Account, error) {
	return view(ctx, s, func(tx ReadTx) (*account.Account, error) { return existing(ctx, tx, accountID) })
}

// existing returns an account that is not deleted.
func existing(ctx context.Context, tx AccountReader, accountID string) (*account.Account, error) {
	a, err := tx.Account(ctx, accountID)
	if err == nil && a.State == account.Deleted {
		return nil, fault.Missing("account")
	}
	return a, err
}

// AddAccount creates an account and its first key, an account-level key with the scope admin.
// A name that is in use is fault.Conflict.
func (s *Service) AddAccount(ctx context.Context, actor *Actor, in AccountInput) (*NewAccount, error) {
	if !actor.isFullAdmin() {
		return nil, fault.Denied("creating an account issues a key with the scope admin, which requires the scope admin without a resource")
	}
	if err := actor.authenticatedLately(); err != nil {
		return nil, err
	}
	a := account.Account{Name: in.Name, Tier: account.Tier(in.Tier), Hosts: lowered(in.Hosts)}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	return inTx(ctx, s, actor, func(w *work) (*NewAccount, error) { return s.insertAccount(ctx, w, a, "") })
}

// UpdateAccount changes an account. When it returns, the keys and gateways of an account that it
// suspended are refused; if it resumed the account, they are accepted. If a gateway has a hostname
// that no pattern of the new hosts allows, the error is fault.Conflict. The account default keeps
// its name, its state and the right to every hostname.
func (s *Service) UpdateAccount(ctx context.Context, actor *Actor, accountID string, p AccountPatch, m Match) (*account.Account, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	if p.State.Value == string(account.Suspended) {
		ctx = Urgent(ctx)
	}
	return inTx(ctx, s, actor, func(w *work) (*account.Account, error) {
		before, err := existing(ctx, w, accountID)
		if err != nil {
			return nil, err
		}
		if err := require(m, before.Version); err != nil {
			return nil, err
		}
		a := *before
		p.apply(&a)
		if err := w.checkAccount(ctx, before, &a); err != nil {
			return nil, err
		}
		return &a, w.storeAccount(ctx, before, &a)
	})
}

// validate checks the fields of p, none of which can be removed except hosts.
func (p *AccountPatch) validate() error {
	a := account.Account{Name: "x", Tier: account.Starter}
	p.apply(&a)
	errs := []error{a.Validate()}
	for _, f := range []struct {
		name string
		null bool
	}{{"name", p.Name.Null}, {"plan", p.Tier.Null}, {"state", p.State.Null}} {
		if f.null {
			errs = append(errs, fault.Invalid(f.name, "cannot be removed"))
		}
	}
	if a.State != "" && a.State != account.Active && a.State != account.Suspended {
		errs = append(errs, fault.Invalid("state", "must be active or suspended"))
	}
	return fault.Join(errs...)
}

func (p *AccountPatch) apply(a *account.Account) {
	if p.Name.Present && !p.Name.Null {
		a.Name = p.Name.Value
	}
	if p.Tier.Present && !p.Tier.Null {
		a.Tier = account.Tier(p.Tier.Value)
	}
	if p.State.Present && !p.State.Null {
		a.State = account.State(p.State.Value)
	}
	if p.Hosts.Present {
		a.Hosts = lowered(p.Hosts.Value) // nil for null
	}
}

// checkAccount returns fault.Conflict if the account must not become a.
func (w *work) checkAccount(ctx context.Context, before, a *account.Account) error {
	if before.IsDefault() {
		switch {
		case a.Name != before.Name:
			return fault.New(fault.Conflict, "the account default is the operator's: it cannot be renamed")
		case a.State != account.Active:
			return fault.New(fault.Conflict, "the account default is the operator's: it cannot be suspended")
		case len(a.Hosts) > 0:
			return fault.New(fault.Conflict, "the account default may use every hostname: leave hosts out")
		}
		return nil
	}
	hostnames, err := w.GivenHostnames(ctx, a.ID)
	if err != nil {
		return err
	}
	var lost []string
	for _, h := range hostnames {
		if before.MayUse(h) && !a.MayUse(h) {
			lost = append(lost, h)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	named := strings.Join(lost[:min(len(lost), namedHostnames)], ", ")
	if more := len(lost) - namedHostnames; more > 0 {
		named += ", …"
	}
	return &fault.Error{Code: fault.Conflict, Field: "hosts", Message: "gateways of the account have hostnames that these patterns do not allow: " + named +
		": keep a pattern for each of them, or change the gateways first"}
}

// storeAccount stores a with a new version and its audit records, unless it equals before.
func (w *work) storeAccount(ctx context.Context, before, a *account.Account) error {
	diff := accountDiff(before, a)
	if len(diff) == 0 {
		return nil
	}
	a.Version = before.Version + 1
	if _, err := w.operatorOf(ctx, a); err != nil {
		return err
	}
	if err := w.UpdateAccount(ctx, a); err != nil {
		return err
	}
	if state, ok := diff["state"]; ok {
		delete(diff, "state")
		if err := w.setState(ctx, a, state); err != nil {
			return err
		}
	}
	if len(diff) > 0 {
		if err := w.auditAccount(ctx, audit.AccountUpdate, a, diff); err != nil {
			return err
		}
	}
	return w.changed(ctx, snapshot.AccountChange, a.ID)
}

// setState writes the audit record of the account's new state, and stops or resumes its
// deliveries.
func (w *work) setState(ctx context.Context, a *account.Account, values [2]any) error {
	action := audit.AccountResume
	if a.State == account.Suspended {
		action = audit.AccountSuspend
	} else {
		w.wake = true
	}
	return w.auditAccount(ctx, action, a, audit.Diff{"state": values})
}

// DeleteAccount deletes a suspended account and everything in it, except its audit log, which ends
// with its retention. It returns the account as it was. An account that is not suspended is
// fault.Conflict. If the account is large, records that are visible to nobody are still being
// removed when the call returns; a crash or a restart only delays that.
func (s *Service) DeleteAccount(ctx context.Context, actor *Actor, accountID string, m Match) (*account.Account, error) {
	if err := actor.authenticatedLately(); err != nil {
		return nil, err
	}
	deleted, err := inTx(ctx, s, actor, func(w *work) (*account.Account, error) {
		before, err := existing(ctx, w, accountID)
		if err != nil {
			return nil, err
		}
		if err := require(m, before.Version); err != nil {
			return nil, err
		}
		switch {
		case before.IsDefault():
			return nil, fault.New(fault.Conflict, "the account default is the operator's: it cannot be deleted")
		case before.State != account.Suspended:
			return nil, fault.New(fault.Conflict, "the account is active: suspend it first")
		}
		a := *before
		if _, err := w.operatorOf(ctx, before); err != nil {
			return nil, err
		}
		a.Name, a.State, a.Version = a.ID, account.Deleted, a.Version+1 // the name is free
		if err := w.UpdateAccount(ctx, &a); err != nil {
			return nil, err
		}
		if err := w.auditAccount(ctx, audit.AccountDelete, &a, accountDiff(before, nil)); err != nil {
			return nil, err
		}
		return before, w.changed(ctx, snapshot.AccountChange, a.ID)
	})
	if err != nil {
		return nil, err
	}
	if _, err := removeAccount(ctx, s.cfg.Store, accountID, removeAtOnce); err != nil {
		s.cfg.Log.WarnContext(ctx, "the records of a deleted account are not removed yet; the maintenance removes them", "account_id", accountID, "error", err)
	}
	return deleted, nil
}

// removeAccount removes records of a deleted account in up to the given number of
// transactions, so that other changes wait only briefly.
func removeAccount(ctx context.Context, store Store, accountID string, transactions int) (more bool, err error) {
	for more = true; more && err == nil && transactions > 0; transactions-- {
		err = store.Update(ctx, func(tx Tx) (err error) {
			more, err = tx.RemoveAccount(ctx, accountID, removeBatch)
			return err
		})
	}
	return more, err
}

// operatorOf returns the account whose log has what the operator does with a; "" if there is none yet. It is called
// before accounts are changed: to read an account afterwards, a store would have to hold up other transactions.
func (w *work) operatorOf(ctx context.Context, a *account.Account) (string, error) {
	if a.IsDefault() {
		return a.ID, nil
	}
	if w.operatorID != nil {
		return *w.operatorID, nil
	}
	operator, err := w.AccountByName(ctx, account.Default)
	switch {
	case err == nil:
		w.operatorID = &operator.ID
	case fault.CodeOf(err) == fault.NotFound:
		w.operatorID = new(string)
	default:
		return "", fmt.Errorf("find the operator's audit log: %w", err)
	}
	return *w.operatorID, nil
}

// auditAccount writes the audit record of an operator's action on a: to the operator's log, and
// to the account's own without the operator's key and address.
func (w *work) auditAccount(ctx context.Context, action audit.Action, a *account.Account, diff audit.Diff) error {
	r := w.auditRecord(action, a.ID, "", diff)
	operatorID, err := w.operatorOf(ctx, a)
	if err != nil {
		return err
	}
	if operatorID != "" {
		r.AccountID = operatorID
		if err := w.AppendAudit(ctx, r); err != nil || a.IsDefault() {
			return err
		}
	}
	return w.AppendAudit(ctx, &audit.Record{
		AccountID: a.ID, Time: r.Time, Kind: r.Kind, Outcome: r.Outcome, Action: action, Target: a.ID, Diff: diff,
	})
}

func accountDiff(before, after *account.Account) audit.Diff {
	return differ(accountFields(before), accountFields(after))
}

func accountFields(a *account.Account) fields {
	if a == nil {
		return nil
	}
	f := fields{"name": a.Name, "plan": string(a.Tier), "state": string(a.State), "hosts": nil}
	if len(a.Hosts) > 0 {
		f["hosts"] = a.Hosts
	}
	return f
}
