package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/secret"
	"github.com/keygate/keygate/internal/store/sqlite"
)

// secretSuffix is what the name of a secret key's backup has in addition to the name of the backup beside it.
const secretSuffix = ".secret.key"

// StoreBackup is what Backup did.
type StoreBackup struct {
	File      string  `json:"file"`
	Bytes     int64   `json:"bytes"`
	Schema    int64   `json:"schema"`
	SecretKey *string `json:"secret_key_file"` // the copy of the secret key; null without one
}

// BackupOptions are the options of Backup.
type BackupOptions struct {
	SecretKey bool // copy the secret key, too
	Force     bool // replace files that exist
}

// Backup copies the SQLite store in the data directory of settings to a file, and checks the copy. A
// server may be running on the directory. With SecretKey, the secret key is written to a second file,
// whose name is the name of the first with ".secret.key" added. Both have mode 0600.
func Backup(ctx context.Context, settings *config.Config, file string, options BackupOptions) (*StoreBackup, error) {
	if settings.Shared() {
		return nil, errors.New("a backup is of a data directory, and --database-url names a PostgreSQL database: use pg_dump, or the point-in-time recovery of the database")
	}
	if found, err := hasDatabase(settings); err != nil || !found {
		return nil, errors.Join(fmt.Errorf("no store in %s: set another --data-dir", settings.DataDir), err)
	}
	if err := refuseMoved(settings.DataDir); err != nil {
		return nil, err
	}
	files := []string{file}
	if options.SecretKey {
		files = append(files, file+secretSuffix)
	}
	for _, path := range files {
		if err := checkTarget(settings, path, options.Force); err != nil {
			return nil, err
		}
	}
	var key []byte
	if options.SecretKey {
		var err error
		if key, err = secretKey(settings); err != nil {
			return nil, err
		}
	}
	info, err := sqlite.Backup(ctx, settings.DatabaseFile(), file)
	if err != nil {
		return nil, err
	}
	done := &StoreBackup{File: file, Bytes: info.Bytes, Schema: info.Schema}
	if options.SecretKey {
		if err := writeFileAtomically(files[1], key); err != nil {
			return nil, fmt.Errorf("the database was copied, and the secret key was not: %w", err)
		}
		done.SecretKey = &files[1]
	}
	return done, nil
}

// checkTarget returns an error if a backup must not be written to path.
func checkTarget(settings *config.Config, path string, force bool) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return fmt.Errorf("the directory of the backup: %w", err)
		}
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: name another one", path)
	}
	for _, own := range []string{settings.DatabaseFile(), settings.DatabaseFile() + "-wal", settings.DatabaseFile() + "-shm", settings.SecretKeyFile, settings.LockFile(), settings.AdminKeyFile()} {
		if used, err := os.Stat(own); err == nil && os.SameFile(info, used) {
			return fmt.Errorf("%s is used by the server: name another file", path)
		}
	}
	if !force {
		return fmt.Errorf("%s exists: name another file, or replace it with --force", path)
	}
	return nil
}

// secretKey returns the secret key of the store.
func secretKey(settings *config.Config) ([]byte, error) {
	box, err := givenBox(settings)
	if err == nil {
		err = matchFingerprint(settings, box)
	}
	if err != nil {
		return nil, err
	}
	if settings.SecretKey != "" {
		return []byte(settings.SecretKey), nil
	}
	return os.ReadFile(settings.SecretKeyFile)
}

// matchFingerprint is checkFingerprint, and writes nothing.
func matchFingerprint(settings *config.Config, box *secret.Box) error {
	if found, err := exists(settings.FingerprintFile()); err != nil || !found {
		return err
	}
	return checkFingerprint(settings, box, settings.SecretKey != "")
}

// StoreRestore is what Restore did.
type StoreRestore struct {
	DataDir string `json:"data_dir"`
	Bytes   int64  `json:"bytes"`
	Schema  int64  `json:"schema"`
	// SecretKey says whether the secret key is there: "checked" if it decrypts a value of each kind that is
	// encrypted in the backup, "present" if the backup has no encrypted value, or "missing".
	SecretKey     string `json:"secret_key"`
	SecretKeyFile string `json:"secret_key_file"`
}

// The values of StoreRestore.SecretKey.
const (
	KeyChecked = "checked"
	KeyPresent = "present"
	KeyMissing = "missing"
)

// restoring is the name of the file in a data directory that a backup is copied to at first.
const restoring = ".keygate.db.restoring"

