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

// firstKeys is what the first start needs of the operations.
type firstKeys interface {
	FirstStart(ctx context.Context) (secret string, err error)
}

// firstStart makes the account default and its admin key in an empty store and
// writes the key to admin.key. It tells w the key if w is a terminal, else where
// the file is (contract, section 1).
//
// A process that dies between the two would leave a key that nobody knows. So a
// mark stands beside the file until it is written: whoever finds the mark and
// no new account makes the key again, by remake.
func firstStart(ctx context.Context, settings *config.Config, ops firstKeys, remake func(ctx context.Context, accountName string) (string, error), w io.Writer, isTerminal bool) error {
	path := settings.AdminKeyFile()
	mark := path + ".pending"
	interrupted, err := exists(mark)
	if err != nil {
		return err
	}
	if !interrupted {
		// Before the store can change. It goes again if the store was not empty.
		if err := writeFileAtomically(mark, nil); err != nil {
			return fmt.Errorf("prepare the admin key's file: %w", err)
		}
	}
	secret, err := ops.FirstStart(ctx)
	if err != nil {
		return err
	}
	if secret == "" && interrupted {
		if secret, err = remake(ctx, account.Default); err != nil {
			return fmt.Errorf("make the admin key again after an interrupted first start: %w", err)
		}
	}
	if secret != "" {
		if err := writeFileAtomically(path, []byte(secret+"\n")); err != nil {
			return fmt.Errorf("write the admin key: %w", err)
		}
	}
	if err := os.Remove(mark); err != nil {
		return fmt.Errorf("finish the first start: %w", err)
	}
	switch {
	case secret == "":
	case isTerminal:
		fmt.Fprintf(w, "The admin key is %s\nIt is also in %s. It is shown this once.\n", secret, path)
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
