package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/snapshot"
)

// NewAccount is an account that was just created, with its first key.
type NewAccount struct {
	AccountID string    `json:"account_id"`
	Name      string    `json:"name"`
	Plan      string    `json:"plan"`
	Hosts     []string  `json:"hosts"`
	CreatedAt time.Time `json:"created_at"`
	KeyID     string    `json:"key_id"`
	Key       string    `json:"key"`
}

// NewAccountKey is an account-level key that was just created.
type NewAccountKey struct {
	KeyID string `json:"key_id"`
	Name  string `json:"name"`
	Scope string `json:"scope"`
	Key   string `json:"key"`
}

// CreateAccount creates an account directly in the store. A server may run on the same
// store; it uses the account within a second. Errors of validation are of package fault.
func CreateAccount(ctx context.Context, settings *config.Config, log *slog.Logger, name, plan string, hosts []string) (*NewAccount, error) {
	var created *NewAccount
	err := offline(ctx, settings, log, func(ops *control.Service) error {
		a, k, err := ops.CreateAccount(ctx, name, account.Tier(plan), hosts)
		if err != nil {
			return err
		}
		created = &NewAccount{AccountID: a.ID, Name: a.Name, Plan: string(a.Tier), Hosts: append([]string{}, a.Hosts...), CreatedAt: a.CreatedAt, KeyID: k.ID, Key: k.Secret}
		return nil
	})
	return created, err
}

// CreateAccountKey creates an account-level key with the scope admin, directly in the
// store, as CreateAccount does.
func CreateAccountKey(ctx context.Context, settings *config.Config, log *slog.Logger, accountName, keyName string) (*NewAccountKey, error) {
	var created *NewAccountKey
	err := offline(ctx, settings, log, func(ops *control.Service) error {
		k, err := ops.CreateAccountKey(ctx, accountName, keyName)
		if err != nil {
			return err
		}
		created = &NewAccountKey{KeyID: k.ID, Name: k.Name, Scope: k.Scope.String(), Key: k.Secret}
		return nil
	})
	return created, err
}

// noDataPlane is the Publisher of an offline command, whose process has no data plane. A
// running server follows the store's change log by itself.
type noDataPlane struct{}

// CatchUp does nothing.
func (noDataPlane) CatchUp(context.Context, ...snapshot.Change) error { return nil }

// offline runs f on the store. A store in the data directory must exist: creating it in a mistyped
// directory would hide the mistake.
func offline(ctx context.Context, settings *config.Config, log *slog.Logger, f func(*control.Service) error) (err error) {
	if found, err := hasDatabase(settings); err == nil && !found && !settings.Shared() {
		return fmt.Errorf("no store in %s: start a server there once, or set another --data-dir", settings.DataDir)
	}
	// Without the lock of the directory, the store may be moved at any time.
	db, box, err := openStore(ctx, settings, "", log, func() error { return refuseMoved(settings.DataDir) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ops, err := newControl(settings, db, box, dependencies{publisher: noDataPlane{}}, log)
	if err != nil {
		return err
	}
	return f(ops)
}
