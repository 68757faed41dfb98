package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keygate/keygate/internal/config"
)

// accounts is a store that is empty until FirstStart.
type accounts struct {
	created  int
	replaced int
	given    string
	fail     bool // FirstStart fails after creating the account
}

func (a *accounts) FirstNode(ctx context.Context, given string) (string, error) {
	return a.FirstStart(ctx, given)
}

func (a *accounts) FirstStart(_ context.Context, given string) (string, error) {
	if given != "" {
		a.given = given
		return given, nil
	}
	if a.created > 0 {
		return "", nil
	}
	a.created++
	if a.fail {
		return "", errors.New("killed")
	}
	return "kga_first", nil
}

// newKey creates another admin key.
func (a *accounts) newKey(context.Context, string) (string, error) {
	a.replaced++
	return "kga_again", nil
}

// start runs both halves of a first start, with a database between them, and returns what was
// printed.
func start(t *testing.T, dir string, a *accounts, terminal bool) (string, error) {
	t.Helper()
	c := &config.Config{DataDir: dir, SecretKeyFile: filepath.Join(dir, "secret.key")}
	if err := prepareFirstStart(c); err != nil {
		return "", err
	}
	if err := os.WriteFile(c.DatabaseFile(), []byte("tables"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := firstStart(t.Context(), c, a, a.newKey, &out, terminal)
	return out.String(), err
}

// keyIn returns the content of admin.key, which must be readable by its owner only.
func keyIn(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "admin.key")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("admin.key has mode %v, want 0600", got)
	}
	return string(content)
}

// Guarantee: the first start writes the key to a file that only its owner can read, and
// prints it only to a terminal (contract, section 1).
func TestFirstStartWritesTheAdminKey(t *testing.T) {
	for _, tc := range []struct {
		name     string
		terminal bool
	}{
		{"to a terminal", true},
		{"not to a terminal", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			out, err := start(t, dir, &accounts{}, tc.terminal)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := keyIn(t, dir), "kga_first\n"; got != want {
				t.Errorf("admin.key holds %q, want %q", got, want)
			}
			if path := filepath.Join(dir, "admin.key"); !strings.Contains(out, path) {
				t.Errorf("got the output %q, want it to contain %s", out, path)
			}
			printed := strings.Contains(out, "kga_first")
			if tc.terminal && !printed {
				t.Errorf("got the output %q, want it to contain the key", out)
			}
			if !tc.terminal && printed {
				t.Errorf("got the output %q, want it without the key", out)
			}
		})
	}
}

// Guarantee: a later start prints and writes nothing, even if the key's file was removed
// (contract, section 1).
func TestLaterStartPrintsNothing(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		t.Run(fmt.Sprintf("terminal %v", terminal), func(t *testing.T) {
			dir, a := t.TempDir(), &accounts{}
			if _, err := start(t, dir, a, terminal); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, "admin.key")); err != nil {
				t.Fatal(err)
			}
			out, err := start(t, dir, a, terminal)
			if err != nil {
				t.Errorf("a later start returned %v, want nil", err)
			}
			if out != "" {
				t.Errorf("a later start printed %q, want nothing", out)
			}
			files, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(files) != 1 {
				t.Errorf("the directory holds %v after a later start, want only the database", files)
			}
			if a.replaced != 0 {
				t.Errorf("a later start made %d keys, want 0", a.replaced)
			}
		})
	}
}

// Guarantee: if the first start fails after the account is created and before the key is
// written, the next start creates another key.
func TestInterruptedFirstStartIsRepaired(t *testing.T) {
	dir, a := t.TempDir(), &accounts{fail: true}
	if _, err := start(t, dir, a, false); err == nil {
		t.Fatal("the first start succeeded, want an error")
	}
	a.fail = false
	if _, err := start(t, dir, a, false); err != nil {
		t.Fatal(err)
	}
	if got := keyIn(t, dir); got != "kga_again\n" {
		t.Errorf("admin.key: got %q, want the new key", got)
	}
	if _, err := start(t, dir, a, false); err != nil {
		t.Errorf("third start: got error %v, want none", err)
	}
	if a.replaced != 1 {
		t.Errorf("got %d new keys, want 1", a.replaced)
	}
}

// Guarantee: a key from the environment becomes the first key. It is neither written to a file nor
// printed (contract, section 1).
func TestGivenAdminKeyIsNotWritten(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		dir, a := t.TempDir(), &accounts{}
		c := &config.Config{DataDir: dir, SecretKeyFile: filepath.Join(dir, "secret.key"), AdminKey: "kga_given"}
		if err := prepareFirstStart(c); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := firstStart(t.Context(), c, a, a.newKey, &out, terminal); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "kga_") || !strings.Contains(out.String(), config.AdminKeyVariable) {
			t.Errorf("got the output %q, want the name of the variable without the key", out.String())
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
			t.Errorf("the directory holds %v (%v), want nothing", files, err)
		}
		if a.given != "kga_given" || a.replaced != 0 {
			t.Errorf("got the given key %q and %d other keys, want kga_given alone", a.given, a.replaced)
		}
	}
}

// Guarantee: only one server can lock a data directory. The error of a second server names the
// first one's process. A server that starts while the previous one stops waits briefly.
func TestLockExcludesOtherServers(t *testing.T) { synctest.Test(t, testLock) }

func testLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keygate.lock")
	first, err := takeLock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeLock(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another server (process ") {
		t.Errorf("second lock: got error %v, want one that names the other process", err)
	}
	next := make(chan error, 1)
	go func() {
		again, err := takeLock(t.Context(), path)
		if err == nil {
			again.release()
		}
		next <- err
	}()
	synctest.Wait() // until its first attempt has failed
	first.release()
	if err := <-next; err != nil {
		t.Fatalf("lock after the release: got error %v, want none", err)
	}
}

// Guarantee: the data directory is created with mode 0700, and a file in its place is
// refused.
func TestDataDirIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	quiet := slog.New(slog.DiscardHandler)
	if err := prepareDataDir(dir, quiet); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o700 {
		t.Errorf("got mode %v, want 0700", got)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := prepareDataDir(file, quiet); err == nil {
		t.Error("a file was accepted as data directory, want an error")
	}
}

// Guarantee: the server warns of a data directory in which other users may replace files, and
// only of such a one (contract, section 1). A volume to which an arbitrary user ID of a container may
// write by its group is not such a directory.
func TestWritableDataDirIsAWarning(t *testing.T) {
	const someone = 65532
	for _, test := range []struct {
		mode     os.FileMode
		uid, gid int // -1: the test's
		warns    bool
	}{
		{0o700, -1, -1, false},
		{0o755, -1, -1, false},
		{0o707, -1, -1, true},
		{0o770, -1, someone, true},
		{0o770, -1, 0, false},
		{0o770, someone, someone, false},
		{0o777, someone, 0, true},
	} {
		mode, warns, dir := test.mode, test.warns, t.TempDir()
		if test.uid != -1 || test.gid != -1 {
			if os.Geteuid() != 0 {
				continue // only root may give a directory away
			}
			if err := os.Chown(dir, test.uid, test.gid); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		if err := prepareDataDir(dir, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "chmod 700 "+dir); got != warns {
			t.Errorf("mode %v, owner %d, group %d: got the log %q, want a warning that names chmod 700: %v", mode, test.uid, test.gid, log.String(), warns)
		}
	}
}
