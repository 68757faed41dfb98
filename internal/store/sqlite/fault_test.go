package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/store/sqlite"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// unavailable checks that err is fault.Unavailable, and that its public message contains want
// and nothing from the driver.
func unavailable(t *testing.T, err error, want string) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != fault.Unavailable {
		t.Fatalf("got %v, want the code %s", err, fault.Unavailable)
	}
	if !strings.Contains(e.Message, want) {
		t.Errorf("got the message %q, want one that contains %q", e.Message, want)
	}
	_, response := fault.Response(err, "req_x")
	body, _, _ := bytes.Cut(response, []byte("request_id"))
	for _, internal := range []string{"SQLITE", "sqlite", "(5)", "(8)", "(26)", "/"} {
		if bytes.Contains(body, []byte(internal)) {
			t.Errorf("the response %s contains %q", body, internal)
		}
	}
}

// raw opens the file like another program would.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execRaw(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// made returns the path of a closed store with the account "kept".
func made(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keygate.db")
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	insertAccount(t, db, "kept")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func tryAccount(ctx context.Context, db *sqlite.DB, name string) error {
	a := account.Account{ID: id.New(id.Account), Name: name, Tier: account.Scale, CreatedAt: time.Now()}
	return db.Update(ctx, func(tx control.Tx) error { return tx.InsertAccount(ctx, &a) })
}

func insertAccount(t *testing.T, db *sqlite.DB, name string) {
	t.Helper()
	if err := tryAccount(t.Context(), db, name); err != nil {
		t.Fatal(err)
	}
}

// accountNames returns the names of all accounts, in the order of creation.
func accountNames(t *testing.T, db *sqlite.DB) string {
	t.Helper()
	all, err := db.Accounts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range all {
		names = append(names, all[i].Name)
	}
	return strings.Join(names, " ")
}

// Guarantee: while another process has locked the file for writing, it can be read, and a change
// fails with a clear error. It succeeds once the lock is gone.
func TestFileLockedByAnotherProcess(t *testing.T) {
	path := made(t)
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, BusyTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	other := raw(t, path)
	execRaw(t, other, "BEGIN EXCLUSIVE")
	unavailable(t, tryAccount(t.Context(), db, "refused"), "locked")
	if got := accountNames(t, db); got != "kept" {
		t.Errorf("while the file is locked: got the accounts %q, want \"kept\"", got)
	}
	if _, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, BusyTimeout: 20 * time.Millisecond}); err == nil {
		t.Error("a locked file was opened, want an error")
	} else {
		unavailable(t, err, "locked")
	}
	execRaw(t, other, "ROLLBACK")
	insertAccount(t, db, "after")
	if got := accountNames(t, db); got != "kept after" {
		t.Errorf("after the lock: got the accounts %q, want \"kept after\"", got)
	}
}

// Guarantee: a write waits for the write of another process to end.
func TestWriteWaitsForAnotherProcess(t *testing.T) {
	path := made(t)
	db := openWithLongTimeout(t, path)
	other := raw(t, path)
	execRaw(t, other, "BEGIN IMMEDIATE")
	done := make(chan error, 1)
	go func() { done <- tryAccount(t.Context(), db, "waited") }()
	select {
	case err := <-done:
		t.Fatalf("the write did not wait: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	execRaw(t, other, "COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Guarantee: an Update that waits for the writer stops waiting when its context ends.
func TestWaitingUpdateStopsWithItsContext(t *testing.T) {
	db := open(t, made(t))
	ctx, cancel := context.WithCancel(t.Context())
	err := db.Update(t.Context(), func(control.Tx) error {
		waiting := make(chan error)
		go func() { waiting <- tryAccount(ctx, db, "left") }()
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Errorf("the waiting Update returned %v, want context.Canceled", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Guarantee: a file of a newer version is rejected and not changed.
func TestNewerFileIsRejected(t *testing.T) {
	path := made(t)
	other := raw(t, path)
	execRaw(t, other, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (900, 1)")
	execRaw(t, other, "PRAGMA wal_checkpoint(TRUNCATE)")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	leftAlone(t, path, "newer version of Keygate (schema 900")
}

// leftAlone checks that Open rejects the file and does not change it.
func leftAlone(t *testing.T, path, message string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err == nil {
		_ = db.Close()
		t.Fatal("the file was opened, want an error")
	}
	unavailable(t, err, message)
	if !strings.Contains(err.Error(), path) {
		t.Errorf("the error for the log does not name the file: %v", err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
}

// Guarantee: a database to which Litestream has added its tables before Keygate has started on it counts as new.
func TestTablesOfLitestreamAreNotForeign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.db")
	other := raw(t, path)
	execRaw(t, other, "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")
	execRaw(t, other, "CREATE TABLE _litestream_lock (id INTEGER)")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	insertAccount(t, sqlitetest.Open(t, sqlite.Config{Path: path}), "first")
}

// Guarantee: a file that is not a database, belongs to another program or is damaged is rejected
// with a clear error and not changed.
func TestForeignFileIsRejected(t *testing.T) {
	write := func(content []byte) string {
		path := filepath.Join(t.TempDir(), "keygate.db")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("text", func(t *testing.T) { leftAlone(t, write([]byte("hello, world\n")), "not a Keygate database") })
	t.Run("noise", func(t *testing.T) { leftAlone(t, write(bytes.Repeat([]byte("noise"), 4000)), "not a Keygate database") })
	t.Run("another program's", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "other.db")
		other := raw(t, path)
		execRaw(t, other, "PRAGMA journal_mode = WAL")
		execRaw(t, other, "CREATE TABLE theirs (x)")
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		leftAlone(t, path, "not a Keygate database")
	})
	t.Run("damaged", func(t *testing.T) {
		content, err := os.ReadFile(made(t))
		if err != nil {
			t.Fatal(err)
		}
		for i := 100; i < 4096; i++ {
			content[i] = 0xa5
		}
		leftAlone(t, write(content), "damaged")
	})
	t.Run("a directory", func(t *testing.T) {
		if _, err := sqlite.Open(t.Context(), sqlite.Config{Path: t.TempDir()}); err == nil {
			t.Error("a directory was opened, want an error")
		} else {
			unavailable(t, err, "")
		}
	})
	t.Run("no directory", func(t *testing.T) {
		_, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "absent", "keygate.db")})
		unavailable(t, err, "directory")
	})
}

// Guarantee: calls after Close fail with a clear error, and no files are left beside the database.
func TestCallsAfterCloseFail(t *testing.T) {
	path := made(t)
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	unavailable(t, tryAccount(t.Context(), db, "late"), "closed")
	_, err = db.LastSeq(t.Context())
	unavailable(t, err, "closed")
	for _, left := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file %s still exists: %v", left, err)
		}
	}
}
