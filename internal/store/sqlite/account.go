package sqlite

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/rows"
)

// stateRemoved is the stored state of a deleted account whose records are removed, except for
// the audit log. Outside of the store it is account.Deleted too.
const stateRemoved = "removed"

const accountColumns = `SELECT id, name, plan, state, hosts, created_at, version FROM accounts `

func scanAccount(r rows.Row) (account.Account, error) {
	var (
		a       account.Account
		hosts   sql.NullString
		created int64
	)
	if err := r.Scan(&a.ID, &a.Name, &a.Plan, &a.State, &hosts, &created, &a.Version); err != nil {
		return a, err
	}
	if a.State == stateRemoved {
		a.State = account.Deleted
	}
	a.CreatedAt = rows.Instant(created)
	err := fromJSON(hosts, &a.Hosts)
	return a, err
}

func (t *readTx) account(ctx context.Context, where string, arg string) (*account.Account, error) {
	var a account.Account
	err := t.QueryRow(ctx, "account", accountColumns+where, []any{arg}, func(r rows.Row) (err error) {
		a, err = scanAccount(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &a, nil
}

// Account implements control.AccountReader.
func (t *readTx) Account(ctx context.Context, accountID string) (*account.Account, error) {
	return t.account(ctx, `WHERE id = ?`, accountID)
}

// AccountByName implements control.AccountReader.
func (t *readTx) AccountByName(ctx context.Context, name string) (*account.Account, error) {
	return t.account(ctx, `WHERE name = ?`, name)
}

// Accounts implements control.AccountReader. There are few accounts, so no index serves the
// filters.
func (t *readTx) Accounts(ctx context.Context, f control.AccountFilter, p control.Page) ([]account.Account, error) {
	return t.accounts(ctx, `WHERE id < ? AND state IN ('active', 'suspended') AND (? = '' OR state = ?) AND (? = '' OR plan = ?)
		AND instr(lower(name), lower(?)) > 0 ORDER BY id DESC LIMIT ?+0`,
		rows.Below(p.After), string(f.State), string(f.State), string(f.Plan), string(f.Plan), f.Query, rows.Limit(p.Limit))
}

// DeletedAccounts implements control.AccountReader.
func (t *readTx) DeletedAccounts(ctx context.Context) ([]string, error) {
	return t.Texts(ctx, "find deleted accounts", `SELECT id FROM accounts INDEXED BY accounts_deleted WHERE state = 'deleted' ORDER BY id`)
}

// accounts reads the accounts that the rest of the query selects.
func (t *readTx) accounts(ctx context.Context, rest string, args ...any) ([]account.Account, error) {
	var all []account.Account
	err := t.Query(ctx, "list accounts", accountColumns+rest, args, func(r rows.Row) error {
		a, err := scanAccount(r)
		all = append(all, a)
		return err
	})
	return all, err
}

// InsertAccount implements control.AccountStore.
func (t *tx) InsertAccount(ctx context.Context, a *account.Account) error {
	hosts, err := maybeJSON(a.Hosts, len(a.Hosts) == 0)
	if err != nil {
		return err
	}
	_, err = t.Exec(ctx, "insert account",
		`INSERT INTO accounts (id, name, plan, hosts, created_at) VALUES (?, ?, ?, ?, ?)`,
		a.ID, a.Name, string(a.Plan), hosts, rows.Micros(a.CreatedAt))
	return err
}

// UpdateAccount implements control.AccountStore.
func (t *tx) UpdateAccount(ctx context.Context, a *account.Account) error {
	hosts, err := maybeJSON(a.Hosts, len(a.Hosts) == 0)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "update account", "account", `UPDATE accounts SET name = ?, plan = ?, state = ?, hosts = ?, version = ? WHERE id = ?`,
		a.Name, string(a.Plan), string(a.State), hosts, a.Version, a.ID)
}

// suspended reports whether an account is not active, so that its endpoints wait. It reads
// each account only once and keeps the answer in known.
func (t *readTx) suspended(ctx context.Context, known map[string]bool, accountID string) (bool, error) {
	if is, ok := known[accountID]; ok {
		return is, nil
	}
	a, err := t.Account(ctx, accountID)
	if err != nil {
		return false, err
	}
	known[accountID] = a.State != account.Active
	return known[accountID], nil
}
