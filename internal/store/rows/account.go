package rows

import (
	"context"
	"database/sql"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
)

// AccountRemoved is the stored state of a deleted account whose records are removed, except for the
// audit log. Outside of the store, this state is account.Deleted too.
const AccountRemoved = "removed"

// AccountColumns selects accounts.
const AccountColumns = `SELECT id, name, plan, state, hosts, default_plan_id, created_at, version FROM accounts `

// ScanAccount returns the account of a row. If the error is not the engine's, the account has at least its identifier.
func ScanAccount(r *Row) (account.Account, error) {
	var (
		a account.Account
		c struct { // one allocation
			hosts, defaultPlan sql.NullString
			created            int64
		}
	)
	if err := r.Scan(&a.ID, &a.Name, &a.Tier, &a.State, &c.hosts, &c.defaultPlan, &c.created, &a.Version); err != nil {
		return a, err
	}
	if a.State == AccountRemoved {
		a.State = account.Deleted
	}
	a.DefaultPlanID, a.CreatedAt = c.defaultPlan.String, Instant(c.created)
	err := fromJSON(c.hosts, &a.Hosts)
	return a, err
}

func (t *Reader) account(ctx context.Context, where string, arg string) (*account.Account, error) {
	return readOne(ctx, t, "account", AccountColumns+where, []any{arg}, ScanAccount)
}

// Account implements control.AccountReader.
func (t *Reader) Account(ctx context.Context, accountID string) (*account.Account, error) {
	return t.account(ctx, `WHERE id = $1`, accountID)
}

// AccountByName implements control.AccountReader.
func (t *Reader) AccountByName(ctx context.Context, name string) (*account.Account, error) {
	return t.account(ctx, `WHERE name = $1`, name)
}

// Accounts implements control.AccountReader. There are few accounts, so no index serves the
// filters.
func (t *Reader) Accounts(ctx context.Context, f control.AccountFilter, p control.Page) ([]account.Account, error) {
	return t.SelectAccounts(ctx, `WHERE id < $1 AND state IN ('active', 'suspended') AND ($2 = '' OR state = $2) AND ($3 = '' OR plan = $3)
		AND strpos(lower(name), lower($4 COLLATE "C")) > 0 ORDER BY id DESC LIMIT $5`,
		Below(p.After), string(f.State), string(f.Tier), f.Query, Limit(p.Limit))
}

// DeletedAccounts implements control.AccountReader.
func (t *Reader) DeletedAccounts(ctx context.Context) ([]string, error) {
	return t.Texts(ctx, "find deleted accounts", `SELECT id FROM accounts INDEXED BY accounts_deleted WHERE state = 'deleted' ORDER BY id`)
}

// SelectAccounts reads the accounts that the rest of the query selects.
func (t *Reader) SelectAccounts(ctx context.Context, rest string, args ...any) ([]account.Account, error) {
	return readAll(ctx, t, "list accounts", AccountColumns+rest, args, ScanAccount)
}

// InsertAccount implements control.AccountStore.
func (t *Writer) InsertAccount(ctx context.Context, a *account.Account) error {
	hosts, err := maybeJSON(a.Hosts, len(a.Hosts) == 0)
	if err != nil {
		return err
	}
	return t.Queue(ctx, "insert account",
		`INSERT INTO accounts (id, name, plan, hosts, default_plan_id, created_at) VALUES ($1, $2, $3, $4, $5, $6)`,
		a.ID, a.Name, string(a.Tier), hosts, maybeText(a.DefaultPlanID), Micros(a.CreatedAt))
}

// UpdateAccount implements control.AccountStore.
func (t *Writer) UpdateAccount(ctx context.Context, a *account.Account) error {
	hosts, err := maybeJSON(a.Hosts, len(a.Hosts) == 0)
	if err != nil {
		return err
	}
	return t.QueueOne(ctx, "update account", "account", `UPDATE accounts SET name = $1, plan = $2, state = $3, hosts = $4, default_plan_id = $5, version = $6 WHERE id = $7`,
		a.Name, string(a.Tier), string(a.State), hosts, maybeText(a.DefaultPlanID), a.Version, a.ID)
}
