package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/config"
)

// firstKeys is the part of control.Service that the first start needs.
type firstKeys interface {
	FirstStart(ctx context.Context) (secret string, err error)
}

// firstStart creates the account default and its admin key in an empty store and writes
// the key to admin.key. To w it prints the key if w is a terminal, else the path of the
// file (contract, section 1).
//
// If the process died after creating the key and before writing it, the key would be
// lost. Therefore a marker file exists until admin.key is written. A start that finds
// the marker, and a store that is not empty, creates another key with replaceKey.
func firstStart(ctx context.Context, settings *config.Config, ops firstKeys, replaceKey func(ctx context.Context, accountName string) (string, error), w io.Writer, isTerminal bool) error {
	path := settings.AdminKeyFile()
	marker := path + ".pending"
	interrupted, err := exists(marker)
	if err != nil {
		return err
	}
	if !interrupted {
		// Before the store changes. It is removed below even if the store was not empty.
		if err := writeFileAtomically(marker, nil); err != nil {
			return fmt.Errorf("prepare the admin key's file: %w", err)
		}
	}
	secret, err := ops.FirstStart(ctx)
	if err != nil {
		return err
	}
	if secret == "" && interrupted {
		if secret, err = replaceKey(ctx, account.Default); err != nil {
			return fmt.Errorf("create another admin key after an interrupted first start: %w", err)
		}
	}
	if secret != "" {
		if err := writeFileAtomically(path, []byte(secret+"\n")); err != nil {
			return fmt.Errorf("write the admin key: %w", err)
		}
	}
	if err := os.Remove(marker); err != nil {
		return fmt.Errorf("finish the first start: %w", err)
	}
	switch {
	case secret == "":
	case isTerminal:
		fmt.Fprintf(w, "The admin key is %s\nIt is also in %s. It is shown only once.\n", secret, path)
	default:
		fmt.Fprintf(w, "The admin key is in %s\n", path)
	}
	return nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
