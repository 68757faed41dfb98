package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
)

// NewAccount is an account just made, with its first key.
type NewAccount struct {
	AccountID string    `json:"account_id"`
	Name      string    `json:"name"`
	Plan      string    `json:"plan"`
	Hosts     []string  `json:"hosts"`
	CreatedAt time.Time `json:"created_at"`
	KeyID     string    `json:"key_id"`
	Key       string    `json:"key"`
}

// NewAccountKey is an account-level key just made.
type NewAccountKey struct {
	KeyID string `json:"key_id"`
	Name  string `json:"name"`
	Scope string `json:"scope"`
	Key   string `json:"key"`
}

// CreateAccount makes an account in the store itself, whether a server runs on
// it or not; a running one has it in force within a second. Errors about what
// was given are of package fault.
func CreateAccount(ctx context.Context, settings *config.Config, log *slog.Logger, name, plan string, hosts []string) (*NewAccount, error) {
	var made *NewAccount
	err := offline(ctx, settings, log, func(ops *control.Service) error {
		a, k, err := ops.CreateAccount(ctx, name, account.Plan(plan), hosts)
		if err != nil {
			return err
		}
		made = &NewAccount{AccountID: a.ID, Name: a.Name, Plan: string(a.Plan), Hosts: append([]string{}, a.Hosts...), CreatedAt: a.CreatedAt, KeyID: k.ID, Key: k.Secret}
		return nil
	})
	return made, err
}

// CreateAccountKey makes an account-level key with the scope admin for an
// account, as CreateAccount does.
func CreateAccountKey(ctx context.Context, settings *config.Config, log *slog.Logger, accountName, keyName string) (*NewAccountKey, error) {
	var made *NewAccountKey
	err := offline(ctx, settings, log, func(ops *control.Service) error {
		k, err := ops.CreateAccountKey(ctx, accountName, keyName)
		if err != nil {
			return err
		}
		made = &NewAccountKey{KeyID: k.ID, Name: k.Name, Scope: k.Scope.String(), Key: k.Secret}
		return nil
	})
	return made, err
}

// nobody is the Publisher of an offline command: this process has no data
// plane. A running server follows the store's change log by itself.
type nobody struct{}

// CatchUp has nothing to bring up to date.
func (nobody) CatchUp(context.Context) error { return nil }

// offline runs f on the store in the data directory, which must be there: to
// make one in a directory given by mistake would only hide the mistake.
func offline(ctx context.Context, settings *config.Config, log *slog.Logger, f func(*control.Service) error) (err error) {
	if _, err := os.Stat(settings.DatabaseFile()); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no store in %s: start the server there once, or give another --data-dir", settings.DataDir)
	}
	db, box, err := openStore(ctx, settings, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ops, err := newControl(settings, db, box, surroundings{publisher: nobody{}}, log)
	if err != nil {
		return err
	}
	return f(ops)
}
