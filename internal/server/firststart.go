package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/secret"
)

// firstKeys is the part of control.Service that the first start needs.
type firstKeys interface {
	FirstStart(ctx context.Context, given string) (secret string, err error)
	FirstNode(ctx context.Context, given string) (secret string, err error)
}

// A first start writes, in this order: the marker file admin.key.pending, secret.key, the
// database, the account default with its key, and admin.key. It then removes the marker. So a
// start that finds the marker continues a first start that was interrupted, at whatever point.
// A start that finds secret.key or admin.key, but neither the marker nor a database, has lost the
// database, and does not begin anew.

func pendingFile(settings *config.Config) string { return settings.AdminKeyFile() + ".pending" }

// prepareFirstStart writes the marker if this is a first start. It refuses to start if the database
// is missing, or if others may read admin.key (contract, section 1). It comes before anything else
// is written.
func prepareFirstStart(settings *config.Config) error {
	info, err := os.Stat(settings.AdminKeyFile())
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("admin key file %s is not a regular file: remove it, or restore the file", settings.AdminKeyFile())
	}
	if err == nil {
		err = secret.CheckPrivate("admin key file", settings.AdminKeyFile(), info)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if settings.Shared() { // the database itself says whether this is the first start
		return nil
	}
	pending, err := exists(pendingFile(settings))
	if err != nil || pending {
		return err
	}
	if found, err := hasDatabase(settings); err != nil || found {
		return err
	}
	left := []string{settings.AdminKeyFile(), settings.FingerprintFile()}
	// A secret key file elsewhere may have been put there for this first start.
	if filepath.Dir(settings.SecretKeyFile) == filepath.Clean(settings.DataDir) {
		left = append(left, settings.SecretKeyFile)
	}
	for _, path := range left {
		if found, err := exists(path); err != nil {
			return err
		} else if found {
			return errVanished(settings, path)
		}
	}
	if err := writeFileAtomically(pendingFile(settings), nil); err != nil {
		return fmt.Errorf("prepare the admin key's file: %w", err)
	}
	return nil
}

// errVanished is the error of a start that finds the file at path from an earlier start, and
// no accounts.
func errVanished(settings *config.Config, path string) error {
	return fmt.Errorf("the database %s is missing or empty, but %s exists, so this is not a first start: mount its volume or restore the database from a backup; "+
		"to start anew with nothing, move admin.key, secret.key, secret.fingerprint and the database out of %s", settings.DatabaseFile(), path, settings.DataDir)
}

// firstStart creates the account default and its admin key, if prepareFirstStart wrote the
// marker, and writes the key to admin.key. To w it prints the key if w is a terminal, else the
// path of the file (contract, section 1). A key from the environment is neither written nor
// printed.
//
// If the process died after creating the key and before writing it, the key is lost, and firstStart
// creates another key with replaceKey. It never overwrites admin.key.
func firstStart(ctx context.Context, settings *config.Config, ops firstKeys, replaceKey func(ctx context.Context, accountName string) (string, error), w io.Writer, isTerminal bool) error {
	if settings.Shared() {
		return firstNode(ctx, settings, ops, w, isTerminal)
	}
	pending, err := exists(pendingFile(settings))
	if err != nil || !pending {
		return err
	}
	path := settings.AdminKeyFile()
	written, err := exists(path)
	if err != nil {
		return err
	}
	key, given := "", string(settings.AdminKey)
	if !written {
		if key, err = ops.FirstStart(ctx, given); err != nil {
			return err
		}
	}
	if !written && given == "" {
		if key == "" {
			if key, err = replaceKey(ctx, account.Default); err != nil {
				return fmt.Errorf("create another admin key after an interrupted first start: %w", err)
			}
		}
		if err := writeFileAtomically(path, []byte(key+"\n")); err != nil {
			return fmt.Errorf("write the admin key: %w", err)
		}
	}
	if err := errors.Join(os.Remove(pendingFile(settings)), syncDir(settings.DataDir)); err != nil {
		return fmt.Errorf("finish the first start: %w", err)
	}
	announce(w, isTerminal, settings, key)
	return nil
}

// firstNode creates the account default and its admin key, if no other node has, and writes a new
// key to admin.key as firstStart does. If the process dies before that, the key is lost, and the
// command keygate account key creates another.
func firstNode(ctx context.Context, settings *config.Config, ops firstKeys, w io.Writer, isTerminal bool) error {
	key, err := ops.FirstNode(ctx, string(settings.AdminKey))
	if err != nil || key == "" {
		return err
	}
	if settings.AdminKey == "" {
		if err := writeFileAtomically(settings.AdminKeyFile(), []byte(key+"\n")); err != nil {
			return fmt.Errorf("write the admin key: %w; create another one with keygate account key", err)
		}
	}
	announce(w, isTerminal, settings, key)
	return nil
}

// announce prints to w where the first key is.
func announce(w io.Writer, isTerminal bool, settings *config.Config, key string) {
	path := settings.AdminKeyFile()
	switch {
	case key == "":
	case settings.AdminKey != "":
		fmt.Fprintf(w, "The admin key is the one in the environment variable %s\n", config.AdminKeyVariable)
	case isTerminal:
		fmt.Fprintf(w, "The admin key is %s\nIt is shown only once here, and stored in %s.\n", key, path)
	default:
		fmt.Fprintf(w, "The admin key is in %s\n", path)
	}
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
