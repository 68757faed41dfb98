package server

import (
	"bytes"
	"context"
	"errors"
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
	fail     bool // FirstStart fails after creating the account
}

func (a *accounts) FirstStart(context.Context) (string, error) {
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

// start runs firstStart and returns what it printed.
func start(t *testing.T, dir string, a *accounts, terminal bool) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := firstStart(t.Context(), &config.Config{DataDir: dir}, a, a.newKey, &out, terminal)
	return out.String(), err
}

// keyIn returns the content of admin.key, and checks the mode of the file.
func keyIn(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "admin.key")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, error %v; want 0600", info.Mode(), err)
	}
	return string(content)
}

// Guarantee: the first start writes the admin key to a file that only its owner can read,
// and prints the key only to a terminal; a later start prints and writes nothing (contract,
// section 1).
func TestFirstStartWritesTheAdminKey(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		dir, a := t.TempDir(), &accounts{}
		out, err := start(t, dir, a, terminal)
		if err != nil {
			t.Fatal(err)
		}
		if got := keyIn(t, dir); got != "kga_first\n" {
			t.Errorf("admin.key: got %q, want the first key", got)
		}
		if strings.Contains(out, "kga_first") != terminal || !strings.Contains(out, filepath.Join(dir, "admin.key")) {
			t.Errorf("terminal %t: got output %q, want the path, and the key only on a terminal", terminal, out)
		}
		if err := os.Remove(filepath.Join(dir, "admin.key")); err != nil {
			t.Fatal(err)
		}
		if out, err = start(t, dir, a, terminal); err != nil || out != "" {
			t.Errorf("later start: got output %q, error %v; want none", out, err)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 0 || a.replaced != 0 {
			t.Errorf("later start: got files %v and %d new keys, want none", left, a.replaced)
		}
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
	if _, err := start(t, dir, a, false); err != nil || a.replaced != 1 {
		t.Errorf("got %d new keys, error %v; want 1", a.replaced, err)
	}
}

// Guarantee: only one server can lock a data directory. The error of a second one names the
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
	if err := prepareDataDir(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got mode %v, error %v; want 0700", info.Mode(), err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := prepareDataDir(file); err == nil {
		t.Error("a file was accepted as data directory, want an error")
	}
}
