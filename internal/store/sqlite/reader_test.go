package sqlite_test

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// content returns the digests of a database and its write-ahead log; the latter must be there.
func content(t *testing.T, path string) (all [2][sha256.Size]byte) {
	t.Helper()
	for i, name := range []string{path, path + "-wal"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = sha256.Sum256(b)
	}
	return all
}

// Guarantee: a reader changes neither a database nor its write-ahead log, while a server has it open, after the
// server was killed, and if only these two files were copied. It also reads the changes in the log.
func TestReadersChangeNothing(t *testing.T) {
	path := sqlitetest.Path(t)
	// A store would write its log back by itself at some time.
	db := raw(t, path)
	execRaw(t, db, `PRAGMA wal_autocheckpoint = 0`)
	execRaw(t, db, `INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_a', 'a', 'starter', 0)`)
	copyTo := func(suffixes ...string) string {
		t.Helper()
		to := filepath.Join(t.TempDir(), "keygate.db")
		for _, suffix := range suffixes {
			b, err := os.ReadFile(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to+suffix, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return to
	}
	for what, path := range map[string]string{
		"with a server": path, "after a kill": copyTo("", "-wal", "-shm"), "without -shm": copyTo("", "-wal"),
	} {
		before := content(t, path)
		backup, restored := filepath.Join(t.TempDir(), "backup.db"), filepath.Join(t.TempDir(), "restored.db")
		_, inspectErr := sqlite.Inspect(t.Context(), path)
		_, sealedErr := sqlite.SealedValues(t.Context(), path)
		_, backupErr := sqlite.Backup(t.Context(), path, backup)
		_, restoreErr := sqlite.Restore(t.Context(), path, restored)
		if err := errors.Join(inspectErr, sealedErr, backupErr, restoreErr); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if content(t, path) != before {
			t.Errorf("%s: the database or its log was changed", what)
		}
		for _, to := range []string{backup, restored} {
			if got := accountNames(t, sqlitetest.Open(t, sqlite.Config{Path: to})); got != "a" {
				t.Errorf("%s: the copy has the accounts %q, want a", what, got)
			}
		}
	}
}

// Guarantee: a database that nobody has open is read without creating a file beside it.
func TestReadersLeaveNoFiles(t *testing.T) {
	path := sqlitetest.Path(t)
	if _, err := sqlite.Inspect(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Backup(t.Context(), path, filepath.Join(t.TempDir(), "backup.db")); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + suffix); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there: %v", suffix, err)
		}
	}
}