// Restore copies a backup, and the secret key if it is beside it, into the data directory of settings,
// which must have no database and must not be used by a server. The directory is created if it does
// not exist. If the data directory has a secret key that is not the backup's, or the backup has a
// newer schema than this binary supports, nothing is restored.
func Restore(ctx context.Context, settings *config.Config, file string) (*StoreRestore, error) {
	if settings.Shared() {
		return nil, errors.New("a backup is restored into a data directory, and --database-url names a PostgreSQL database: use pg_restore or psql, or the point-in-time recovery of the database")
	}
	if info, err := os.Stat(file); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: name a file that keygate backup has made", file)
	}
	// No directory is created for a backup that cannot be restored.
	if _, err := sqlite.Inspect(ctx, file); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(settings.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", err)
	}
	if holder, locked, err := lockHolder(settings.LockFile()); err != nil {
		return nil, fmt.Errorf("read the lock of the data directory: %w", err)
	} else if locked {
		return nil, fmt.Errorf("another server%s uses the data directory %s: stop it, or set another --data-dir", holder, settings.DataDir)
	}
	if err := checkVacant(settings.DataDir, file); err != nil {
		return nil, err
	}
	lock, err := takeLock(ctx, settings.LockFile())
	if err != nil {
		return nil, err
	}
	defer lock.release()
	if err := checkVacant(settings.DataDir, file); err != nil { // again, since another restore may have ended
		return nil, err
	}
	if err := removeParts(settings.DataDir); err != nil {
		return nil, err
	}
	part := filepath.Join(settings.DataDir, restoring)
	defer func() { _ = os.Remove(part) }() // there is none after the rename
	info, err := sqlite.Restore(ctx, file, part)
	if err != nil {
		return nil, err
	}
	done := &StoreRestore{DataDir: settings.DataDir, Bytes: info.Bytes, Schema: info.Schema, SecretKeyFile: settings.SecretKeyFile}
	if done.SecretKey, err = restoreKey(ctx, settings, part, file+secretSuffix); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Rename(part, settings.DatabaseFile()), syncDir(settings.DataDir)); err != nil {
		return nil, fmt.Errorf("put the database in place: %w", err)
	}
	return done, nil
}

// removeParts removes the files of restores that were ended before they could do so.
func removeParts(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if isPart(e.Name()) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// isPart reports whether name is restoring, or the name of a file that is to be renamed to restoring.
func isPart(name string) bool { return name == restoring || strings.HasPrefix(name, "."+restoring+"-") }

// checkVacant returns an error if a backup cannot be restored into dir, because it has a database or
// unrelated files. It may have the files that a lost database leaves, and the backup itself.
func checkVacant(dir, backup string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the data directory: %w", err)
	}
	from, err := os.Stat(backup)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		switch name := e.Name(); {
		case os.SameFile(info, from):
		case name == "keygate.db" && info.Mode().IsRegular() && info.Size() == 0:
		case name == "keygate.db", name == "keygate.db-wal", name == "keygate.db-shm":
			return fmt.Errorf("%s exists, and a backup is restored only where there is no database: move keygate.db, keygate.db-wal and keygate.db-shm out of %s, or set another --data-dir", path, dir)
		case name == moveFile:
			return fmt.Errorf("the store in %s was moved to PostgreSQL: set another --data-dir", dir)
		case name == "admin.key", name == "secret.key", name == "secret.fingerprint", name == "keygate.lock", name == "repositories",
			name == "lost+found", isPart(name), strings.HasPrefix(name, "keygate.db.before-"),
			name == filepath.Base(backup)+secretSuffix:
		default:
			return fmt.Errorf("%s exists: a backup is restored into an empty directory, which may have only secret.key and what a lost database has left: set another --data-dir", path)
		}
	}
	return nil
}

// restoreKey checks the secret key against the restored database at path. If there is none, it takes
// the key in the file copy, if that file exists.
func restoreKey(ctx context.Context, settings *config.Config, path, copied string) (state string, err error) {
	box, err := givenBox(settings)
	source := settings.SecretKeyFile
	if settings.SecretKey != "" {
		source = config.SecretKeyVariable
	}
	fromCopy := false
	if errors.Is(err, fs.ErrNotExist) {
		box, err = secret.Load(copied)
		if errors.Is(err, fs.ErrNotExist) {
			return KeyMissing, nil
		}
		fromCopy, source = true, copied
	}
	if err != nil {
		return "", err
	}
	if err := matchFingerprint(settings, box); err != nil {
		return "", err
	}
	sealed, err := sqlite.SealedValues(ctx, path)
	if err != nil {
		return "", err
	}
	state = KeyPresent
	for _, s := range sealed {
		if !opensSome(box, s.Values) {
			return "", fmt.Errorf("the secret key in %s is not the one that the backup was made with: it does not decrypt its %s, and nothing was restored: put the right key there, or set --secret-key-file or %s", source, s.Kind, config.SecretKeyVariable)
		}
		state = KeyChecked
	}
	if !fromCopy {
		return state, nil
	}
	key, err := os.ReadFile(copied)
	if err == nil {
		err = writeFileAtomically(settings.SecretKeyFile, key)
	}
	if err != nil {
		return "", fmt.Errorf("copy the secret key to %s: %w", settings.SecretKeyFile, err)
	}
	return state, nil
}

// opensSome reports whether a key decrypts one of the values. Others may be damaged.
func opensSome(box *secret.Box, values [][]byte) bool {
	return slices.ContainsFunc(values, func(sealed []byte) bool {
		_, err := box.Open(sealed)
		return err == nil
	})
}
