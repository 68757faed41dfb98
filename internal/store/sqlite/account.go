package sqlite

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/account"
)

const accountColumns = `SELECT id, name, plan, hosts, created_at FROM accounts `

func scanAccount(r *sql.Rows) (account.Account, error) {
	var (
		a       account.Account
		hosts   sql.NullString
		created int64
	)
	if err := r.Scan(&a.ID, &a.Name, &a.Plan, &hosts, &created); err != nil {
		return a, err
	}
	a.CreatedAt = instant(created)
	err := fromJSON(hosts, &a.Hosts)
	return a, err
}

func (t *readTx) account(ctx context.Context, where string, arg string) (*account.Account, error) {
	var a account.Account
	err := t.row(ctx, "account", accountColumns+where, []any{arg}, func(r *sql.Rows) (err error) {
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

// InsertAccount implements control.AccountStore.
func (t *tx) InsertAccount(ctx context.Context, a *account.Account) error {
	hosts, err := maybeJSON(a.Hosts, len(a.Hosts) == 0)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, "insert account",
		`INSERT INTO accounts (id, name, plan, hosts, created_at) VALUES (?, ?, ?, ?, ?)`,
		a.ID, a.Name, string(a.Plan), hosts, micros(a.CreatedAt))
	return err
}

func (t *readTx) accounts(ctx context.Context) ([]account.Account, error) {
	var all []account.Account
	err := t.rows(ctx, "list accounts", accountColumns+`ORDER BY id`, nil, func(r *sql.Rows) error {
		a, err := scanAccount(r)
		all = append(all, a)
		return err
	})
	return all, err
}
