package sqlite

import (
	"bytes"
	"database/sql"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/store/storetest"
)

// oldDatabase returns the path of a database of the first schema, with an account.
func oldDatabase(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keygate.db")
	At(t, path, 1, func(db *sql.DB, _ int64) {
		if _, err := db.ExecContext(t.Context(), `INSERT INTO accounts (id, name, plan, created_at) VALUES ('acct_a', 'a', 'starter', 1)`); err != nil {
			t.Fatal(err)
		}
	})
	return path
}

// nextSchema returns the migrations of this binary and a made-up one, which renames the accounts.
func nextSchema(t *testing.T) (_ fs.FS, number int64) {
	t.Helper()
	files, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	return storetest.NextSchema(t, files, `UPDATE accounts SET name = name || ' of the next schema';`)
}

// Guarantee: a database with an earlier schema is migrated once, however many processes open it at the same time, and
// keeps its rows.
func TestMigrationBySeveralProcesses(t *testing.T) {
	path := oldDatabase(t)
	files, number := nextSchema(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			db, err := Open(t.Context(), Config{Path: path, migrations: files})
			if err != nil {
				t.Error(err)
				return
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if s, err := Inspect(t.Context(), path); err != nil || s.Current != number {
		t.Errorf("the database has the schema %d (%v), want %d", s.Current, err, number)
	}
	db, err := Open(t.Context(), Config{Path: path, migrations: files})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.View(t.Context(), func(tx control.ReadTx) error {
		a, err := tx.Account(t.Context(), "acct_a")
		if err == nil && a.Name != "a of the next schema" {
			t.Errorf("the account is named %q", a.Name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Guarantee: before an existing database is migrated it is copied, which the log says. The copy has the old
// schema and can be opened. A second start, a new database, and a start with the setting off make no copy.
func TestBackupBeforeMigrate(t *testing.T) {
	path := oldDatabase(t)
	// The part is removed; the previous copy, and other files, stay.
	for _, name := range []string{path + ".before-upgrade", path + ".before-0", filepath.Join(filepath.Dir(path), ".keygate.db.before-1-5")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	files, _ := nextSchema(t)
	open := func(path string, on bool) {
		t.Helper()
		db, err := Open(t.Context(), Config{Path: path, BackupBeforeMigrate: on, migrations: files, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	open(path, true)
	copies := func(path string) (names []string) {
		t.Helper()
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), ".before-") {
				names = append(names, e.Name())
			}
		}
		return names
	}
	if got := copies(path); len(got) != 3 || got[0] != "keygate.db.before-0" || got[1] != "keygate.db.before-1" || got[2] != "keygate.db.before-upgrade" || !strings.Contains(log.String(), "keygate.db.before-1 schema=1") {
		t.Errorf("got the copies %v and the log\n%s\nwant those of the schemas 0 and 1", got, log.String())
	}
	if s, err := Inspect(t.Context(), path+".before-1"); err != nil || s.Current != 1 {
		t.Errorf("the copy has the schema %d (%v), want 1", s.Current, err)
	}
	if err := os.Rename(path+".before-1", path+".old"); err != nil {
		t.Fatal(err)
	}
	open(path, true)
	if got := copies(path); len(got) != 2 {
		t.Errorf("a start without a migration: got the copies %v", got)
	}
	open(path+".old", false)
	open(filepath.Join(t.TempDir(), "keygate.db"), true)
	if got := copies(path); len(got) != 2 {
		t.Errorf("with the setting off: got the copies %v", got)
	}
}

// Guarantee: a copy that cannot be made before a migration is an error that names the setting, and
// the database is not changed.
func TestBackupBeforeMigrateFails(t *testing.T) {
	path := oldDatabase(t)
	if err := os.MkdirAll(filepath.Join(path+".before-1", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	files, _ := nextSchema(t)
	if _, err := Open(t.Context(), Config{Path: path, BackupBeforeMigrate: true, migrations: files}); err == nil || !strings.Contains(err.Error(), "set --backup-before-migrate=false") {
		t.Errorf("got the error %v, want one that names the setting", err)
	}
	if s, err := Inspect(t.Context(), path); err != nil || s.Current != 1 {
		t.Errorf("the database has the schema %d (%v), want 1", s.Current, err)
	}
}

// Guarantee: the two copies with the highest numbers are kept, because the newest may belong to an
// interrupted upgrade.
func TestTwoCopiesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	for _, schema := range []string{"9", "10", "11"} {
		if err := os.WriteFile(path+beforeMigration+schema, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeOldCopies(Config{Path: path, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(path + beforeMigration + "*")
	if err != nil || len(left) != 2 || left[0] != path+".before-10" || left[1] != path+".before-11" {
		t.Errorf("got %v, %v, want the copies of the schemas 10 and 11", left, err)
	}
}

// Guarantee: the owners that keys of a database of the first schema name become owners.
func TestOwnersOfOldKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	At(t, path, 1, func(db *sql.DB, _ int64) {
		if err := storetest.InsertOldKeys(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	})
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	storetest.CheckOldKeys(t, db)
}
